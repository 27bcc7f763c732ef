"""The record of a search: its plausible candidates, the outcome of single edits, and both as resumable state."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from codepilot.core.contract import JsonObject, canonical_json
from codepilot.repair.backend import SearchFacts
from codepilot.repair.edit import Edit, Proposal, Sources
from codepilot.repair.messages import Evidence, TrialResult
from codepilot.repair.rank import Objection, Plausible, explain, rank

SURE = 0.7
"""The confidence that makes up for changed behaviour on inputs of passing tests."""
FURTHER, CRASHED, LATE, RELOADS, PLAIN = "+", "x", "t", "d", "."
"""Marks: a single edit came further than the base, crashed, timed out, needs a reload, or did nothing special."""
_MOST_REJECTED = 24
_MARKS = frozenset((FURTHER, CRASHED, LATE, RELOADS, PLAIN))
T = TypeVar("T")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


@dataclass
class Ledger:
    digest: str = ""
    """Identifies the order of candidates; empty until that is known."""
    position: int = 0
    """All candidates before it were tried, except those marked as needing a reload."""
    tried: int = 0
    trying_sec: float = 0.0
    synthesised: bool = False
    """True if synthesis is done."""
    found: list[Plausible] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    """Changes that satisfy the targets, each with a passing test that it breaks."""
    marks: dict[int, str] = field(default_factory=dict)
    """The outcome of single edits, by position."""
    task: str = ""
    """Identifies the engine and the targets."""
    ended: bool = False
    """True if the search came to its own end."""

    def count(self, results: Mapping[int, TrialResult], seconds: float) -> None:
        self.tried += sum(result.outcome != "reload" for result in results.values())
        self.trying_sec += seconds

    def has(self, path: str, content: bytes) -> bool:
        return any(one.patched == content and one.proposal.source.path == path for one in self.found)

    def reject(self, proposal: Proposal, test: str) -> None:
        """Note a candidate that satisfies the targets and breaks another test."""
        if len(self.rejected) < _MOST_REJECTED:
            self.rejected.setdefault(explain(proposal), test)

    @property
    def offered(self) -> list[Plausible]:
        """The candidates without an objection."""
        return [one for one in self.found if one.objection is None]

    def acceptable(self) -> list[Plausible]:
        """Candidates that the search may end with: trusted ones, else those of high confidence."""
        trusted = [one for one in self.offered if one.trusted]
        return trusted or [ranked.one for ranked in rank(self.offered) if ranked.confidence >= SURE]

    def state(self) -> JsonObject:
        return {
            "digest": self.digest,
            "task": self.task,
            "ended": self.ended,
            "position": self.position,
            "tried": self.tried,
            "trying_sec": self.trying_sec,
            "synthesised": self.synthesised,
            "plausible": [record(one) for one in self.found],
            "rejected": {**self.rejected},
            "marks": marks_text(self.marks),
        }

    def resume(self, state: JsonObject, sources: Sources, refused: Sequence[bytes]) -> None:
        """Continue from a recorded state of the same order; ignore any other."""
        self.found = []
        if state.get("digest") != self.digest:
            return
        self.position, self.tried = (_typed(state.get(name), int, 0) for name in ("position", "tried"))
        self.trying_sec = _typed(state.get("trying_sec"), float, 0.0)
        self.marks = marks_of(_typed(state.get("marks"), str, ""))
        self.synthesised = state.get("synthesised") is True
        self.rejected = {str(change): str(test) for change, test in _typed(state.get("rejected"), dict, {}).items()}
        self._revive(state, sources, refused)

    def take_over(self, state: JsonObject, sources: Sources, refused: Sequence[bytes]) -> None:
        """The other answers of an ended search for the same targets, after some were turned down."""
        if refused and state.get("ended") is True and state.get("task") == self.task:
            self._revive(state, sources, refused)

    def _revive(self, state: JsonObject, sources: Sources, refused: Sequence[bytes]) -> None:
        for row in _typed(state.get("plausible"), list, []):
            found = revive(row, sources)
            if found is not None and found.patched not in refused:
                self.found.append(found)


def _typed(value: object, kind: type[T], default: T) -> T:
    return value if isinstance(value, kind) else default


def paths_of(state: JsonObject) -> list[str]:
    """The files that the state's candidates change."""
    rows = [row for row in _typed(state.get("plausible"), list, []) if isinstance(row, dict)]
    return list(dict.fromkeys(str(row.get("path")) for row in rows))


