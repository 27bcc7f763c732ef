"""What the page of a run shows, folded from its events. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from markupsafe import Markup

from codepilot.core.artifacts import Gate, PolicyCheck, TestSummary
from codepilot.core.events import (
    BundleWritten,
    Event,
    ModelAnswered,
    ModelAsked,
    NetworkAllowed,
    NetworkRefused,
    ProofRecorded,
    State,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import FailureKind
from codepilot.core.run import Run
from codepilot.core.suspect import SuspectTest, suspect_of
from codepilot.core.task import TaskKind
from codepilot.store import Activity
from codepilot.telemetry import Clean, plan_parts
from codepilot.views.diff import MAX_ROWS, FileDiff, file_diffs
from codepilot.views.plan import plan_drawing
from codepilot.views.steps import Step, Tone, steps_of
from codepilot.views.text import counted, duration

MAX_TESTS = 200
"""Tests of a list. The rest is counted."""

MAX_TITLE = 160

_MUTANTS = re.compile(r"\b(\d{1,4}) of (\d{1,4}) mutants")


@dataclass(frozen=True)
class Outcome:
    """How the run stands: a word, what it rests on, and what to do next."""

    tone: Tone
    word: str
    reason: str
    advice: str = ""


@dataclass(frozen=True)
class TestChange:
    """A test that failed before the change or fails after it."""

    __test__ = False

    test: str
    before: str
    after: str
    tone: Tone
    named: bool


@dataclass(frozen=True)
class ModelCost:
    model: str
    calls: int
    usage: Usage


@dataclass
class RunPage:
    run: Run
    outcome: Outcome
    files: list[FileDiff]
    steps: list[Step]
    before: TestSummary | None
    after: TestSummary | None
    suite: str
    tests: list[TestChange]
    more_tests: int
    gates: tuple[Gate, ...]
    proof: tuple[PolicyCheck, ...]
    review: tuple[PolicyCheck, ...]
    mutants: tuple[int, int] | None
    models: list[ModelCost]
    facts: list[tuple[str, str]]
    network: list[str]
    command: tuple[str, ...]
    digest: str
    made: str
    """When the run was last changed, RFC 3339 to the minute."""
    suspect: SuspectTest | None = None
    """The evidence that the named test itself may be wrong."""
    warnings: list[str] = field(default_factory=list)
    plan: Markup = field(default_factory=Markup)
    """The plan as a drawing; empty if there is nothing to draw."""
    answer: str = ""
    """What a question was answered with."""

    @property
    def title(self) -> str:
        """The first line of the goal."""
        line = self.run.task.goal.natural.strip().partition("\n")[0].strip()
        return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1].rstrip() + "…"

    @property
    def by_agent(self) -> bool:
        """False if the change existed before the run."""
        return self.run.task.kind is not TaskKind.PROVE

    @property
    def added(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed for file in self.files)


def run_page(
    run: Run,
    events: Sequence[Event],
    clean: Clean,
    rows: int = MAX_ROWS,
    answer: str = "",
    activity: Activity | None = None,
    *,
    links: bool = False,
) -> RunPage:
    """The page of a run as it is now; `clean` removes secrets from prose, `rows` bounds the change that is shown.

    `links` may lead to other runs.
    """
    proof = run.proof
    after = proof.after if proof and proof.ok else run.test_result.summary if run.test_result else None
    before = run.baseline.before if run.baseline else None
    tests = list(_test_changes(run, before, after))
    diff = run.proposal.patch.diff if run.proposal and not run.proposal.refused_by else ""
    written = [event.data for event in events if isinstance(event.data, BundleWritten)]
    result = run.test_result
    return RunPage(
        run=run,
        outcome=outcome_of(run, activity),
        files=file_diffs(diff, rows=rows),
        steps=steps_of(run, events, clean),
        before=before,
        after=after,
        suite=proof.suite if proof and proof.ok else result.suite if result else "none",
        tests=tests[:MAX_TESTS],
        more_tests=max(0, len(tests) - MAX_TESTS),
        gates=result.gates if result else (),
        proof=proof.checks if proof else (),
        review=run.review.policy_checks if run.review else (),
        mutants=_mutants(proof),
        models=_models(events),
        facts=_facts(run),
        network=_network(events),
        command=result.cmd if result else (),
        digest=written[-1].sha256 if written else "",
        made=_when(run.updated_at),
        suspect=suspect_of(run.failure),
        warnings=list(_warnings(run)),
        answer=answer,
        plan=plan_drawing(plan_parts(run.plan, run.children), clean, links=links),
    )


# The outcome ----------------------------------------------------------------------------------------


def outcome_of(run: Run, activity: Activity | None = None) -> Outcome:
    """How a run stands; `activity` says whether a worker has it."""
    failure = run.failure
    match run.state:
        case State.DONE if run.verdict == "confirmed":
            return Outcome("good", "Confirmed", run.proof.reason if run.proof else "")
        case State.DONE if run.verdict == "plausible":
            reason = run.proof.reason if run.proof else ""
            return Outcome("warn", "Plausible", reason, "Read the change before you trust it.")
        case State.DONE if run.task.attempt is not None:
            marker = run.task.attempt.marker
            return Outcome("soft", "Completed", f"The program printed {marker}. This run did not judge its change.")
        case State.DONE:
            return Outcome("soft", "Done", "No change was made.")
        case State.PAUSED:
            return Outcome("wait", "Paused", "", f"Continue with `codepilot resume {run.run_id}`.")
        case State.BLOCKED:
            word, tone = "Waits for you", "wait"
        case State.ABORTED:
            word, tone = "Aborted", "bad"
        case State.FAILED if failure is not None and failure.kind is FailureKind.TEST_SUSPECT:
            return Outcome("warn", "The test may be wrong", failure.message, failure.advice)
        case State.FAILED:
            word, tone = "Failed", "bad"
        case _ if activity is Activity.QUEUED:
            return Outcome("soft", "Queued", "")
        case _ if activity is Activity.INTERRUPTED:
            return Outcome("bad", "Interrupted", "Its worker is gone, and no other one is running.")
        case _:
            return Outcome("live", "Working", f"The run is in the state {run.state}.")
    return Outcome("wait" if tone == "wait" else "bad", word, _message_of(failure), failure.advice if failure else "")


def _message_of(failure: object) -> str:
    return str(getattr(failure, "message", ""))


def _mutants(proof: ProofRecorded | None) -> tuple[int, int] | None:
    """How many mutants the tests noticed, of how many, as the proof's evidence says."""
    for text in (*(check.evidence for check in proof.checks), proof.reason) if proof else ():
        if (found := _MUTANTS.search(text)) is not None and 0 <= int(found[1]) <= int(found[2]) <= 1_000:
            return int(found[1]), int(found[2])
    return None


