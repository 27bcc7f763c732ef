"""Ranks plausible candidates, and says how likely each is to be right.

Differential behaviour clustering: candidates that give the same results on further inputs form a cluster, and each
cluster is one answer. The confidence is a logistic regression over features; its weights are data in `confidence.json`,
which `scripts/fit_confidence.py` fits to what `codepilot bench repair` found on the development sets.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from codepilot.repair.edit import Proposal, Source
from codepilot.repair.messages import Evidence
from codepilot.repair.protocol import Candidate

WEIGHTS: dict[str, float] = json.loads(Path(__file__).with_name("confidence.json").read_text("utf-8"))
"""The weight of each feature in the log-odds; `bias` is the intercept."""
FEATURES: dict[str, str] = {
    "cluster_share": "the weight of its behaviour cluster among all clusters",
    "clusters": "log2 of the number of behaviour clusters",
    "covering_tests": "log2 of how many tests run the edited lines, 32 at most",
    "overfit_penalty": "log2 of its template's overfit penalty",
    "new_literal": "whether it brings in a literal that the file does not have",
    "documented": "the share of the documentation's examples that hold, less a half; 0 without examples",
    "unchanged": "the share of inputs like those of passing tests, without the base's crashes, with the same result",
    "new_crashes": "the share of those with a result that now crash",
    "crash_rate": "the share of inputs like those of failing tests on which it crashes needlessly",
    "new_types": "the share of its results of a type that the function does not have",
    "name_use": "1 if it uses an unused name of the function, -1 if it leaves one unused",
    "lines_run": "log2 of how many lines the failing tests run",
    "effort": "log10 of how many candidates came before it",
    "growth": "log2 of how many characters it adds or removes",
    "unobserved": "whether its behaviour could not be observed",
}
LEAST, MOST = 0.02, 0.98
_ALSO_FIXED = 4.0
"""How much likelier each other failing test that passes too makes a candidate."""
_BROKEN = 0.05
"""The factor for a candidate that breaks every example of the documentation."""
_CALM = 0.9
"""The share of inputs like those of passing tests whose result a repair is expected to keep."""
_CHANGED = 0.25
"""The factor for a candidate that changes all results on inputs of passing tests, where another changes none."""
_ELSEWHERE = 0.5
"""The part of the results kept by a repair of another function that is expected of this one."""
_COVERED = 0.25
"""How much each doubling of the tests that run an edit adds: a wrong one would show there."""
_MANY = 32
"""More tests than these add nothing."""
_CRASHES = 0.2
"""The factor for one that crashes wherever there was a result, or wherever another candidate does not."""
_RETYPED = 0.5
"""The factor for one whose results are all of a type that the function never had."""
_NAME_USE = {1: 1.5, 0: 1.0, -1: 0.6}
"""The factor for one that uses an unused name, or leaves one unused."""
_SPECIAL = 0.5
"""The factor for an equality with a number where a comparison passes the same tests and does something else."""
UNSURE = 0.6
"""The most confidence in a candidate that a rival or a failing test puts in doubt: less than a confirmation needs."""
_LITERAL = re.compile(r"(?<![\w.])(?:\d+(?:\.\d+)?|'[^']+'|\"[^\"]+\")")
_HARMLESS = frozenset({"0", "1", "-1", "2"})


class Objection(NamedTuple):
    """Why a candidate that passed its tests is no repair."""

    kind: Literal["special_case", "example", "sibling"]
    text: str
    """The requirement that it does not satisfy."""


@dataclass(frozen=True)
class Plausible:
    """A candidate that passed all tests it was given."""

    proposal: Proposal
    patched: bytes
    covering_tests: int
    """How many tests run the edited lines."""
    also_fixed: int = 0
    """How many other failing tests pass with it."""
    evidence: Evidence = field(default_factory=Evidence)
    lines_run: int = 1
    """How many lines the targets run."""
    name_use: int = 0
    """1 if it uses an unused name of the function, -1 if it leaves one unused."""
    objection: Objection | None = None
    """Why it is not offered."""
    leaves: str = ""
    """A test of the same function that still fails, for a reason that may lie elsewhere."""
    rival_of: int = -1
    """The position of the special case that this candidate generalises."""

    @property
    def explanation(self) -> str:
        left = f"; {self.leaves} still fails" if self.leaves else ""
        return explain(self.proposal) + left

    @property
    def against_test(self) -> bool:
        """True if the objection speaks against the failing test."""
        return self.objection is not None and self.objection.kind != "sibling"

    @property
    def coverage(self) -> float:
        """log2 of how many tests run the edited lines."""
        return math.log2(min(_MANY, max(1, self.covering_tests)))

    @property
    def trusted(self) -> bool:
        """True if it keeps the documentation's examples, and nearly all results on inputs like those of passing tests.

        The search goes on until it has found one like that.
        """
        evidence = self.evidence
        kept = evidence.unchanged >= _CALM and evidence.new_crashes <= 1 - _CALM
        return kept and evidence.examples_held >= evidence.examples


class Ranked(NamedTuple):
    """A candidate in its place, with the confidence (0 to 1) that it is right and the features behind it."""

    one: Plausible
    confidence: float
    features: dict[str, float]

    @property
    def candidate(self) -> Candidate:
        proposal = self.one.proposal
        return Candidate(
            path=proposal.source.path,
            original=proposal.source.data,
            patched=self.one.patched,
            template=proposal.edit.template,
            rationale=self.one.explanation,
            confidence=self.confidence,
            position=proposal.position,
            features=self.features,
        )


def confidence(features: Mapping[str, float]) -> float:
    odds = WEIGHTS["bias"] + sum(WEIGHTS.get(name, 0.0) * value for name, value in features.items())
    return round(min(MOST, max(LEAST, 1 / (1 + math.exp(-odds)))), 3)


def rank(found: Sequence[Plausible]) -> list[Ranked]:
    """Best first."""
    if not found:
        return []
    places = Counter((one.proposal.source.path, one.proposal.line) for one in found)
    best = _best(found)
    special, doubtful = _rivals(found)
    weights = {id(one): _weight(one, places, best[one.proposal.function]) for one in found}
    weights.update({id(one): _SPECIAL * weights[id(one)] for one in found if one.proposal.position in special})
    clusters = _clusters(found, weights)
    total = sum(clusters.values())
    ordered = sorted(found, key=lambda one: (-clusters[_cluster(one)], -weights[id(one)], one.proposal.position))
    ranked = []
    for one in _leaders_first(ordered):
        share = clusters[_cluster(one)] / total if total else 0.0
        features = _features(one, share, len(clusters), _needless_crashes(one, best[one.proposal.function]))
        most = UNSURE if one.leaves or one.proposal.position in doubtful else 1.0
        ranked.append(Ranked(one, min(most, confidence(features)), features))
    return ranked


def _rivals(found: Sequence[Plausible]) -> tuple[set[int], set[int]]:
    """The positions of special cases that behave unlike a general rival, and of all that act as these or their rivals.

    A rival at another place is no more general: it makes both doubtful, and neither less likely.
    """
    by_position = {one.proposal.position: one for one in found}
    special, doubtful = set[int](), set[int]()
    for rival in found:
        one = by_position.get(rival.rival_of)
        if one is not None and (not rival.evidence.behaviour or _cluster(rival) != _cluster(one)):
            if one.proposal.edit.start == rival.proposal.edit.start:
                special.add(one.proposal.position)
            acting = {_cluster(one), _cluster(rival)}
            doubtful |= {other.proposal.position for other in found if _cluster(other) in acting}
    return special, doubtful


def _features(one: Plausible, share: float, clusters: int, crash_rate: float) -> dict[str, float]:
    edit, source = one.proposal.edit, one.proposal.source
    old, new = source.text[edit.start : edit.end], edit.replacement
    evidence = one.evidence
    features = {
        "cluster_share": share,
        "clusters": math.log2(clusters),
        "covering_tests": one.coverage,
        "overfit_penalty": math.log2(one.proposal.overfit_penalty),
        "new_literal": float(_special_cases(source, new, old)),
        "documented": evidence.examples_held / evidence.examples - 0.5 if evidence.examples else 0.0,
        "unchanged": evidence.unchanged,
        "new_crashes": evidence.new_crashes,
        "crash_rate": crash_rate,
        "new_types": evidence.new_types,
        "name_use": float(one.name_use),
        "lines_run": math.log2(max(1, one.lines_run)),
        "effort": math.log10(1 + one.proposal.effort),
        "growth": math.log2(1 + abs(len(new) - len(old))),
        "unobserved": float(not evidence.behaviour),
    }
    return {name: round(value, 4) for name, value in features.items()}


def _clusters(found: Sequence[Plausible], weights: Mapping[int, float]) -> dict[str, float]:
    """The weight of each cluster. Edits of one template at one line count once, however many they are."""
    best: dict[tuple[str, str, int], float] = defaultdict(float)
    for one in found:
        key = (_cluster(one), one.proposal.edit.template, one.proposal.line)
        best[key] = max(best[key], weights[id(one)])
    clusters: dict[str, float] = defaultdict(float)
    for (cluster, _, _), weight in best.items():
        clusters[cluster] += weight
    return clusters


def _cluster(one: Plausible) -> str:
    """Candidates of the same behaviour are in one cluster; one whose behaviour is unknown is in its own."""
    return one.evidence.behaviour or f"alone {one.proposal.position}"


def _leaders_first(ordered: Sequence[Plausible]) -> list[Plausible]:
    """The best of every cluster before the second of any: five candidates should be five answers."""
    leaders = {_cluster(one): one for one in reversed(ordered)}
    first = [one for one in ordered if leaders[_cluster(one)] is one]
    return first + [one for one in ordered if leaders[_cluster(one)] is not one]


def _weight(one: Plausible, places: Counter[tuple[str, int]], best: Evidence) -> float:
    """The weight of all evidence for it, relative to the best repair of the same function."""
    proposal, evidence = one.proposal, one.evidence
    edit, source = proposal.edit, proposal.source
    weight = proposal.penalised
    old, new = source.text[edit.start : edit.end], edit.replacement
    weight /= 1 + 0.01 * abs(len(new) - len(old))
    if _special_cases(source, new, old):
        weight *= 0.5
    agreeing = places[source.path, proposal.line] - 1
    examples, held = evidence.examples, evidence.examples_held
    kept = _BROKEN + (1 - _BROKEN) * (held / examples) ** 2 if examples else 1.0
    expected = min(1.0, evidence.unchanged / (_CALM * best.unchanged) if best.unchanged else 1.0)
    calm = _CHANGED + (1 - _CHANGED) * expected**2
    sound = _CRASHES + (1 - _CRASHES) * (1 - max(evidence.new_crashes, _needless_crashes(one, best)))
    sound *= (1 - (1 - _RETYPED) * evidence.new_types) * _NAME_USE[one.name_use]
    covered = 1 + _COVERED * one.coverage
    return weight * kept * calm * sound * covered * (1 + 0.15 * min(agreeing, 4)) * _ALSO_FIXED**one.also_fixed


def _best(found: Sequence[Plausible]) -> dict[tuple[str, int], Evidence]:
    """For each function the fewest crashes and changes of any of its repairs: those cannot be avoided.

    Changes can be, where a repair of another function makes far fewer.
    """
    observed: dict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for one in found:
        observed[one.proposal.function] += [one.evidence] if one.evidence.behaviour else []
    elsewhere = _ELSEWHERE * max((one.unchanged for some in observed.values() for one in some), default=0.0)
    return {
        place: Evidence(
            unchanged=max([elsewhere, *(one.unchanged for one in some)]) if some else 1.0,
            crash_rate=min((one.crash_rate for one in some), default=0.0),
        )
        for place, some in observed.items()
    }


def _needless_crashes(one: Plausible, best: Evidence) -> float:
    """The share of crashes that another repair of the function avoids."""
    return max(0.0, one.evidence.crash_rate - best.crash_rate) if one.evidence.behaviour else 0.0


def _special_cases(source: Source, new: str, old: str) -> bool:
    """True if the edit brings in a literal that the file does not have: it may be a special case of the tests."""
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
