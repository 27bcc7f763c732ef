"""Where lines of a patch stand in a file. Pure, standard library only: the source also runs inside.

The file is read once for each way of comparing; a place is then looked for by the rarest of the wanted lines. All
searches in one file together are bounded, whatever it and the patch say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

MAX_STEPS = 20_000_000
"""How many lines may be compared in one file: about a second's worth."""
_STEP = 25
"""What looking at one place costs, in lines compared."""

TYPE_CHECKING = False  # 3.8 cannot make the alias, and has no need of it
if TYPE_CHECKING:
    Same = Callable[[str], str]
    """What of a line counts."""


def exact(line: str) -> str:
    return line


def no_trailing(line: str) -> str:
    return line.rstrip()


def squeezed(line: str) -> str:
    return " ".join(line.split())


class TooMuchAlike(Exception):
    """So many places look like the wanted one that looking on would take too long."""


class Text:
    """A file's lines, and the spans of them that hunks have taken already."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._views: dict[Same, tuple[list[str], dict[str, list[int]]]] = {}
        self._headings: dict[str, int | None] = {}
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._points: list[int] = []
        self._left = MAX_STEPS

    def take(self, start: int, end: int) -> None:
        """No other hunk may change these lines; an empty span is a place where lines are added."""
        if start == end:
            insort(self._points, start)
        else:
            place = bisect_left(self._starts, start)
            self._starts.insert(place, start)
            self._ends.insert(place, end)

    def is_free(self, start: int, end: int) -> bool:
        """Whether no hunk has taken any of these lines, nor a place between them."""
        point = bisect_right(self._points, start)
        if point < len(self._points) and self._points[point] < end:
            return False
        before = bisect_left(self._starts, end) - 1
        return before < 0 or self._ends[before] <= start

    def fits(self, wanted: list[str], same: Same) -> list[int]:
        """Every free place where the wanted lines stand, in order."""
        offset, places = self._anchor(wanted, same)
        return [place - offset for place in self._fitting(places, wanted, same, offset)]

    def nearest(self, wanted: list[str], same: Same, stated: int, below: bool) -> int | None:
        """The free place nearest to a stated one; any `below` it comes before those above it."""
        offset, places = self._anchor(wanted, same)
        order = _outward(places, stated + offset, below)
        found = next(self._fitting(order, wanted, same, offset), None)
        return None if found is None else found - offset

    def stands(self, wanted: list[str], same: Same) -> int | None:
        """The first place where the wanted lines stand, taken or not."""
        offset, places = self._anchor(wanted, same)
        found = next(self._standing(places, wanted, same, offset), None)
        return None if found is None else found - offset

    def heading(self, words: str) -> int | None:
        """The first line that contains the words of a hunk's heading."""
        if words and words not in self._headings:
            self._spend(1 + len(self.lines) // 20)
            at = self._joined.find(words)
            self._headings[words] = None if at < 0 else self._joined.count("\n", 0, at)
        return self._headings.get(words)

    @cached_property
    def ending(self) -> str:
        """What most lines end in before the newline."""
        return "\r" if sum(line.endswith("\r") for line in self.lines) * 2 > len(self.lines) else ""

    @cached_property
    def _joined(self) -> str:
        return "\n".join(self.lines)

    def view(self, same: Same) -> tuple[list[str], dict[str, list[int]]]:
        """The lines as they are compared, and the places of each."""
        if same not in self._views:
            lines = self.lines if same is exact else [same(line) for line in self.lines]
            places: dict[str, list[int]] = defaultdict(list)
            for place, line in enumerate(lines):
                places[line].append(place)
            self._views[same] = (lines, dict(places))
        return self._views[same]

    def _anchor(self, wanted: list[str], same: Same) -> tuple[int, list[int]]:
        """The wanted line that stands in the fewest places, by its number, and those places."""
        self._spend(len(wanted))
        known = self.view(same)[1]
        best, places = 0, known.get(same(wanted[0]), [])
        for offset, line in enumerate(wanted):
            found = known.get(same(line), [])
            if len(found) < len(places):
                best, places = offset, found
            if not places:
                break
        return best, places

    def _fitting(self, places: Iterable[int], wanted: list[str], same: Same, offset: int) -> Iterator[int]:
        for place in self._standing(places, wanted, same, offset):
            start = place - offset
            if self.is_free(start, start + len(wanted)):
                yield place

    def _standing(self, places: Iterable[int], wanted: list[str], same: Same, offset: int) -> Iterator[int]:
        """Those of the places of one wanted line around which the others stand too."""
        have = self.view(same)[0]
        want = [same(line) for line in wanted]
        first, last, length = want[0], want[-1], len(want)
        for place in places:
            self._left -= _STEP
            start = place - offset
            end = start + length
            if start >= 0 and end <= len(have) and have[start] == first and have[end - 1] == last:
                self._spend(length)
                if have[start:end] == want:
                    yield place
            elif self._left < 0:
                raise TooMuchAlike

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooMuchAlike


def _outward(places: list[int], stated: int, below: bool) -> Iterator[int]:
    """Places in the order of their distance, the upper one first where two are equally far."""
    after = bisect_left(places, stated)
    before = after - 1
    while before >= 0 or after < len(places):
        down = after < len(places) and (below or before < 0 or places[after] - stated < stated - places[before])
        if down:
            yield places[after]
            after += 1
        else:
            yield places[before]
            before -= 1