# --- plausible candidates as rows -------------------------------------------------------------------------------


def record(one: Plausible) -> JsonObject:
    proposal = one.proposal
    return {
        "path": proposal.source.path,
        "base": _digest(proposal.source.data),
        "edit": asdict(proposal.edit),
        "proposal": [proposal.position, proposal.score, proposal.line, proposal.after, proposal.overfit_penalty],
        "evidence": {**asdict(one.evidence), "lost": list(one.evidence.lost)},
        "facts": [one.covering_tests, one.also_fixed, one.lines_run, one.name_use],
        "doubts": [list(one.objection) if one.objection else None, one.leaves, one.rival_of],
    }


def revive(row: Any, sources: Sources) -> Plausible | None:
    """A plausible candidate from its row; None if it does not fit the files."""
    try:
        source = sources[row["path"]]
        edit = Edit(**row["edit"])
        evidence = Evidence(**{**row["evidence"], "lost": tuple(row["evidence"]["lost"])})
        patched = source.apply(edit) if row["base"] == _digest(source.data) else None
        position, score, line, after, penalty = row["proposal"]
        objection, leaves, rival_of = row["doubts"]
        doubts = Objection(*objection) if objection else None, str(leaves), int(rival_of)
        covering, fixed, lines_run, name_use = row["facts"]
    except (KeyError, TypeError, ValueError):
        return None
    if patched is None:
        return None
    proposal = Proposal(position, source, source.unit_at(edit.start), edit, score, line, after, penalty)
    return Plausible(proposal, patched, covering, fixed, evidence, lines_run, name_use, *doubts)


# --- marks ------------------------------------------------------------------------------------------------------


def marks_text(marks: Mapping[int, str]) -> str:
    """The marks run-length encoded."""
    row = "".join(marks.get(position, PLAIN) for position in range(max(marks, default=-1) + 1))
    return "".join(f"{len(list(run))}{mark}" for mark, run in itertools.groupby(row))


def marks_of(text: str) -> dict[int, str]:
    marks: dict[int, str] = {}
    number, position = "", 0
    for letter in text:
        if letter.isdigit():
            number += letter
        elif letter in _MARKS and number:
            marks.update(dict.fromkeys(range(position, position + int(number)), letter))
            position, number = position + int(number), ""
    return marks


# --- digests ----------------------------------------------------------------------------------------------------


def order_digest(facts: SearchFacts, targets: Sequence[str], proposed: Sequence[tuple[str, bytes]]) -> str:
    """Identifies everything that the order of candidates depends on: a position means the same only under one."""
    files = {path: _digest(source.data) for path, source in sorted(facts.sources.items())}
    content: JsonObject = {
        "engine": engine_digest(),
        "suspicion": facts.suspicion.digest,
        "files": {**files},
        "targets": [*targets],
        "failure": _ADDRESS.sub("0x", repr(astuple(facts.failure))),
        "proposed": [_digest(content) for _, content in proposed],
    }
    return _digest(canonical_json(content).encode())


def task_digest(targets: Sequence[str]) -> str:
    """Identifies the engine and the tests that it is to make pass."""
    return _digest(canonical_json([engine_digest(), *targets]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@cache
def engine_digest() -> str:
    """Identifies the engine by its own files: another one has other templates, in another order."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for file in sorted(root.rglob("*")):
        if file.suffix in (".py", ".json"):
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
