"""Applies a unified diff by the text of its lines. Pure, standard library only: the source also runs in the sandbox.

Line numbers, line endings, the final newline and whitespace may all be wrong; the text of the lines decides. A hunk
that fits nowhere, or in several places equally, is refused with the lines that the file has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import eq

from codepilot.skills.patch_formats import BEGIN, FilePatch, Hunk, PatchError, parse_envelope, parse_patch

MAX_STEPS = 20_000_000
"""How many lines may be compared in one file: about a second's worth."""
_STEP = 25
"""The cost of looking at one place, in lines compared."""

TYPE_CHECKING = False  # 3.8 cannot make the alias, and has no need of it
if TYPE_CHECKING:
    Same = Callable[[str], str]
    """The part of a line that is compared."""
MAX_FUZZ = 2
MAX_COMPARED = 2_000
MAX_AGREEING = 5_000_000
"""Limits on lines and comparisons in the search for the place where a failed hunk comes closest."""


@dataclass
class Changes:
    """The result of a patch: new texts by path (`None`: deleted), and notes."""

    files: dict[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    modes: dict[str, int] = field(default_factory=dict)
    """Permissions that the patch states, by path."""
    moved: dict[str, str] = field(default_factory=dict)
    """The old path of a moved file, whose permissions it keeps."""


@dataclass(frozen=True)
class Placed:
    """The place of a hunk: the lines it replaces, and their replacement. `how` is empty if the hunk fits as stated."""

    start: int
    end: int
    lines: list[str]
    how: str
    reaches_end: bool


def patch_tree(diff: str, read: Callable[[str], str | None]) -> Changes:
    """Apply `diff` to the files that `read` returns (`None`: no such file), all of it or none."""
    changes = Changes()

    def now(path: str) -> str | None:
        return changes.files[path] if path in changes.files else read(path)

    for patch in parse_envelope(diff) if _is_envelope(diff) else parse_patch(diff):
        source_path, target_path = _paths(patch, now)
        source = now(source_path) if source_path is not None else ""
        if source_path is None and target_path is not None and now(target_path) is not None:
            raise PatchError(f"The patch creates {target_path}, but it exists already. Patch it as it is.")
        if source is None:
            raise PatchError(f"The patch changes {source_path}, but there is no such file.")
        text, notes = patch_text(source, patch, str(target_path or source_path))
        if target_path is None and text and patch.hunks:
            raise PatchError(f"The patch deletes {source_path}, but leaves {len(_split(text)[0])} of its lines.")
        if source_path is not None and target_path is not None and source_path != target_path:
            if now(target_path) is not None:
                raise PatchError(f"The patch moves {source_path} to {target_path}, but that exists already.")
            changes.moved[target_path] = source_path
        if source_path is not None and source_path != target_path and not patch.copied:
            changes.files[source_path] = None
        if target_path is not None:
            changes.files[target_path] = text
            if patch.mode is not None:
                changes.modes[target_path] = patch.mode
        changes.notes.extend(f"{target_path or source_path}: {note}" for note in notes)
    return changes


def _is_envelope(diff: str) -> bool:
    return any(line.startswith(BEGIN) for line in diff.split("\n"))


def _paths(patch: FilePatch, read: Callable[[str], str | None]) -> tuple[str | None, str | None]:
    """The path to read and the path to write, with or without the header's prefixes."""
    if patch.renamed or patch.copied or patch.old is None:
        return patch.old, patch.new
    named = [path for path in (patch.new, patch.old) if path is not None]
    spelled = [*named, *(f"{side}/{path}" for side, path in (("b", patch.new), ("a", patch.old)) if path)]
    spelled += [path[2:] for path in named if path[:2] in ("a/", "b/")]
    found = next((path for path in spelled if read(path) is not None), named[0])
    return found, (None if patch.new is None else found)


def patch_text(source: str, patch: FilePatch, name: str) -> tuple[str, list[str]]:
    """`source` with every hunk applied, and a note for each hunk that did not fit exactly at its stated line."""
    lines, final_newline = _split(source)
    final_newline = final_newline or not lines
    file = Text(lines)
    placed: list[Placed] = []
    notes = []
    drift = 0
    for hunk in patch.hunks:
        spot = _place(file, hunk, drift, f"hunk {hunk.number} of {len(patch.hunks)} for {name}")
        file.take(spot.start, spot.end)
        placed.append(spot)
        if hunk.start is not None and any(tag != "+" for tag, _ in hunk.lines):
            drift = spot.start - (hunk.start - 1)
        if spot.how:
            notes.append(f"hunk {hunk.number} applied at line {spot.start + 1} ({spot.how})")
        if spot.reaches_end:
            final_newline = _final_newline(hunk, final_newline)
    return _join(_replaced(lines, placed), final_newline), notes


def _replaced(lines: list[str], placed: list[Placed]) -> list[str]:
    """The lines with every hunk in its place."""
    result: list[str] = []
    at = 0
    for spot in sorted(placed, key=lambda item: (item.start, item.end)):
        result += lines[at : spot.start]
        result += spot.lines
        at = spot.end
    return result + lines[at:]


# Finding lines ---------------------------------------------------------------------------------------


def exact(line: str) -> str:
    return line


def no_trailing(line: str) -> str:
    return line.rstrip()


def squeezed(line: str) -> str:
    return " ".join(line.split())


class TooMuchAlike(Exception):
    """Too many places look like the wanted one; the search would take too long."""


class Text:
    """A file's lines, and the spans of them that hunks have taken already."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._views: dict[Same, tuple[list[str], frozenset[str]]] = {}
        self._spans: list[tuple[int, int]] = []
        self._points: list[int] = []
        self._left = MAX_STEPS

    def take(self, start: int, end: int) -> None:
        """No other hunk may change these lines; an empty span is a place where lines are added."""
        if start == end:
            self._points.append(start)
        else:
            self._spans.append((start, end))

    def is_free(self, start: int, end: int) -> bool:
        """True if no hunk has taken any of these lines or a place between them."""
        amid = start < end and any(start < point < end for point in self._points)
        return not amid and all(after <= start or end <= before for before, after in self._spans)

    def fits(self, wanted: list[str], same: Same) -> Iterator[int]:
        """Every place where the wanted lines stand, taken or not, in order."""
        have, known = self.view(same)
        want = [same(line) for line in wanted]
        self._spend(len(want))
        if not known.issuperset(want):
            return
        at = -1
        for _ in range(have.count(want[0])):
            at, before = have.index(want[0], at + 1), at
            self._spend(_STEP + at - before)
            if have[at + len(want) - 1 : at + len(want)] == want[-1:]:
                self._spend(len(want))
                if have[at : at + len(want)] == want:
                    yield at

    def free(self, wanted: list[str], same: Same) -> list[int]:
        """The places of `fits` that no hunk has taken."""
        return [at for at in self.fits(wanted, same) if self.is_free(at, at + len(wanted))]

    def nearest(self, wanted: list[str], same: Same, stated: int, below: bool) -> int | None:
        """The free place nearest to a stated one; any `below` it comes before those above it."""
        end = stated + len(wanted)
        if list(map(same, self.lines[stated:end])) == list(map(same, wanted)) and self.is_free(stated, end):
            return stated
        order = (lambda at: (at < stated, abs(at - stated))) if below else (lambda at: (abs(at - stated), at))
        return min(self.free(wanted, same), key=order, default=None)

    def heading(self, words: str) -> int | None:
        """The first line that contains the words of a hunk's heading."""
        found = next((at for at, line in enumerate(self.lines) if words in line), None) if words else None
        self._spend(1 + (len(self.lines) if found is None else found))
        return found

    @cached_property
    def ending(self) -> str:
        """The carriage return, if most lines end in one."""
        return "\r" if sum(line.endswith("\r") for line in self.lines) * 2 > len(self.lines) else ""

    def view(self, same: Same) -> tuple[list[str], frozenset[str]]:
        """The lines as they are compared, in order and as a set."""
        if same not in self._views:
            lines = list(map(same, self.lines))
            self._views[same] = lines, frozenset(lines)
        return self._views[same]

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooMuchAlike


# Placing ---------------------------------------------------------------------------------------------


_STRICTNESS = ((exact, ""), (no_trailing, "trailing whitespace ignored"), (squeezed, "whitespace ignored"))


def _place(file: Text, hunk: Hunk, drift: int, what: str) -> Placed:
    try:
        return _place_by_text(file, hunk, drift, what)
    except TooMuchAlike:
        raise PatchError(
            f"{what} ({hunk.header}) cannot be placed: too much of the file looks like it. "
            "Add context lines that are nowhere else, or apply fewer hunks at a time."
        ) from None


def _place_by_text(file: Text, hunk: Hunk, drift: int, what: str) -> Placed:
    if all(tag == "+" for tag, _ in hunk.lines):
        return _place_insertion(file, hunk, what)
    expected = _expected(file, hunk, drift)
    for fuzz, shape in _shapes(hunk):
        wanted = [text for tag, text in shape if tag != "+"]
        if not wanted:
            return _place_insertion(file, replace(hunk, lines=shape), what)
        blank = not any(line.strip() for line in wanted)
        for same, how in _STRICTNESS:
            if blank and (how or any(fuzz)):
                continue
            if expected is None or any(fuzz):
                start = _only(file.free(wanted, same), hunk, what)
            else:
                below = hunk.start is None  # a heading stands above what it leads to
                start = file.nearest(wanted, same, expected, below)
            if start is not None:
                return _settle(file.lines, hunk, shape, start, same, how, fuzz)
    raise PatchError(_mismatch(file, hunk, expected, what))


def _only(starts: list[int], hunk: Hunk, what: str) -> int | None:
    if len(starts) > 1:
        places = ", ".join(str(start + 1) for start in starts[:8])
        raise PatchError(f"{what} ({hunk.header}) fits in {len(starts)} places: lines {places}. Add context lines.")
    return starts[0] if starts else None


def _place_insertion(file: Text, hunk: Hunk, what: str) -> Placed:
    """A hunk that only adds lines is placed by its line number."""
    lines = file.lines
    if lines and (hunk.start is None or hunk.start > len(lines)):
        raise PatchError(
            f"{what} ({hunk.header}) only adds lines and has no context, and its line number does not exist "
            f"(the file has {len(lines)} lines). Add the lines before and after as context."
        )
    start = hunk.start if lines and hunk.start is not None else 0
    if not file.is_free(start, start):
        raise PatchError(
            f"{what} ({hunk.header}) adds lines after line {start}, which another hunk replaces. "
            "Add the lines before and after as context."
        )
    added = hunk.side("+")
    if not any(text.endswith("\r") for text in added):
        added = [text + file.ending for text in added]
        added[-1] = _last_line(added[-1], hunk)
    return Placed(start, start, added, "", reaches_end=start == len(lines))


def _expected(file: Text, hunk: Hunk, drift: int) -> int | None:
    return file.heading(hunk.heading) if hunk.start is None else max(0, hunk.start - 1 + drift)


def _shapes(hunk: Hunk) -> Iterator[tuple[tuple[int, int], list[tuple[str, str]]]]:
    """The hunk as written, without stray blank lines at its end, then with less and less context."""
    body = list(hunk.lines)
    yield (0, 0), list(body)
    while body and len(body) - 1 in hunk.doubtful:
        body.pop()
        yield (0, 0), list(body)
    head = next(place for place, line in enumerate(body) if line[0] != " ")
    tail = next(place for place, line in enumerate(reversed(body)) if line[0] != " ")
    cuts = ((min(fuzz, head), min(fuzz, tail)) for fuzz in range(1, MAX_FUZZ + 1))
    for cut in dict.fromkeys(cuts):
        shape = body[cut[0] : len(body) - cut[1]]
        if any(cut) and any(tag != "+" for tag, _ in shape):
            yield cut, shape


def _settle(
    lines: list[str],
    hunk: Hunk,
    shape: list[tuple[str, str]],
    start: int,
    same: Callable[[str], str],
    how: str,
    fuzz: tuple[int, int],
) -> Placed:
    """The replacement: context keeps the file's own text, additions take its indentation and line endings."""
    indents = _indents(lines, shape, start) if same is squeezed else {}
    at = start
    out = []
    for tag, text in shape:
        if tag == "+":
            out.append(text if same is exact else _adapted(text, indents, _near_ending(lines, at)))
            continue
        if tag == " ":
            out.append(lines[at])
        at += 1
    if same is not exact and shape[-1][0] == "+":
        out[-1] = _last_line(out[-1], hunk)
    reasons = [how] if how else []
    if hunk.start is not None and start - fuzz[0] != hunk.start - 1:
        reasons.append(f"stated line {hunk.start}")
    if any(fuzz):
        reasons.append("outer context ignored")
    return Placed(start, at, out, ", ".join(reasons), reaches_end=at == len(lines) and not fuzz[1])


def _indents(lines: list[str], shape: list[tuple[str, str]], start: int) -> dict[str, str]:
    """The file's indentation for each indentation of the patch."""
    known: dict[str, str] = {}
    at = start
    for tag, text in shape:
        if tag == "+":
            continue
        if text.strip():
            known.setdefault(_indent(text), _indent(lines[at]))
        at += 1
    return known


def _adapted(text: str, indents: dict[str, str], ending: str) -> str:
    body = text.rstrip("\r")
    indent = _indent(body)
    if body.strip() and indents and indent not in indents:
        nearest = max((known for known in indents if indent.startswith(known)), key=len, default=None)
        if nearest is not None:
            indents = {**indents, indent: indents[nearest] + indent[len(nearest) :]}
        else:
            deeper = min((known for known in indents if known.startswith(indent)), key=len, default=None)
            extra = deeper[len(indent) :] if deeper is not None else ""
            if deeper is not None and indents[deeper].endswith(extra):
                indents = {**indents, indent: indents[deeper][: len(indents[deeper]) - len(extra)]}
    if body.strip() and indent in indents:
        body = indents[indent] + body[len(indent) :]
    return body + ending


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())] if line.strip() else ""


