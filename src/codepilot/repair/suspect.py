"""Decides whether the failing test itself may be wrong, and collects the evidence.

A test is suspect when nothing that satisfies it is a repair: each change breaks a passing test or a documented example,
or is a special case of the test's own input. Changes that break passing tests count only if the failing test stands
alone: no other test of the same code fails, and it takes no branch of its own through the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codepilot.core.suspect import RefutedRepair, SuspectTest
from codepilot.repair.ledger import Ledger
from codepilot.repair.localise import TestTrace

LEAST_REJECTED = 2
LEAST_SIBLINGS = 2
_SHOWN = 8


def suspicious(ledger: Ledger, targets: Sequence[str], traces: Sequence[TestTrace]) -> bool:
    """True if the evidence so far is against the test rather than the code."""
    if ledger.offered:
        return False
    if any(one.against_test for one in ledger.found):
        return True
    return len(ledger.rejected) >= LEAST_REJECTED and _stands_alone(targets, traces)


def refuted(ledger: Ledger) -> tuple[RefutedRepair, ...]:
    """Each rejected change with what it breaks."""
    objected = [(one.explanation, one.objection.text) for one in ledger.found if one.objection]
    every = [*objected, *ledger.rejected.items()]
    return tuple(RefutedRepair(change=change, breaks=(broken,)) for change, broken in every[:_SHOWN])


def suspect_of(test: str, repairs: tuple[RefutedRepair, ...], failure: str, siblings: Sequence[str]) -> SuspectTest:
    """The evidence against a test: how it fails, and what passing tests say of the same function."""
    found = "every change that satisfies it breaks a passing test, a documented example or the pattern of the others"
    now = f"; it fails with `{failure}`" if failure else ""
    while_others_hold = f", while {', '.join(siblings)} hold" if siblings else ""
    return SuspectTest(test=test, reason=f"{found}{now}{while_others_hold}", repairs=repairs)


def _stands_alone(targets: Sequence[str], traces: Sequence[TestTrace]) -> bool:
    """True if passing tests run all that the failing one runs, and no other failing test runs the same code."""
    failing = [trace for trace in traces if trace.test in targets]
    if any(trace.exception not in ("AssertionError", "") for trace in failing):
        return False
    passing = [trace for trace in traces if trace.passed]
    own = _parts(failing) - _parts(passing)
    lines = _lines(failing)
    near = [trace for trace in traces if trace.test not in targets and _lines([trace]) & lines]
    holding = [trace for trace in near if trace.passed]
    return not own and len(holding) >= LEAST_SIBLINGS and len(holding) == len(near)


def _parts(traces: Iterable[TestTrace]) -> set[tuple[str, tuple[int, int]]]:
    return {(path, branch) for trace in traces for path, branches in trace.branches.items() for branch in branches}


def _lines(traces: Iterable[TestTrace]) -> set[tuple[str, int]]:
    return {(path, line) for trace in traces for path, lines in trace.lines.items() for line in lines}
