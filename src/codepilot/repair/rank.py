"""Which of the candidates that pass is most likely right: small, central edits before special cases and deletions."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from codepilot.repair.client import Evidence
from codepilot.repair.confidence import confidence
from codepilot.repair.python.enumerate import Proposal
from codepilot.repair.python.source import Source
from codepilot.repair.python.usage import put_to_use

_DOUBTS: dict[str, float] = {
    "statement.delete": 0.5,
    "statement.return_other": 0.5,
    "statement.copy": 0.6,
    "statement.set": 0.7,
    "condition.force": 0.4,
    "condition.exchange": 0.7,
    "condition.strengthen": 0.8,
    "condition.weaken": 0.8,
    "guard.return": 0.6,
    "guard.inner_return": 0.4,
    "guard.skip": 0.6,
    "guard.wrap": 0.6,
    "guard.unwrap": 0.7,
    "exception.catch": 0.4,
    "name.module": 0.6,
    "name.to_constant": 0.6,
    "value.scale": 0.7,
    "call.clamp": 0.7,
    "documented.condition": 0.5,
    "statement.step": 0.7,
    "statement.keep_value": 0.5,
    "synthesis.condition": 0.7,
    "synthesis.value": 0.7,
    "synthesis.statement": 0.5,
    "synthesis.guard": 0.5,
    "synthesis.branch": 0.5,
    "symmetry.again": 0.7,
    "proposed": 0.7,
}
"""What a template that only makes tests pass is worth beside one that states an intention."""
_MENDS = 4.0
"""How much likelier each other failing test that passes too makes a candidate."""
_BROKEN = 0.05
"""What a candidate is worth that breaks every example of the documentation."""
_CALM = 0.9
"""The share of inputs like those of passing tests that a repair may be expected to leave as they are."""
_CHANGED = 0.25
"""What a candidate is worth that changes everything that tests were content with, where another changes nothing."""
_ELSEWHERE = 0.5
"""How much of what a repair of another function keeps may be expected of one."""
_WATCHED = 0.25
"""How much more an edit is worth for each doubling of the tests that run it: a wrong one would show there."""
_MANY = 32
"""More tests than these hardly tell more."""
_SLIPPED = 0.2
"""What one is worth that fails by a slip wherever there was a result, or wherever another offer does not."""
_RETYPED = 0.5
"""What one is worth whose results are all of a type that the function never had."""
_USES = {1: 1.5, 0: 1.0, -1: 0.6}
"""What one is worth that puts an idle name to use, or leaves one idle."""
_LITERAL = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?|'[^']+'|\"[^\"]+\")")
_HARMLESS = frozenset({"0", "1", "-1", "2"})


@dataclass(frozen=True)
class Plausible:
    """A candidate that passed, how many tests that reach it agreed, and how many other failing tests it mends."""

    proposal: Proposal
    patched: bytes
    witnesses: int
    mended: int = 0
    evidence: Evidence = field(default_factory=Evidence)
    ground: int = 1
    """How many lines the targets run."""

    @property
    def voices(self) -> float:
        """How much the tests that run it say together: log2 of their number."""
        return math.log2(min(_MANY, max(1, self.witnesses)))

    @cached_property
    def uses(self) -> int:
        """Whether it puts idle names of the function to use (1), or leaves some idle (-1)."""
        return put_to_use(self.proposal.unit, self.proposal.edit)

    @property
    def trusted(self) -> bool:
        """Whether it keeps what the documentation promises, and on inputs like those of passing tests what was there.

        The search goes on until it has found one like that.
        """
        evidence = self.evidence
        return evidence.held >= evidence.promised and evidence.kept >= _CALM and evidence.broken <= 1 - _CALM


class Ranked(NamedTuple):
    """A candidate in its place, with the confidence (0 to 1) that it is right and the signs that this was made of."""

    one: Plausible
    confidence: float
    signs: dict[str, float]


def rank(found: Sequence[Plausible]) -> list[Ranked]:
    """Best first."""
    if not found:
        return []
    places = Counter((one.proposal.source.path, one.proposal.line) for one in found)
    best = _best(found)
    weights = {id(one): _weight(one, places, best[one.proposal.function]) for one in found}
    crowds = _crowds(found, weights)
    total = sum(crowds.values())
    ordered = sorted(found, key=lambda one: (-crowds[_crowd(one)], -weights[id(one)], one.proposal.position))
    ranked = []
    for one in _mixed(ordered):
        share = crowds[_crowd(one)] / total if total else 0.0
        signs = _signs(one, share, len(crowds), _needless(one, best[one.proposal.function]))
        ranked.append(Ranked(one, confidence(signs), signs))
    return ranked


def _signs(one: Plausible, share: float, behaviours: int, slips: float) -> dict[str, float]:
    """What `confidence` is made of."""
    edit, source = one.proposal.edit, one.proposal.source
    old, new = source.text[edit.start : edit.end], edit.replacement
    evidence = one.evidence
    signs = {
        "share": share,
        "rivals": math.log2(behaviours),
        "witnesses": one.voices,
        "doubt": math.log2(_doubt(edit.template)),
        "brought": float(_special_cases(source, new, old)),
        "documented": evidence.held / evidence.promised - 0.5 if evidence.promised else 0.0,
        "kept": evidence.kept,
        "broken": evidence.broken,
        "slips": slips,
        "retyped": evidence.retyped,
        "uses": float(one.uses),
        "ground": math.log2(max(1, one.ground)),
        "late": math.log10(1 + one.proposal.effort),
        "grown": math.log2(1 + abs(len(new) - len(old))),
        "blind": float(not evidence.behaviour),
    }
    return {name: round(value, 4) for name, value in signs.items()}


def _crowds(found: Sequence[Plausible], weights: Mapping[int, float]) -> dict[str, float]:
    """What each crowd weighs. Like edits at one place are one witness, however many they are."""
    best: dict[tuple[str, str, int], float] = defaultdict(float)
    for one in found:
        key = (_crowd(one), one.proposal.edit.template, one.proposal.line)
        best[key] = max(best[key], weights[id(one)])
    crowds: dict[str, float] = defaultdict(float)
    for (crowd, _, _), weight in best.items():
        crowds[crowd] += weight
    return crowds


def _crowd(one: Plausible) -> str:
    """Candidates that do the same stand together: each is a witness for the others."""
    return one.evidence.behaviour or f"alone {one.proposal.position}"


def _mixed(ordered: Sequence[Plausible]) -> list[Plausible]:
    """The best of every crowd before the second of any: five offers should be five answers."""
    leaders = {_crowd(one): one for one in reversed(ordered)}
    first = [one for one in ordered if leaders[_crowd(one)] is one]
    return first + [one for one in ordered if leaders[_crowd(one)] is not one]


def doubted(proposal: Proposal) -> float:
    """The score, less where the edit may only please the tests."""
    return proposal.score * _doubt(proposal.edit.template)


def _doubt(template: str) -> float:
    return math.prod(_DOUBTS.get(part, 1.0) for part in template.split(" + "))


def _weight(one: Plausible, places: Counter[tuple[str, int]], best: Evidence) -> float:
    """How much speaks for it, beside the best that other repairs of the function do."""
    proposal = one.proposal
    edit, source = proposal.edit, proposal.source
    weight = doubted(proposal)
    old, new = source.text[edit.start : edit.end], edit.replacement
    weight /= 1 + 0.01 * abs(len(new) - len(old))
    if _special_cases(source, new, old):
        weight *= 0.5
    agreeing = places[source.path, proposal.line] - 1
    promised, held = one.evidence.promised, one.evidence.held
    kept = _BROKEN + (1 - _BROKEN) * (held / promised) ** 2 if promised else 1.0
    calm = _CHANGED + (1 - _CHANGED) * min(1.0, one.evidence.kept / (_CALM * best.kept) if best.kept else 1.0) ** 2
    sound = _SLIPPED + (1 - _SLIPPED) * (1 - max(one.evidence.broken, _needless(one, best)))
    sound *= (1 - (1 - _RETYPED) * one.evidence.retyped) * _USES[one.uses]
    watched = 1 + _WATCHED * one.voices
    return weight * kept * calm * sound * watched * (1 + 0.15 * min(agreeing, 4)) * _MENDS**one.mended


def _best(found: Sequence[Plausible]) -> dict[tuple[str, int], Evidence]:
    """For each function the fewest slips and changes that any of its repairs makes: so many cannot be avoided.

    Changes can be where a repair of another function makes far fewer.
    """
    watched: dict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for one in found:
        watched[one.proposal.function] += [one.evidence] if one.evidence.behaviour else []
    elsewhere = _ELSEWHERE * max((one.kept for some in watched.values() for one in some), default=0.0)
    return {
        place: Evidence(
            kept=max([elsewhere, *(one.kept for one in some)]) if some else 1.0,
            slips=min((one.slips for one in some), default=0.0),
        )
        for place, some in watched.items()
    }


def _needless(one: Plausible, best: Evidence) -> float:
    """The share of slips that another repair of the function does without."""
    return max(0.0, one.evidence.slips - best.slips) if one.evidence.behaviour else 0.0


def _special_cases(source: Source, new: str, old: str) -> bool:
    """Whether the edit brings in a literal that the file does not have: a guess at what the tests want."""
    known = source.constants | _HARMLESS
    brought = set(_LITERAL.findall(new)) - set(_LITERAL.findall(old))
    return any(literal not in known and literal.replace('"', "'") not in known for literal in brought)


def explain(proposal: Proposal) -> str:
    """One sentence: what was changed, where."""
    edit, source = proposal.edit, proposal.source
    line = source.line_of(edit.start)
    inside = source.unit_at(edit.start)
    place = f"{source.path}:{line}" + (f" in `{inside.qualname}`" if inside else "")
    old = " ".join(source.text[edit.start : edit.end].split())
    new = " ".join(edit.replacement.split())
    if not new:
        return f"{place}: removed `{_short(old)}`"
    if not old:
        return f"{place}: added `{_short(new)}`"
    return f"{place}: `{_short(old)}` became `{_short(new)}`"


def _short(text: str) -> str:
    return text if len(text) <= 160 else text[:157] + "..."