# Tests ----------------------------------------------------------------------------------------------


def _test_changes(run: Run, before: TestSummary | None, after: TestSummary | None) -> Iterator[TestChange]:
    """Every test that failed before or fails after: the named ones first, then the broken ones."""
    red_before = dict.fromkeys((*before.failed, *before.errors)) if before else {}
    red_after = dict.fromkeys((*after.failed, *after.errors)) if after else {}
    broken = dict.fromkeys(run.test_result.regressions if run.test_result else ())
    named = set(run.baseline.targets if run.baseline else run.task.tests)
    flaky = set(after.flaky) if after else set()
    every = dict.fromkeys((*red_before, *broken, *red_after))
    for test in sorted(every, key=lambda test: (test not in named, test not in broken)):
        was = "failed" if test in red_before else "passed"
        if after is None:
            yield TestChange(test, was, "not run", "soft", test in named)
        elif test in flaky:
            yield TestChange(test, was, "flaky", "warn", test in named)
        elif test in broken or (test in red_after and test in named):
            yield TestChange(test, was, "fails", "bad", test in named)
        elif test in red_after:
            yield TestChange(test, was, "fails", "warn", test in named)
        else:
            yield TestChange(test, was, "passes", "good", test in named)


# Cost -----------------------------------------------------------------------------------------------


def _models(events: Sequence[Event]) -> list[ModelCost]:
    """What each model was asked and used. A call without a recorded reply counts with its estimate."""
    calls: dict[str, int] = {}
    used: dict[str, Usage] = {}
    open_calls: dict[str | None, ModelAsked] = {}

    def charge(model: str, usage: Usage) -> None:
        calls[model] = calls.get(model, 0) + 1
        before = used.get(model, Usage())
        used[model] = Usage(**{name: getattr(before, name) + getattr(usage, name) for name in Usage.model_fields})

    for event in events:
        match event.data:
            case ModelAsked(call=call) as asked if call:
                open_calls[call] = asked
            case ModelAnswered(call=call, usage=usage) if call in open_calls:
                charge(open_calls.pop(call).model, usage)
            case ModelAsked() as asked:
                if (lost := open_calls.pop(event.step_id, None)) is not None:
                    charge(lost.model, lost.estimate)
                open_calls[event.step_id] = asked
            case TurnStarted(usage=usage) if event.step_id in open_calls:
                charge(open_calls.pop(event.step_id).model, usage)
    for lost in open_calls.values():
        charge(lost.model, lost.estimate)
    return [ModelCost(model, calls[model], usage) for model, usage in used.items()]


# Facts ----------------------------------------------------------------------------------------------


def _facts(run: Run) -> list[tuple[str, str]]:
    """Names and values about where the run worked, without those that are unknown."""
    level = run.sandbox_level or ""
    base = run.base.described if run.base else ""
    model = run.task.model or "none"
    if run.task.fallback_model:
        model += f", else {run.task.fallback_model}"
    facts = [
        ("Repository", run.task.repo),
        ("Base", base),
        ("Kind", str(run.task.kind)),
        *(() if run.task.kind is TaskKind.PROVE else (("Agent", run.task.agent), ("Model", model))),
        ("Sandbox", "none: the project's code ran unconfined" if level == "none" else level),
        ("Executor", run.executor or ("this machine" if level else "")),
        ("Build", run.repo_map.build_system if run.repo_map else ""),
        ("Started", _when(run.created_at)),
        ("Worked", duration(run.spent.wall_us / 1e6)),
        ("Branch", f"{run.committed.branch} at {run.committed.commit[:12]}" if run.committed else ""),
    ]
    return [(name, value) for name, value in facts if value]


def _network(events: Sequence[Event]) -> list[str]:
    """The hosts that were reachable, and those that were refused."""
    lines: dict[str, None] = {}
    for event in events:
        match event.data:
            case NetworkAllowed(scope=scope, hosts=hosts, by=by):
                lines.update(dict.fromkeys(f"{host} allowed by {by} ({scope})" for host in hosts))
            case NetworkRefused(host=host):
                lines[f"{host} refused"] = None
    return list(lines)[:20]


def _warnings(run: Run) -> Iterator[str]:
    if run.sandbox_level == "none":
        yield "The project's code ran without a sandbox."
    if run.narrowed:
        yield "The suite is too slow for the budget: only the named tests and those that ended in time were run."
    if run.test_result and run.test_result.new_warnings:
        yield f"The change introduced {counted(len(run.test_result.new_warnings), 'compiler warning')}."
    if run.violations:
        yield f"The agent tried {counted(run.violations, 'forbidden action')}; they were refused."


def _when(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M UTC") if us else ""
