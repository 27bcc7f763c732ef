"""The test that goes with a repair, so that the mistake is noticed if it comes back.

It is written only where the repair would count as confirmed: a test for a guess would make the guess a rule. It is part
of the change before that is judged, so gates, review and proof see it; and it is tried here first, on the base and on
the repair, because a test that does not hold must not cost the repair. Where none can be written, one line says why.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from dataclasses import replace

from codepilot.agents.protocol import StepContext, write_file
from codepilot.core.areas import outside
from codepilot.core.artifacts import PatchCandidate, RegressionTest
from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, Origin
from codepilot.project import SuiteRun, run_tests
from codepilot.repair import (
    Candidate,
    Unwritable,
    WitnessRequest,
    Written,
    find_witnesses,
    mutation_score,
    nearby_tests,
    write_test,
)
from codepilot.verify import ENVIRONMENTAL, Worth, fails, is_test, passes, selects, worth

LEAST_SEC = 40.0
"""Less time than this is kept for the gates and the proof."""
WITNESS_SEC = 20.0
STRENGTH_SEC = 20.0
TRIES = 2
"""How many different tests are tried, at most."""
MAX_UNMENDED = 200
OTHER_SEED = "20011"
"""A hash seed that no check of an example had."""

_log = logging.getLogger(__name__)


class _NoTest(Exception):
    """There will be none; the message says why."""


def accompanied(
    action: JsonObject, best: Candidate, others: Sequence[Candidate], desk: StepContext, *, confirmed: bool = False
) -> JsonObject:
    """The action with the test that goes with its repair, or with the reason why none does.

    `confirmed` says that the repair was appraised already.
    """
    if not desk.run.task.policy.regression_test:
        return action
    content = b""
    try:
        test, content = _Companion(best, others, desk).made(confirmed)
    except _NoTest as none:
        test = RegressionTest(reason=str(none))
    except CodePilotError as error:
        if error.failure.handling.origin not in (Origin.INPUT, Origin.WORK):
            raise
        test = RegressionTest(reason=error.failure.message)
    except Exception as error:  # noqa: BLE001 - a defect must not cost the repair; a stop is told again below
        _log.exception("writing a regression test failed", extra={"run_id": desk.run.run_id})
        test = RegressionTest(reason=f"writing one failed: {type(error).__name__}")
    desk.raise_if_stopped()
    candidate = PatchCandidate.model_validate(action["candidate"]).model_copy(update={"regression_test": test})
    added: JsonObject = {"test": {"path": test.path, "content": base64.b64encode(content).decode()}} if content else {}
    return {**action, "candidate": candidate.model_dump(mode="json"), **added}


def appraise(best: Candidate, desk: StepContext) -> Worth:
    """What the proof will say of the repair, as far as that can be told before it."""
    targets = _targets(desk)
    strength = mutation_score(
        desk.executor,
        desk.workspace,
        desk.project,
        (best.path,),
        targets,
        seconds=min(STRENGTH_SEC, desk.seconds_left() / 4),
        patched={best.path: best.patched},
        originals={best.path: best.original},
    )
    suite = desk.run.baseline.suite if desk.run.baseline else "none"
    return worth(strength, suite, targets, (), best.confidence)


def _targets(desk: StepContext) -> tuple[str, ...]:
    return desk.run.baseline.targets if desk.run.baseline else desk.baseline.red


class _Companion:
    def __init__(self, best: Candidate, others: Sequence[Candidate], desk: StepContext) -> None:
        self._best, self._desk = best, desk
        self._others = tuple(other.patched for other in others if other.path == best.path)

    def made(self, confirmed: bool) -> tuple[RegressionTest, bytes]:
        """The test and its file with it in; what is cheap to find out is asked first."""
        self._expect_time()
        tests, targets = nearby_tests(_targets(self._desk), self._desk.baseline, self._best.path)
        found = find_witnesses(
            WitnessRequest(
                executor=self._desk.executor,
                workspace=self._desk.workspace,
                project=self._desk.project,
                tests=tests,
                targets=targets,
                path=self._best.path,
                original=self._best.original,
                patched=self._best.patched,
                others=self._others,
                seconds=min(WITNESS_SEC, self._desk.seconds_left() / 4),
                checkpoint=self._desk.raise_if_stopped,
            )
        )
        place, subject = found.place, found.subject
        if not found.examples or place is None or subject is None:
            raise _NoTest(found.reason)
        if not is_test(place.path) or outside(self._desk.run.plan, (place.path,)):
            raise _NoTest(f"{place.path} is no file that tests may be added to")
        self._desk.raise_if_stopped()
        if not confirmed:
            self._expect_confirmed()
        before, why = self._desk.executor.read_file(self._desk.workspace, place.path), ""
        for number in range(min(TRIES, len(found.examples))):
            try:
                written = write_test(before, place, subject, found.examples[number:], found.things or {})
            except Unwritable as error:
                why = why or str(error)
                continue
            test = place.sibling(written.name)
            why = self._try(place.path, written, test)
            if not why:
                return RegressionTest(test=test, path=place.path), written.content
        raise _NoTest(why)

    def _expect_time(self) -> None:
        if self._desk.seconds_left() < LEAST_SEC:
            raise _NoTest("no time was left to write one")

    def _expect_confirmed(self) -> None:
        value = appraise(self._best, self._desk)
        if value.verdict != "confirmed":
            raise _NoTest(f"the repair is only plausible, and a test would make a rule of it ({value.reason})")
        self._desk.raise_if_stopped()
        self._expect_time()

    # --- trying it --------------------------------------------------------------------------------------------

    def _try(self, path: str, written: Written, test: str) -> str:
        """Why the test does not hold, if it does not: it must fail on the base, and pass with the repair."""
        desk = self._desk
        snapshot = desk.executor.snapshot(desk.workspace).snapshot
        try:
            write_file(desk, path, written.content)
            if not fails(self._run((test,)), test):
                return "the test that was written does not fail without the repair"
            write_file(desk, self._best.path, self._best.patched)
            unmended = self._unmended()
            after = self._run((test, *unmended), OTHER_SEED)
        finally:
            desk.executor.restore(desk.workspace, snapshot)
        desk.raise_if_stopped()
        if not passes(after, test):
            return "the test that was written does not pass with the repair"
        if still := [other for other in unmended if not passes(after, other)]:
            raise _NoTest(f"{still[0]} still fails: the cause may remain")
        return ""

    def _unmended(self) -> tuple[str, ...]:
        """Other tests that fail by what the code does: while one is left, nothing counts as confirmed."""
        baseline, targets = self._desk.baseline, _targets(self._desk)
        others = [test for test in baseline.red if not any(selects(target, test) for target in targets)]
        found = [one for one in others if baseline.cases[one].error_type.rpartition(".")[2] not in ENVIRONMENTAL]
        if len(found) > MAX_UNMENDED:
            raise _NoTest(f"{len(found)} other tests fail: the cause may remain")
        return tuple(found)

    def _run(self, tests: tuple[str, ...], seed: str = "0") -> SuiteRun:
        desk = self._desk
        project = replace(desk.project, env={**desk.project.env, "PYTHONHASHSEED": seed})
        seconds = max(5.0, min(desk.run.task.budget.command_sec, desk.seconds_left() / 4))
        return run_tests(desk.executor, desk.workspace, project, tests, seconds)
