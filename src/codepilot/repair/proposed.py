"""Changes that somebody else proposes, as candidates of the search: tried before its own, ranked beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from codepilot.repair.python.enumerate import Proposal
from codepilot.repair.python.priors import PRIORS
from codepilot.repair.python.source import Edit, Source

PROPOSED = "proposed"
_SCORE = max(PRIORS.values())


def proposed(sources: Mapping[str, Source], changed: Sequence[tuple[str, bytes]]) -> Iterator[Proposal]:
    """One for each changed file that can be read and differs."""
    for path, content in changed:
        edit = difference(sources[path], content) if path in sources else None
        if edit is not None:
            source = sources[path]
            unit = source.unit_at(edit.start)
            held = unit if unit is not None and unit.holds(edit) else None
            yield Proposal(0, source, held, edit, _SCORE, source.line_of(edit.start))


def difference(source: Source, content: bytes) -> Edit | None:
    """The one edit that makes the source this content; None if there is none in its encoding."""
    try:
        new = Source.decoded(content, source.encoding)
    except UnicodeDecodeError:
        return None
    old = source.text
    if new == old:
        return None
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter - head) if old[-1 - at] != new[-1 - at]), shorter - head)
    edit = Edit(head, len(old) - tail, new[head : len(new) - tail], PROPOSED)
    return edit if source.apply(edit) == content else None
