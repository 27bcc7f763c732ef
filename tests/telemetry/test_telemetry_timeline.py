"""The timeline and the transcript of a run."""

from __future__ import annotations

import json

from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate, Review, TestResult
from codepilot.core.contract import Contract
from codepilot.core.decide import Outcome, Paused, Succeeded, decide, decide_cancel, decide_resume, start
from codepilot.core.events import (
    Event,
    EventDraft,
    EventType,
    PatchProposed,
    State,
    StepStarted,
    TaskSpecRecorded,
    TurnStarted,
    Usage,
)
from codepilot.core.run import Run, replay
from codepilot.core.task import Goal, TaskSpec
from codepilot.telemetry import Redactor, timeline, transcript

SECOND = 1_000_000


class Recorded:
    """A run recorded event by event, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND
        self.events: list[Event] = []
        task = TaskSpec(task_id="t-1", goal=Goal(natural="Fix NPE in strip()"), repo="/r")
        self.add(start(task, "r-1"))

    @property
    def run(self) -> Run:
        return replay(self.events)

    def add(self, drafts: list[EventDraft]) -> None:
        for draft in drafts:
            seq = len(self.events) + 1
            self.events.append(Event(**dict(draft), event_id=f"e-{seq}", seq=seq, run_id="r-1", at=self.now))

    def say(self, kind: EventType, data: Contract) -> None:
        run = self.run
        self.add([EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt)])

    def step(self, seconds: int, outcome: Outcome, *message: tuple[EventType, Contract]) -> None:
        self.say(EventType.STEP_STARTED, StepStarted(worker="w", fence=1))
        self.now += seconds * SECOND
        for kind, data in message:
            self.say(kind, data)
        self.add(decide(self.run, outcome, now=self.now))


TURN = (EventType.TURN_STARTED, TurnStarted(turn=1, action={}, usage=Usage(turns=1)))
PATCH = PatchCandidate(diff="diff --git a/x b/x\n", touched_files=("x",), rationale="null guard")
DIFF = ArtifactRef(type=ArtifactType.PATCH, sha256="0" * 64, size_bytes=19)
GREEN = TestResult(passed=True, cmd=("pytest",), exit_code=0, failed_tests_before=("test_strip",))
APPROVED = Review(verdict="APPROVE", patch_loc=3)


def finished_recording() -> Recorded:
    reported = Recorded()
    reported.step(2, Succeeded())
    reported.step(14, Succeeded(), TURN, TURN, TURN)
    reported.step(22, Succeeded(), TURN)
    proposed = PatchProposed(patch=PATCH, diff=DIFF, tree="0" * 40, snapshot="snap")
    reported.step(91, Succeeded(), TURN, (EventType.PATCH_PROPOSED, proposed))
    reported.step(58, Succeeded(), (EventType.TESTS_JUDGED, GREEN))
    reported.step(29, Succeeded(), (EventType.REVIEW_RECORDED, APPROVED))
    reported.step(8, Succeeded())
    return reported


def test_a_finished_run_is_reported_in_the_documented_shape() -> None:
    reported = finished_recording()
    document = timeline(reported.run, reported.events)
    assert document == {
        "runId": "r-1",
        "task": "Fix NPE in strip()",
        "status": "DONE",
        "totalDurationSec": 224.0,
        "iterationsUsed": 1,
        "steps": [
            {"role": "INIT", "durationSec": 2.0, "status": "SUCCEEDED", "attempt": 1},
            {"role": "MAP_REPO", "durationSec": 14.0, "agentTurns": 3, "status": "SUCCEEDED", "attempt": 1},
            {"role": "PLAN", "durationSec": 22.0, "agentTurns": 1, "status": "SUCCEEDED", "attempt": 1},
            {"role": "IMPLEMENT", "durationSec": 91.0, "agentTurns": 1, "status": "SUCCEEDED", "attempt": 1},
            {"role": "TEST", "durationSec": 58.0, "exitCode": 0, "status": "SUCCEEDED", "attempt": 1},
            {"role": "REVIEW", "durationSec": 29.0, "status": "SUCCEEDED", "verdict": "APPROVE", "attempt": 1},
            {"role": "FINALIZE", "durationSec": 8.0, "status": "SUCCEEDED", "attempt": 1},
        ],
        "patch": "diff --git a/x b/x\n",
        "testResult": {"passed": True, "failedTestsBefore": ["test_strip"], "failedTestsAfter": []},
    }
    json.dumps(document)


def test_pauses_and_crashes_are_free() -> None:
    reported = Recorded()
    reported.step(3, Paused())
    reported.now += 1_000 * SECOND
    reported.add(decide_resume(reported.run))
    reported.say(EventType.STEP_STARTED, StepStarted(worker="w", fence=3))
    reported.now += 2 * SECOND
    reported.say(*TURN)
    reported.now += 500 * SECOND
    reported.step(4, Succeeded())
    document = timeline(reported.run, reported.events)
    assert document["steps"][0]["durationSec"] == 9.0
    assert document["totalDurationSec"] == 9.0
    assert document["status"] == State.MAP_REPO
    assert document["steps"][1]["status"] == "PENDING"


def test_a_run_that_was_cancelled_has_a_timeline_too() -> None:
    reported = Recorded()
    reported.say(EventType.STEP_STARTED, StepStarted(worker="w", fence=1))
    reported.now += 5 * SECOND
    reported.add(decide_cancel(reported.run))
    document = timeline(reported.run, reported.events)
    assert document["status"] == "ABORTED"
    assert document["steps"] == [{"role": "INIT", "durationSec": 5.0, "status": "CANCELLED", "attempt": 1}]
    assert document["patch"] is None
    assert document["testResult"] is None


def test_the_transcript_is_every_event_whole() -> None:
    reported = finished_recording()
    lines = transcript(reported.events).splitlines()
    assert [Event.model_validate_json(line) for line in lines] == reported.events
    assert transcript([]) == b""


TOKEN = "ghp_" + "a1" * 18
PEM = "-----BEGIN RSA PRIVATE KEY-----"


def test_what_one_event_quotes_cuts_no_other_off() -> None:
    """Of a key whose end is not there everything goes that could be of it, and no more."""
    reported = Recorded()
    message = (
        EventType.TURN_STARTED,
        TurnStarted(turn=1, action={"code": f'find("{PEM}")\n', TOKEN: "x"}, usage=Usage()),
    )
    reported.step(1, Succeeded(), message, TURN)
    lines = transcript(reported.events).splitlines()
    assert len(lines) == len(reported.events)
    read = [Event.model_validate_json(line) for line in lines]
    quoting = next(place for place, event in enumerate(reported.events) if event.type is EventType.TURN_STARTED)
    assert read[quoting].data == TurnStarted(
        turn=1, action={"code": 'find("[redacted]', "[redacted]": "x"}, usage=Usage()
    )
    assert read[:quoting] + read[quoting + 1 :] == reported.events[:quoting] + reported.events[quoting + 1 :]


def test_secrets_of_this_process_are_in_neither() -> None:
    reported = Recorded()
    task = TaskSpec(task_id="t-1", goal=Goal(natural=f'use {TOKEN} and pa"ss\\word1'), repo="/r")
    reported.events.clear()
    reported.add(start(task, "r-1"))
    clean = Redactor({"OPENAI_API_KEY": 'pa"ss\\word1'})
    first = Event.model_validate_json(transcript(reported.events, clean).splitlines()[0])
    assert isinstance(first.data, TaskSpecRecorded)
    assert first.data.task.goal.natural == "use [redacted] and [redacted]"
    assert timeline(reported.run, reported.events, clean)["task"] == "use [redacted] and [redacted]"
