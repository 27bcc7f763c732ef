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
    ReviewRecorded,
    State,
    StepStarted,
    TaskSpecRecorded,
    TestsJudged,
    TurnStarted,
    Usage,
)
from codepilot.core.run import Run, replay
from codepilot.core.task import Goal, TaskSpec
from codepilot.telemetry import Redactor, timeline, transcript

SECOND = 1_000_000


class Told:
    """A run told event by event, with a clock of its own."""

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

    def step(self, seconds: int, outcome: Outcome, *said: tuple[EventType, Contract]) -> None:
        self.say(EventType.STEP_STARTED, StepStarted(worker="w", fence=1))
        self.now += seconds * SECOND
        for kind, data in said:
            self.say(kind, data)
        self.add(decide(self.run, outcome, now=self.now))


TURN = (EventType.TURN_STARTED, TurnStarted(turn=1, action={}, usage=Usage(turns=1)))
PATCH = PatchCandidate(diff="diff --git a/x b/x\n", touched_files=("x",), rationale="null guard")
DIFF = ArtifactRef(type=ArtifactType.PATCH, sha256="0" * 64, size_bytes=19)
GREEN = TestResult(passed=True, cmd=("pytest",), exit_code=0, failed_tests_before=("test_strip",))
APPROVED = Review(verdict="APPROVE", patch_loc=3)


def told_to_the_end() -> Told:
    told = Told()
    told.step(2, Succeeded())
    told.step(14, Succeeded(), TURN, TURN, TURN)
    told.step(22, Succeeded(), TURN)
    proposed = PatchProposed(patch=PATCH, diff=DIFF, tree="0" * 40, snapshot="snap")
    told.step(91, Succeeded(), TURN, (EventType.PATCH_PROPOSED, proposed))
    told.step(58, Succeeded(), (EventType.TESTS_JUDGED, TestsJudged(result=GREEN)))
    told.step(29, Succeeded(), (EventType.REVIEW_RECORDED, ReviewRecorded(review=APPROVED)))
    told.step(8, Succeeded())
    return told


def test_a_finished_run_is_told_in_the_documented_shape() -> None:
    told = told_to_the_end()
    document = timeline(told.run, told.events)
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
    told = Told()
    told.step(3, Paused())
    told.now += 1_000 * SECOND
    told.add(decide_resume(told.run))
    told.say(EventType.STEP_STARTED, StepStarted(worker="w", fence=3))
    told.now += 2 * SECOND
    told.say(*TURN)
    told.now += 500 * SECOND
    told.step(4, Succeeded())
    document = timeline(told.run, told.events)
    assert document["steps"][0]["durationSec"] == 9.0
    assert document["totalDurationSec"] == 9.0
    assert document["status"] == State.MAP_REPO
    assert document["steps"][1]["status"] == "PENDING"


def test_a_run_that_was_cancelled_has_a_timeline_too() -> None:
    told = Told()
    told.say(EventType.STEP_STARTED, StepStarted(worker="w", fence=1))
    told.now += 5 * SECOND
    told.add(decide_cancel(told.run))
    document = timeline(told.run, told.events)
    assert document["status"] == "ABORTED"
    assert document["steps"] == [{"role": "INIT", "durationSec": 5.0, "status": "CANCELLED", "attempt": 1}]
    assert document["patch"] is None
    assert document["testResult"] is None


def test_the_transcript_is_every_event_whole() -> None:
    told = told_to_the_end()
    lines = transcript(told.events).splitlines()
    assert [Event.model_validate_json(line) for line in lines] == told.events
    assert transcript([]) == b""


TOKEN = "ghp_" + "a1" * 18
PEM = "-----BEGIN RSA PRIVATE KEY-----"


def test_what_one_event_quotes_cuts_no_other_off() -> None:
    """Of a key whose end is not there everything goes that could be of it, and no more."""
    told = Told()
    said = (EventType.TURN_STARTED, TurnStarted(turn=1, action={"code": f'find("{PEM}")\n', TOKEN: "x"}, usage=Usage()))
    told.step(1, Succeeded(), said, TURN)
    lines = transcript(told.events).splitlines()
    assert len(lines) == len(told.events)
    read = [Event.model_validate_json(line) for line in lines]
    quoting = next(place for place, event in enumerate(told.events) if event.type is EventType.TURN_STARTED)
    assert read[quoting].data == TurnStarted(
        turn=1, action={"code": 'find("[redacted]', "[redacted]": "x"}, usage=Usage()
    )
    assert read[:quoting] + read[quoting + 1 :] == told.events[:quoting] + told.events[quoting + 1 :]


def test_secrets_of_this_process_are_in_neither() -> None:
    told = Told()
    task = TaskSpec(task_id="t-1", goal=Goal(natural=f'use {TOKEN} and pa"ss\\word1'), repo="/r")
    told.events.clear()
    told.add(start(task, "r-1"))
    clean = Redactor({"OPENAI_API_KEY": 'pa"ss\\word1'})
    first = Event.model_validate_json(transcript(told.events, clean).splitlines()[0])
    assert isinstance(first.data, TaskSpecRecorded)
    assert first.data.task.goal.natural == "use [redacted] and [redacted]"
    assert timeline(told.run, told.events, clean)["task"] == "use [redacted] and [redacted]"
