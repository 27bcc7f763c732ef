"""Applying a unified diff by what its lines say. Pure, standard library only: the source also runs inside.

Line numbers, line endings, the final newline and whitespace may all be wrong; what the lines say decides. A hunk
that fits nowhere, or in several places equally, is refused with what the file says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from codepilot.skills.envelope import BEGIN, parse_envelope
from codepilot.skills.unified import FilePatch, Hunk, PatchError, parse_patch

MAX_FUZZ = 2
MAX_COMPARED = 2_000


@dataclass
class Changes:
    """What a patch makes of a tree: new texts by path (`None`: deleted), and what was notable."""

    files: dict[str, str | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    modes: dict[str, int] = field(default_factory=dict)
    """Permissions that the patch states, by path."""
    moved: dict[str, str] = field(default_factory=dict)
    """Where a file's permissions come from when it has a new path."""


@dataclass(frozen=True)
class Placed:
    """Where a hunk fits: the lines it replaces, and what with. `how` is empty when it fitted as stated."""

    start: int
    end: int
    lines: list[str]
    how: str
    reaches_end: bool


def patch_tree(diff: str, read: Callable[[str], str | None]) -> Changes:
    """What `diff` makes of the files that `read` gives (`None`: no such file). All of it or an error."""
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
    """Which file is read and which is written, whatever prefixes the header carries."""
    if patch.renamed or patch.copied or patch.old is None:
        return patch.old, patch.new
    named = [path for path in (patch.new, patch.old) if path is not None]
    spelled = [*named, *(f"{side}/{path}" for side, path in (("b", patch.new), ("a", patch.old)) if path)]
    spelled += [path[2:] for path in named if path[:2] in ("a/", "b/")]
    found = next((path for path in spelled if read(path) is not None), named[0])
    return found, (None if patch.new is None else found)


def patch_text(source: str, patch: FilePatch, name: str) -> tuple[str, list[str]]:
    """`source` with every hunk applied, and a note for each hunk that did not fit exactly where it said."""
    lines, final_newline = _split(source)
    final_newline = final_newline or not lines
    placed: list[Placed] = []
    notes = []
    drift = 0
    for hunk in patch.hunks:
        spot = _place(lines, hunk, placed, drift, f"hunk {hunk.number} of {len(patch.hunks)} for {name}")
        placed.append(spot)
        if hunk.start is not None and hunk.side("-"):
            drift = spot.start - (hunk.start - 1)
        if spot.how:
            notes.append(f"hunk {hunk.number} applied at line {spot.start + 1} ({spot.how})")
        if spot.reaches_end:
            final_newline = _final_newline(hunk, final_newline)
    result = list(lines)
    for spot in sorted(placed, key=lambda item: (item.start, item.end), reverse=True):
        result[spot.start : spot.end] = spot.lines
    return _join(result, final_newline), notes


# Placing ---------------------------------------------------------------------------------------------


def _exact(line: str) -> str:
    return line


def _no_trailing(line: str) -> str:
    return line.rstrip()


def _squeezed(line: str) -> str:
    return " ".join(line.split())


_STRICTNESS = ((_exact, ""), (_no_trailing, "trailing whitespace ignored"), (_squeezed, "whitespace ignored"))


def _place(lines: list[str], hunk: Hunk, taken: list[Placed], drift: int, what: str) -> Placed:
    old = hunk.side("-")
    if not old:
        return _place_insertion(lines, hunk, what)
    expected = _expected(lines, hunk, drift)
    shapes = _shapes(hunk)
    for fuzz, shape in shapes:
        wanted = [text for tag, text in shape if tag != "+"]
        if not wanted:
            return _place_insertion(lines, replace(hunk, lines=shape), what)
        lead = fuzz[0]
        for same, how in _STRICTNESS:
            starts = _fits(lines, wanted, same, taken)
            if not starts:
                continue
            if (how or any(fuzz)) and not any(line.strip() for line in wanted):
                continue
            if len(starts) > 1 and (expected is None or any(fuzz)):
                places = ", ".join(str(start + 1) for start in starts[:8])
                raise PatchError(
                    f"{what} ({hunk.header}) fits in {len(starts)} places: lines {places}. Add context lines."
                )
            stated = 0 if expected is None else expected + lead
            below = hunk.start is None and expected is not None  # a heading stands above what it leads to
            start = min(starts, key=lambda place: (below and place < stated, abs(place - stated), place))
            return _settle(lines, hunk, shape, start, same, how, fuzz)
    raise PatchError(_mismatch(lines, hunk, expected, what))


def _place_insertion(lines: list[str], hunk: Hunk, what: str) -> Placed:
    """A hunk of additions alone: its line number is all there is to go by."""
    if lines and (hunk.start is None or hunk.start > len(lines)):
        raise PatchError(
            f"{what} ({hunk.header}) only adds lines and has no context, and its line number does not exist "
            f"(the file has {len(lines)} lines). Add the lines before and after as context."
        )
    start = hunk.start if lines and hunk.start is not None else 0
    added = hunk.side("+")
    if not any(text.endswith("\r") for text in added):
        added = [text + _ending(lines) for text in added]
        added[-1] = _last_line(added[-1], hunk)
    return Placed(start, start, added, "", reaches_end=start == len(lines))


