"""Reading patches in the `*** Begin Patch` form. Pure, standard library only: the source also runs inside."""

from __future__ import annotations

from codepilot.skills.unified import FilePatch, Hunk, PatchError

BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_UPDATE, _ADD, _DELETE, _MOVE = "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "


def parse_envelope(text: str) -> list[FilePatch]:
    """The files such a patch touches, in order. Its hunks have no line numbers; what they say decides."""
    files: list[FilePatch] = []
    hunk: Hunk | None = None
    lines = [line.rstrip("\r") for line in text.split("\n")]
    begin = next(place for place, line in enumerate(lines) if line.startswith(BEGIN))
    for line in lines[begin + 1 :]:
        if line.startswith(_END):
            break
        if line.startswith("*** "):
            _opened(files, line)
            hunk = None
            continue
        if not files:
            if line.strip():
                raise PatchError(f"{line!r} stands before the first `{_UPDATE}PATH`.")
            continue
        if line.startswith("@@"):
            hunk = _hunk(files[-1], line)
            continue
        hunk = hunk or _hunk(files[-1], "@@")
        tag, said = (line[0], line[1:]) if line[:1] in ("+", "-", " ") else (" ", line)
        if tag != line[:1]:
            hunk.doubtful.add(len(hunk.lines))
        hunk.lines.append((tag, said))
    for patch in files:
        patch.hunks = _changing(patch)
    if not files:
        raise PatchError(f"The patch names no file (`{_UPDATE}PATH`, `{_ADD}PATH` or `{_DELETE}PATH`).")
    return files


def _opened(files: list[FilePatch], line: str) -> None:
    if line.startswith(_UPDATE):
        path = line[len(_UPDATE) :].strip()
        files.append(FilePatch(path, path))
    elif line.startswith(_ADD):
        files.append(FilePatch(None, line[len(_ADD) :].strip()))
    elif line.startswith(_DELETE):
        files.append(FilePatch(line[len(_DELETE) :].strip(), None))
    elif line.startswith(_MOVE) and files:
        files[-1].new, files[-1].renamed = line[len(_MOVE) :].strip(), True
    elif not line.startswith("*** End of File"):
        raise PatchError(f"{line!r} is not understood.")


def _hunk(patch: FilePatch, header: str) -> Hunk:
    """The next hunk. Headings one after another lead to one place: the last of them counts."""
    heading = header.strip("@ ")
    if patch.hunks and not patch.hunks[-1].lines:
        patch.hunks[-1].heading = heading
        return patch.hunks[-1]
    patch.hunks.append(Hunk(len(patch.hunks) + 1, header, heading=heading))
    return patch.hunks[-1]


def _changing(patch: FilePatch) -> list[Hunk]:
    if patch.new is None:
        return []
    kept = []
    for hunk in patch.hunks:
        if any(tag != " " for tag, _ in hunk.lines):
            kept.append(hunk)
        elif any(said.strip() for _, said in hunk.lines):
            raise PatchError(f"Hunk {hunk.number} for {patch.new} ({hunk.header}) changes nothing.")
    if not kept and patch.old is not None and not patch.renamed:
        raise PatchError(f"The patch names {patch.new} but changes nothing in it.")
    if patch.old is None:
        for hunk in kept:
            hunk.lines = [(tag, said) for tag, said in hunk.lines if tag == "+"]
    return kept
