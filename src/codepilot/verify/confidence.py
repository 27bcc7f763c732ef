"""The verdict of a proof that holds, its reason, and a confidence that is computed from evidence.

The agent's own claim has no part in either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from codepilot.core.artifacts import Concern
from codepilot.core.events import Verdict
from codepilot.core.text import counted
from codepilot.verify.verdict import SuiteKind

if TYPE_CHECKING:
    from codepilot.repair import MutationScore

STRONG_SCORE = 0.75
"""The share of mutants of the changed code that the tests must notice for `confirmed`."""
OWN_TESTS_SCORE = 0.4
"""The share of variations of the changed lines that the tests of a change which brings its own must notice. Such tests
were written for this change; the code around it is not theirs to pin down.
"""
STRONG_MUTANTS = 5
"""The number of mutants below which the score means nothing."""
FEW_MUTANTS = 3
"""The number that is enough if the changed lines allow no more and the tests notice all of them."""
AGREEMENT_FLOOR = 0.7
"""The estimate of the search below which no repair of it is confirmed."""
PLAUSIBLE_MOST = 0.69
"""The highest confidence of a plausible change; a confirmed one has at least `CONFIRMED_LEAST`."""
CONFIRMED_LEAST = 0.7
MOST = 0.98
DOUBTED = 0.3
"""The generality of a change with a concern."""
UNTESTED = 0.1
"""The least value of an ingredient that was not measured."""


class Grade(NamedTuple):
    """The verdict of a proof that holds, the reason for it, and the confidence with its ingredients."""

    verdict: Verdict
    reason: str
    confidence: float = 0.0
    parts: dict[str, float] = {}


def grade(
    strength: MutationScore | None,
    suite: SuiteKind,
    targets: Sequence[str],
    flaky: Sequence[str],
    agreement: float | None = None,
    concerns: Sequence[Concern] = (),
    *,
    brings_tests: bool = False,
    python: bool = True,
) -> Grade:
    """`confirmed` if the change is general and the tests around it are strong; otherwise `plausible`.

    `agreement` is the search's estimate that its repair is the right one of those that pass; None for other agents.
    `brings_tests` is true if somebody's change has tests of its own that fail without it and pass with it. Only the
    code of `python` projects is varied.
    """
    parts = ingredients(strength, agreement, concerns)
    score = math.prod(parts.values()) ** (1 / len(parts))
    doubt = _unproved(suite, targets, flaky, concerns) or _few(strength, python=python)
    if not doubt and strength is not None:
        doubt = _few_near(strength) if brings_tests else _weakness(strength, agreement)
    if doubt or strength is None:
        return Grade("plausible", doubt, round(min(PLAUSIBLE_MOST, score), 2), parts)
    return Grade("confirmed", _noticed(strength), round(min(MOST, max(CONFIRMED_LEAST, score)), 2), parts)


def _unproved(suite: SuiteKind, targets: Sequence[str], flaky: Sequence[str], concerns: Sequence[Concern]) -> str:
    """What speaks against `confirmed`, however strong the tests are; empty if nothing does."""
    if suite != "full":
        return "the suite could not be run to its end" if suite == "partial" else "no suite was run"
    if not targets:
        return "no test fails before the change and passes after it"
    if set(targets) & set(flaky):
        return "a test that the change is judged by is flaky"
    if concerns:
        more = f" (and {len(concerns) - 1} more)" if len(concerns) > 1 else ""
        return f"the change may answer its tests instead of the task: {concerns[0]}{more}"
    return ""


def _few(strength: MutationScore | None, *, python: bool) -> str:
    """What speaks against a measurement of so few mutants."""
    if not python:
        return "how much the tests around the change notice is measured for Python code only"
    every = strength is not None and strength.mutants == strength.near == strength.near_killed >= FEW_MUTANTS
    if strength is None or (strength.mutants < STRONG_MUTANTS and not every):
        count = 0 if strength is None else strength.mutants
        return f"too few mutants of the changed code could be made and run in time to tell ({count})"
    if left := strength.still_failing:
        still = f"of the changed code still {'fails' if len(left) == 1 else 'fail'}"
        return f"{counted(len(left), 'other test')} {still}, {left[0]} first: the cause may remain"
    return ""


def _weakness(strength: MutationScore, agreement: float | None) -> str:
    """The first reason to call the tests around the change weak."""
    if strength.score < STRONG_SCORE:
        return f"weak tests: {_noticed(strength)}"
    if not strength.near:
        return "nothing of the changed lines could be varied, so the tests may not notice them"
    if strength.near_killed < STRONG_SCORE * strength.near:
        return f"weak tests around the change: {_noticed_near(strength)}"
    if agreement is not None and agreement < AGREEMENT_FLOOR:
        return f"other repairs that pass the same tests may be right instead ({agreement:.2f})"
    return ""


def _few_near(strength: MutationScore) -> str:
    """The reason to call the tests that a change brings weak; none where no line can be varied."""
    if strength.near_killed < OWN_TESTS_SCORE * strength.near:
        return f"weak tests around the change: {_noticed_near(strength)}"
    return ""


def _noticed_near(strength: MutationScore) -> str:
    return f"they notice {strength.near_killed} of {strength.near} variations of the changed lines"


def _noticed(strength: MutationScore) -> str:
    return f"the tests notice {strength.killed} of {strength.mutants} mutants of the changed code"


def ingredients(
    strength: MutationScore | None, agreement: float | None, concerns: Sequence[Concern]
) -> dict[str, float]:
    """The shares, each from 0 to 1, whose geometric mean is the confidence."""
    parts = {
        "mutants_noticed": _share(strength.killed, strength.mutants) if strength else UNTESTED,
        "changed_lines_noticed": _share(strength.near_killed, strength.near) if strength else UNTESTED,
        "coverage": 1 - 0.5 ** (strength.covering + 1) if strength else UNTESTED,
        "generality": DOUBTED if concerns else 1.0,
    }
    if agreement is not None:
        parts["agreement"] = agreement
    return {name: round(max(UNTESTED, value), 3) for name, value in parts.items()}


def _share(part: int, whole: int) -> float:
    """The share with one imagined success and one failure, so that a small sample counts less."""
    return (part + 1) / (whole + 2)