def _expected(lines: list[str], hunk: Hunk, drift: int) -> int | None:
    if hunk.start is not None:
        return max(0, hunk.start - 1 + drift)
    for place, line in enumerate(lines):
        if hunk.heading and hunk.heading in line:
            return place
    return None


def _shapes(hunk: Hunk) -> list[tuple[tuple[int, int], list[tuple[str, str]]]]:
    """The hunk as written, without stray blank lines at its end, then with less and less context."""
    body = list(hunk.lines)
    shapes = [((0, 0), list(body))]
    while body and len(body) - 1 in hunk.doubtful:
        body.pop()
        shapes.append(((0, 0), list(body)))
    head = next(place for place, line in enumerate(body) if line[0] != " ")
    tail = next(place for place, line in enumerate(reversed(body)) if line[0] != " ")
    for fuzz in range(1, MAX_FUZZ + 1):
        cut = (min(fuzz, head), min(fuzz, tail))
        shape = body[cut[0] : len(body) - cut[1]]
        if any(cut) and any(tag != "+" for tag, _ in shape) and (cut, shape) not in shapes:
            shapes.append((cut, shape))
    return shapes


def _fits(lines: list[str], wanted: list[str], same: Callable[[str], str], taken: list[Placed]) -> list[int]:
    have = [same(line) for line in lines]
    want = [same(line) for line in wanted]
    found = []
    for start in range(len(have) - len(want) + 1):
        if have[start] == want[0] and have[start : start + len(want)] == want:
            end = start + len(want)
            if all(end <= spot.start or start >= spot.end for spot in taken):
                found.append(start)
    return found


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
    indents = _indents(lines, shape, start) if same is _squeezed else {}
    at = start
    out = []
    for tag, text in shape:
        if tag == "+":
            out.append(text if same is _exact else _adapted(text, indents, _near_ending(lines, at)))
            continue
        if tag == " ":
            out.append(lines[at])
        at += 1
    if same is not _exact and shape[-1][0] == "+":
        out[-1] = _last_line(out[-1], hunk)
    reasons = [how] if how else []
    if hunk.start is not None and start - fuzz[0] != hunk.start - 1:
        reasons.append(f"stated line {hunk.start}")
    if any(fuzz):
        reasons.append("outer context ignored")
    return Placed(start, at, out, ", ".join(reasons), reaches_end=at == len(lines) and not fuzz[1])


def _indents(lines: list[str], shape: list[tuple[str, str]], start: int) -> dict[str, str]:
    """How the patch's indentation translates into the file's."""
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


def _ending(lines: list[str]) -> str:
    return "\r" if lines and sum(line.endswith("\r") for line in lines) * 2 > len(lines) else ""


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


def _mismatch(lines: list[str], hunk: Hunk, expected: int | None, what: str) -> str:
    """Which hunk failed, where it comes closest, and what the file says there."""
    said = f"{what} ({hunk.header}) does not fit: "
    new = [line.strip() for line in hunk.side("+")]
    have = [line.strip() for line in lines]
    for start in range(len(have) - len(new) + 1):
        if any(new) and have[start : start + len(new)] == new:
            return said + f"line {start + 1} already reads as the hunk would leave it. Is it applied already?"
    if not lines:
        return said + "the file is empty."
    old = hunk.side("-")
    start, agree = _closest(have, [line.strip() for line in old], expected)
    shown = []
    for offset, line in enumerate(old):
        there = lines[start + offset].rstrip("\r") if start + offset < len(lines) else "(end of file)"
        if there.strip() == line.strip():
            shown.append(f"  {start + offset + 1:5} | {there}")
        else:
            shown.append(f"  {start + offset + 1:5} | {there}\n  patch | {line.rstrip()}    <- differs")
    closest = f"the closest place is line {start + 1}, where {agree} of its {len(old)} old lines agree.\n"
    return said + closest + "The file says there:\n" + "\n".join(shown)


def _closest(have: list[str], want: list[str], expected: int | None) -> tuple[int, int]:
    wanted = set(want) - {""}
    near = 0 if expected is None else min(expected, len(have) - 1)
    rows = [place for place, line in enumerate(have) if line in wanted]
    rows = sorted(rows, key=lambda row: abs(row - near))[:MAX_COMPARED]
    starts = {max(0, row - offset) for row in rows for offset, line in enumerate(want) if line == have[row]}

    def agreeing(start: int) -> int:
        return sum(line == there for line, there in zip(want, have[start:]))  # noqa: B905 (3.9 runs this too)

    best = max(starts or {near}, key=lambda start: (agreeing(start), -abs(start - near)))
    return best, agreeing(best)
