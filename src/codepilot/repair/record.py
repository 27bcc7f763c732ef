"""Plausible candidates as they are kept in the search's state and handed out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

from codepilot.core.contract import JsonObject, canonical_json
from codepilot.repair.client import Evidence
from codepilot.repair.protocol import Candidate
from codepilot.repair.python.enumerate import Proposal
from codepilot.repair.python.source import Edit, Source
from codepilot.repair.python.synthesis import Known
from codepilot.repair.rank import Plausible, explain

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


@dataclass(frozen=True)
class _Row:
    path: str
    start: int
    end: int
    replacement: str
    template: str
    position: int
    line: int
    score: float
    witnesses: int
    mended: int
    promised: int = 0
    held: int = 0
    behaviour: str = ""
    kept: float = 1.0
    broken: float = 0.0
    slips: float = 0.0
    retyped: float = 0.0
    ground: int = 1
    after: int = -1
    base: str = ""
    """The file that it was found for."""


def remember(one: Plausible) -> JsonObject:
    proposal, edit = one.proposal, one.proposal.edit
    row = _Row(
        proposal.source.path,
        edit.start,
        edit.end,
        edit.replacement,
        edit.template,
        proposal.position,
        proposal.line,
        proposal.score,
        one.witnesses,
        one.mended,
        one.evidence.promised,
        one.evidence.held,
        one.evidence.behaviour,
        one.evidence.kept,
        one.evidence.broken,
        one.evidence.slips,
        one.evidence.retyped,
        one.ground,
        proposal.after,
        _digest(proposal.source.data),
    )
    return dict(vars(row))


def revive(row: object, sources: Mapping[str, Source]) -> Plausible | None:
    """A plausible candidate from its record; None if it does not fit the files."""
    if not isinstance(row, dict):
        return None
    try:
        kept = _Row(**row)
    except TypeError:
        return None
    source = sources.get(kept.path)
    if source is None or kept.base != _digest(source.data):
        return None
    edit = Edit(kept.start, kept.end, kept.replacement, kept.template)
    patched = source.apply(edit)
    if patched is None:
        return None
    unit = source.unit_at(edit.start)
    proposal = Proposal(kept.position, source, unit, edit, kept.score, kept.line, kept.after)
    evidence = Evidence(kept.promised, kept.held, kept.behaviour, kept.kept, kept.broken, kept.slips, kept.retyped)
    return Plausible(proposal, patched, kept.witnesses, kept.mended, evidence, kept.ground)


def order_digest(known: Known, targets: Sequence[str], proposed: Sequence[tuple[str, bytes]]) -> str:
    """Names all that the order of candidates depends on: a position means the same only under the same one."""
    files = {path: _digest(source.data) for path, source in sorted({**known.sources, **known.lent}.items())}
    facts: JsonObject = {
        "engine": engine_digest(),
        "suspicion": known.suspicion.digest,
        "files": {**files},
        "targets": [*targets],
        "failure": _ADDRESS.sub("0x", repr(astuple(known.failure))),
        "proposed": [_digest(content) for _, content in proposed],
    }
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def about(targets: Sequence[str]) -> str:
    """Names the engine and the tests that it is to mend."""
    return _digest(canonical_json([engine_digest(), *targets]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@cache
def engine_digest() -> str:
    """Names the engine by its own files: another one has other templates, in another order."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for file in sorted(root.rglob("*")):
        if file.suffix in (".py", ".json"):
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def offered(one: Plausible, confidence: float, signs: Mapping[str, float]) -> Candidate:
    """A candidate as the search hands it out."""
    proposal = one.proposal
    return Candidate(
        path=proposal.source.path,
        original=proposal.source.data,
        patched=one.patched,
        template=proposal.edit.template,
        rationale=explain(proposal),
        confidence=confidence,
        position=proposal.position,
        signs=signs,
    )
