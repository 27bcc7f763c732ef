"""The embedded agent: no model, no key, no network. It searches for a repair and writes the best one it found."""

from __future__ import annotations

import base64
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from codepilot.agents.protocol import StepContext, write_file
from codepilot.agents.registry import AgentSpec
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.contract import JsonObject
from codepilot.core.events import (
    Event,
    EventType,
    SearchProgressed,
    State,
    TurnFinished,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.spending import share_spent, total
from codepilot.core.suspect import suspect_failure
from codepilot.core.task import Capability
from codepilot.core.text import counted, decoded
from codepilot.repair import Candidate, Progress, SearchRequest, SearchResult, obstacle, search
from codepilot.skills import PatchError, patch_tree

ALTERNATIVES = 5
SHARE_OF_TIME = 0.85
SUITES_OF_PROOF = 6
"""Judging and proving a repair takes about as long as this many runs of the suite."""
RECORD_EVERY_SEC = 1.0
MAX_MESSAGE = 200
"""How much of the failing test's message an error shows."""

Search = Callable[[SearchRequest], SearchResult]


class Chosen(NamedTuple):
    """The winner, also as the action that will be recorded, and how many candidates were tried."""

    action: JsonObject
    tried: int
    best: Candidate


class RepairAgent:
    """Implements by search alone; it plans, reflects and reviews nothing, and says so by lacking those roles."""

    name = "repair"
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_AND_RUN_TESTS
    languages: frozenset[str] | None = frozenset({"python"})

    def __init__(self, workers: int = 2, search: Search = search, seconds: float | None = None) -> None:
        self._workers = workers
        self._search = search
        self._seconds = seconds

    def perform(self, role: State, context: StepContext) -> PatchCandidate:
        action = _chosen_before(context.history)
        if action is None:
            action = self.choose(context).action
        return self.carry_out(action, context)

    def carry_out(self, action: JsonObject, context: StepContext) -> PatchCandidate:
        """Write the winner, as one turn."""
        if _chosen_before(context.history) is None:
            context.append(EventType.TURN_STARTED, TurnStarted(turn=1, action=action, usage=Usage(turns=1)))
        path, patched = str(action["path"]), base64.b64decode(str(action["patched"]))
        write_file(context, path, patched)
        if not any(isinstance(event.data, TurnFinished) for event in context.history):
            observation: JsonObject = {"status": "ok", "path": path, "bytes": len(patched)}
            context.append(EventType.TURN_FINISHED, TurnFinished(turn=1, observation=observation))
        return PatchCandidate.model_validate(action["candidate"])

    def choose(self, context: StepContext) -> Chosen:
        """Search, and put the winner into the action that will be recorded."""
        blocked = obstacle(context.executor, context.workspace, context.project, context.baseline, context.targets)
        if blocked is not None:
            raise CodePilotError.of(blocked)
        attempted = [patch.diff for patch in context.run.attempted]
        result = self._search(
            SearchRequest(
                executor=context.executor,
                workspace=context.workspace,
                project=context.project,
                targets=context.targets,
                baseline=context.baseline,
                ages=context.ages,
                seconds=max(1.0, min(self._seconds or math.inf, _seconds_to_search(context))),
                on_progress=_Reporter(context),
                refused=tuple(content for diff in attempted for content in _contents(context, diff)),
                state=_last_state(context),
                workers=self._workers,
            )
        )
        known = {_changed_lines(part) for diff in attempted for part in _by_file(diff)}
        offered = [found for found in result.candidates if _changed_lines(_recorded(found)) not in known]
        if not offered:
            if result.suspect is not None:
                raise CodePilotError.of(suspect_failure(result.suspect))
            out_of_time = not result.exhausted and not result.candidates
            raise _out_of_time(context, result) if out_of_time else _nothing_found(context, result)
        best, others = offered[0], offered[1 : 1 + ALTERNATIVES]
        candidate = PatchCandidate(
            diff="",
            touched_files=(best.path,),
            rationale=best.rationale,
            confidence=min(1.0, max(0.0, best.confidence)),
            alternatives=tuple(other.diff for other in others),
            searched=True,
        )
        action: JsonObject = {
            "tool": "write_file",
            "path": best.path,
            "template": best.template,
            "features": dict(best.features),
            "patched": base64.b64encode(best.patched).decode(),
            "diff": best.diff,
            "candidate": candidate.model_dump(mode="json"),
        }
        return Chosen(action, result.tried, best)


def _seconds_to_search(context: StepContext) -> float:
    """The step's time, less what the proof needs of the run's: it runs the suite several times."""
    left = context.seconds_left()
    of_run = total(context.run, "wall_sec") - context.run.spent.wall_us / 1e6
    proof = SUITES_OF_PROOF * context.baseline.duration_sec
    return min(left * SHARE_OF_TIME, max(left / 2, of_run - proof))


class _Reporter:
    """Passes the search's progress on: to the log about once a second, and checks whether the step must stop."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._recorded_at = time.monotonic()
        self._plausible = 0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        due = now - self._recorded_at >= RECORD_EVERY_SEC or progress.phase == "ended"
        if due or progress.plausible > self._plausible:
            self._recorded_at, self._plausible = now, progress.plausible
            seen = SearchProgressed(
                position=progress.position,
                tried=progress.tried,
                plausible=progress.plausible,
                per_sec=progress.per_sec,
                left_sec=progress.left_sec,
                best=progress.best,
                state=progress.state,
            )
            self._context.append(EventType.SEARCH_PROGRESSED, seen)
        self._context.raise_if_stopped()


def _chosen_before(history: Sequence[Event]) -> JsonObject | None:
    """The winner that an interrupted worker had already recorded."""
    return next((event.data.action for event in reversed(history) if isinstance(event.data, TurnStarted)), None)


def _last_state(context: StepContext) -> JsonObject:
    """The last recorded state of this step's search, or of an earlier step's."""
    for event in (*reversed(context.history), *reversed(context.earlier)):
        if isinstance(event.data, SearchProgressed):
            return event.data.state
    return {}


def _contents(context: StepContext, diff: str) -> list[bytes]:
    """The contents of the files of an earlier proposal; Latin-1 stands for bytes here."""

    def read(path: str) -> str | None:
        try:
            return context.executor.read_file(context.workspace, path).decode("latin-1")
        except CodePilotError as error:
            if error.kind is FailureKind.PATH_NOT_FOUND:
                return None
            raise

    try:
        changes = patch_tree(diff.encode("utf-8", "surrogateescape").decode("latin-1"), read)
    except PatchError:
        return []  # its changed lines identify it instead
    return [text.encode("latin-1") for text in changes.files.values() if text is not None]


def _by_file(diff: str) -> list[str]:
    """The parts of a diff: an earlier proposal may have brought a test with the repair."""
    return re.split(r"(?m)^(?=--- (?:a/|/dev/null))", diff)[1:]


def _recorded(candidate: Candidate) -> str:
    """The candidate's diff with the escapes of a proposal on record."""
    encoding = decoded(candidate.original + b"\n" + candidate.patched)[1]
    return candidate.diff.encode(encoding).decode("utf-8", "backslashreplace")


def _changed_lines(diff: str) -> tuple[str, ...]:
    """The changed lines of a diff, without their position."""
    body = [line for line in diff.split("\n") if line[:1] in ("+", "-")]
    headers = ("--- a/", "+++ b/", "--- /dev/null", "+++ /dev/null")
    return tuple(line.rstrip("\r") for line in body if not line.startswith(headers))


def _out_of_time(context: StepContext, result: SearchResult) -> CodePilotError:
    done = f"No repair found in the {result.seconds:.0f} s that the search had: {result.tried} candidates tried"
    advice = f"Run `codepilot resume` to grant another budget: the search goes on after {result.tried} candidates."
    return CodePilotError.of(share_spent(context.run, context.seconds_left(), done, advice))


def _nothing_found(context: StepContext, result: SearchResult) -> CodePilotError:
    refused = len(context.run.attempted)
    why = result.reason or ("nothing was left to try" if result.exhausted else "the time was used up")
    before = (
        f" {counted(refused, 'earlier repair')} {'was' if refused == 1 else 'were'} turned down." if refused else ""
    )
    near = result.rejected[0] if result.rejected else None
    wrong = f" {near.change} satisfies the test, but not {near.breaks[0]}." if near else ""
    return CodePilotError(
        FailureKind.STUCK,
        f"No repair found: {counted(result.tried, 'candidate')} tried in {result.seconds:.0f} s; {why}.{wrong}{before}"
        f"{_how_it_fails(context)}",
        "Name another test with --test, try every failing one with `codepilot fix --all`, or use an agent with a model:"
        " `codepilot fix --agent codeact --model PROVIDER:NAME`.",
        tried=result.tried,
        exhausted=result.exhausted,
    )


def _how_it_fails(context: StepContext) -> str:
    """What the first of the failing tests reports: it may show that the cause is none that an edit can mend."""
    baseline = context.baseline
    names = (one for target in context.targets for one in (target, *baseline.resolved.get(target, ())))
    case = next((baseline.cases[name] for name in names if name in baseline.cases), None)
    if case is None or not case.error_type:
        return ""
    text = next(iter(case.message.strip().splitlines()), "").strip().rstrip(".")
    return f" The test fails with {case.error_type}{': ' if text else ''}{text[:MAX_MESSAGE]}."


SPEC = AgentSpec(
    name=RepairAgent.name,
    make=lambda parts: RepairAgent(),
    roles=RepairAgent.roles,
    languages=RepairAgent.languages,
    capability=RepairAgent.needs,
    features=frozenset({"pause_resume"}),
)
