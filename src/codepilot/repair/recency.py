"""Of equally suspicious lines, those that were changed last come first: what was just changed is likelier to be wrong.

Recency breaks ties and does nothing else: no line passes one that coverage or the failure's frames put above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from codepilot.repair.localise import Suspicion
from codepilot.repair.python.source import Source

Ages = Mapping[str, Sequence[tuple[bytes, int | None]]]
"""For files, the lines of a commit, each with how many commits ago it was changed; None is long ago."""

FILES = 6
"""How many files are asked about, the most suspicious first."""
STEP = 0.002
"""Which share of its suspicion an old line loses at most, so that priors of templates outweigh its age."""
LEVELS = 10
"""Ages are told apart by their order of magnitude: not changed for so many doublings is old."""
OWN = 0.7
"""What the line's own age counts; the rest is that of the newest line of its function."""


def newest_first(
    suspicion: Suspicion, sources: Mapping[str, Source], ask: Callable[[tuple[str, ...]], Ages]
) -> Suspicion:
    """The same suspicion with its ties broken by what the history of the most suspicious files tells."""
    files = [path for path in suspicion.lines if path in sources]
    files.sort(key=lambda path: (-max(suspicion.lines[path].values(), default=0.0), path))
    ages = ask(tuple(files[:FILES]))
    fresh = {path: freshness(sources[path], lines) for path, lines in ages.items() if path in sources}
    return (
        break_ties(suspicion, fresh)
        if any(value for known in fresh.values() for value in known.values())
        else suspicion
    )


def freshness(source: Source, committed: Sequence[tuple[bytes, int | None]]) -> dict[int, float]:
    """For each line of the file from 0 (old) to 1 (not yet committed), its function's newest line counted in."""
    own = _aligned(source, committed)
    found = dict(own)
    for unit in source.units:
        newest = max((own.get(line, 0.0) for line in unit.lines), default=0.0)
        found.update({line: OWN * own.get(line, 0.0) + (1 - OWN) * newest for line in unit.lines})
    return found


def _aligned(source: Source, committed: Sequence[tuple[bytes, int | None]]) -> dict[int, float]:
    """The committed lines found again in the file as it is now; what is not among them is new."""
    now = [row.rstrip(b"\r") for row in source.data.removesuffix(b"\n").split(b"\n")]
    if any(b"\r" in row for row in now):
        return {}  # lines that end in another way are numbered otherwise
    before = [row.rstrip(b"\r") for row, _ in committed]
    fresh = dict.fromkeys(range(1, len(now) + 1), 1.0)
    for at, place in _matches(before, now):
        fresh[place + 1] = _fresh(committed[at][1])
    return fresh


def _matches(before: Sequence[bytes], now: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Places of the same lines in both: the head and the tail that they share, and what a comparison finds between."""
    shorter = min(len(before), len(now))
    head = next((at for at in range(shorter) if before[at] != now[at]), shorter)
    tail = next((at for at in range(shorter - head) if before[-1 - at] != now[-1 - at]), shorter - head)
    yield from ((at, at) for at in range(head))
    yield from ((len(before) - at, len(now) - at) for at in range(1, tail + 1))
    middle = SequenceMatcher(None, before[head : len(before) - tail], now[head : len(now) - tail])
    for block in middle.get_matching_blocks():
        yield from ((head + block.a + at, head + block.b + at) for at in range(block.size))


def _fresh(age: int | None) -> float:
    return 0.0 if age is None else max(0.0, 1.0 - age.bit_length() / LEVELS)


def break_ties(suspicion: Suspicion, fresh: Mapping[str, Mapping[int, float]]) -> Suspicion:
    """Old lines step back a little, never behind one that was less suspicious."""
    values = sorted({score for lines in suspicion.lines.values() for score in lines.values()})
    rooms = {
        score: min(STEP * score, (score - below) / 2) for below, score in zip([0.0, *values], values, strict=False)
    }
    return Suspicion(
        {
            path: {
                line: score - rooms[score] * (1.0 - fresh.get(path, {}).get(line, 0.0)) for line, score in lines.items()
            }
            for path, lines in suspicion.lines.items()
        }
    )