def _near_ending(lines: list[str], at: int) -> str:
    near = lines[min(at, len(lines) - 1)] if lines else ""
    return "\r" if near.endswith("\r") else ""


def _last_line(line: str, hunk: Hunk) -> str:
    """A line that ends the file without a newline has no carriage return either."""
    return line.rstrip("\r") if hunk.new_without_newline else line


def _split(text: str) -> tuple[list[str], bool]:
    """Lines without their newline (a carriage return stays), and whether the last one had it."""
    if not text:
        return [], False
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1], True
    return lines, False


def _join(lines: list[str], final_newline: bool) -> str:
    return "\n".join(lines) + ("\n" if final_newline and lines else "")


def _final_newline(hunk: Hunk, before: bool) -> bool:
    if hunk.new_without_newline:
        return False
    return True if hunk.old_without_newline else before


def _mismatch(file: Text, hunk: Hunk, expected: int | None, what: str) -> str:
    """An error message: the hunk, the closest place, and the file's lines there."""
    problem = f"{what} ({hunk.header}) does not fit: "
    lines, old, new = file.lines, hunk.side("-"), hunk.side("+")
    applied = next(file.fits(new, str.strip), None) if any(line.strip() for line in new) else None
    if applied is not None:
        return problem + f"line {applied + 1} already reads as the hunk would leave it. Is it applied already?"
    if not lines:
        return problem + "the file is empty."
    start, agree = _closest(file.view(str.strip)[0], [line.strip() for line in old], expected)
    shown = []
    for offset, line in enumerate(old):
        there = lines[start + offset].rstrip("\r") if start + offset < len(lines) else "(end of file)"
        if there.strip() == line.strip():
            shown.append(f"  {start + offset + 1:5} | {there}")
        else:
            shown.append(f"  {start + offset + 1:5} | {there}\n  patch | {line.rstrip()}    <- differs")
    closest = f"the closest place is line {start + 1}, where {agree} of its {len(old)} old lines agree.\n"
    return problem + closest + "The file says there:\n" + "\n".join(shown)


def _closest(have: list[str], want: list[str], expected: int | None) -> tuple[int, int]:
    """The place where most lines agree, of those nearest to the expected one, and how many do."""
    near = 0 if expected is None else min(expected, len(have) - 1)
    offsets: dict[str, list[int]] = {}
    for offset, line in enumerate(want):
        if line:
            offsets.setdefault(line, []).append(offset)
    rows = [place for place, line in enumerate(have) if line in offsets]
    rows = sorted(rows, key=lambda row: abs(row - near))[:MAX_COMPARED]
    starts: set[int] = set()
    most = 1 + MAX_AGREEING // len(want)
    for row in rows:
        starts.update(max(0, row - offset) for offset in offsets[have[row]][:most])
        if len(starts) >= most:
            break

    def agreeing(start: int) -> int:
        return sum(map(eq, want, have[start : start + len(want)]))

    best = max(starts or {near}, key=lambda start: (agreeing(start), -abs(start - near)))
    return best, agreeing(best)
