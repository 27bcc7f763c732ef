"""A failing test that may itself be wrong, with the evidence against it."""

from __future__ import annotations

from codepilot.core.contract import Contract
from codepilot.core.failures import Failure, FailureKind

EVIDENCE = "test_suspect"
"""The failure detail that holds the evidence."""
SHOWN = 5


class RefutedRepair(Contract):
    """A repair that satisfies the suspect test and breaks something else."""

    change: str
    """The repair in one line."""
    breaks: tuple[str, ...] = ()
    """Tests that pass without the repair, and documented examples that hold without it."""
    diff: str = ""


class SuspectTest(Contract):
    """Why a named test may be wrong."""

    test: str
    reason: str
    """One sentence, without the name of the test."""
    repairs: tuple[RefutedRepair, ...] = ()

    def lines(self) -> list[str]:
        """The evidence for a screen: a line for each repair."""
        shown = [f"{one.change} breaks {_listed(one.breaks)}" for one in self.repairs[:SHOWN] if one.breaks]
        more = len(self.repairs) - SHOWN
        return [*shown, f"and {more} more"] if more > 0 else shown


def suspect_failure(found: SuspectTest) -> Failure:
    """The failure that ends a run whose named test may be wrong."""
    message = f"This test may be wrong: {found.test}: {found.reason.strip().removesuffix('.')}."
    return Failure(kind=FailureKind.TEST_SUSPECT, message=message, details={EVIDENCE: found.model_dump(mode="json")})


def suspect_of(failure: Failure | None) -> SuspectTest | None:
    """The evidence of a `test_suspect` failure; None for any other failure."""
    if failure is None or failure.kind is not FailureKind.TEST_SUSPECT or EVIDENCE not in failure.details:
        return None
    return SuspectTest.model_validate(failure.details[EVIDENCE])


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
