"""Review by hunk: what remains is judged by itself, and what was rejected goes back with the reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, CODE, DONE, MAP, PLAN, checkout, code, drive, runtime, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, State
from codepilot.core.failures import CodePilotError
from codepilot.core.run import Run
from codepilot.engine import Checking, Request, Runtime, Worker, apply_run, make_task, patch_of, submit, verify_bundle
from codepilot.engine.change.review import Choices, Reviewed, change_of, review_run

__all__ = ["checkout", "runtime"]

FAR = "\n".join(f"# {number}" for number in range(12))
LONG = CODE.replace("\n\n\ndef perimeter", f"\n\n\n{FAR}\n\n\ndef perimeter")
BOTH = code(
    "source = read_file('shapes.py')\n"
    "source = source.replace('width + height', 'width * height', 1)\n"
    "source = source.replace('2 * (width + height)', '(width + height) * 2')\n"
    "write_file('shapes.py', source)\n"
    "write_file('notes.md', 'Notes\\n')"
)
FIX, TURNED, NOTES = "shapes.py:1", "shapes.py:2", "notes.md"


@pytest.fixture
def reviewed_run(runtime: Runtime, checkout: Path) -> Run:
    (checkout / "shapes.py").write_text(LONG, encoding="utf-8")  # uncommitted: the base is not HEAD
    run, _ = drive(runtime, checkout, until(MAP, PLAN, BOTH, DONE, APPROVE))
    assert run.state is State.DONE
    return run


def judged(runtime: Runtime, reviewed: Reviewed) -> Run:
    assert reviewed.judging is not None
    ended = Worker(runtime, begun=reviewed.judging).drive(reviewed.judging.run.run_id)
    runtime.store.check(ended.run_id)
    return ended


def files_of(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_what_remains_is_judged_and_applied_and_the_reviewed_run_stays(
    runtime: Runtime, checkout: Path, reviewed_run: Run
) -> None:
    run_id = reviewed_run.run_id
    pieces = [piece.id for file in change_of(runtime, run_id) for piece in file.pieces]
    assert pieces == [NOTES, FIX, TURNED]
    bundle, patch = files_of(runtime.home.bundles / run_id), patch_of(runtime, reviewed_run)
    choices = Choices(reject=[TURNED, NOTES], reason="keep it as it was")
    reviewed = review_run(runtime, run_id, choices)
    ended = judged(runtime, reviewed)
    assert (ended.state, ended.verdict, ended.failure) == (State.DONE, "confirmed", None)
    assert ended.baseline is not None and reviewed_run.baseline is not None
    assert ended.baseline.targets == reviewed_run.baseline.targets
    remaining = patch_of(runtime, ended).decode()
    assert "width * height" in remaining and "* 2" not in remaining and "notes.md" not in remaining
    proof = verify_bundle(runtime, runtime.home.bundles / ended.run_id, Checking())
    assert (proof.ok, proof.verdict) == (True, "confirmed")
    apply_run(runtime, ended.run_id, accept_plausible=False)
    assert (checkout / "shapes.py").read_text() == LONG.replace("width + height", "width * height", 1)
    assert not (checkout / "notes.md").exists()
    now = runtime.store.load(run_id)
    assert (now.state, now.proposal, now.verdict) == (reviewed_run.state, reviewed_run.proposal, reviewed_run.verdict)
    assert (files_of(runtime.home.bundles / run_id), patch_of(runtime, now)) == (bundle, patch)
    again = review_run(runtime, run_id, choices)
    assert again.judging is not None and again.judging.start is None
    assert again.judging.run.run_id == ended.run_id
    recorded = [event for event in runtime.store.events(run_id) if event.type is EventType.HUNKS_REVIEWED]
    assert len(recorded) == 1
    assert [one.reason for one in reviewed.record.of("rejected")] == ["keep it as it was"] * 2


@pytest.mark.variants
def test_without_the_fix_what_remains_is_refused(runtime: Runtime, reviewed_run: Run) -> None:
    ended = judged(runtime, review_run(runtime, reviewed_run.run_id, Choices(reject=[FIX])))
    assert ended.state is State.FAILED and ended.failure is not None
    assert "test_area" in ended.failure.message


def test_nothing_to_judge_is_said_without_a_run(runtime: Runtime, reviewed_run: Run) -> None:
    everything = review_run(runtime, reviewed_run.run_id, Choices(accept=["shapes.py", NOTES]))
    assert (everything.judging, everything.refusal) == (None, "")
    nothing = review_run(runtime, reviewed_run.run_id, Choices(reject=["shapes.py", NOTES]))
    assert nothing.judging is None and "nothing remains" in nothing.refusal
    for choices in (Choices(), Choices(accept=[FIX], reject=[FIX]), Choices(accept=["shapes.py", NOTES], again=True)):
        with pytest.raises(CodePilotError):
            review_run(runtime, reviewed_run.run_id, choices)


@pytest.mark.variants
def test_rejected_hunks_go_back_with_the_reason_and_the_accepted_ones_stay(runtime: Runtime, checkout: Path) -> None:
    (checkout / "shapes.py").write_text(LONG, encoding="utf-8")
    task = make_task(Request(repo=str(checkout)), CHEAP).model_copy(update={"agent": "codeact"})
    first = CodeActAgent(until(MAP, PLAN, BOTH, DONE, APPROVE))
    run = Worker(runtime, agent_for=lambda task: first).drive(submit(runtime, task).run_id)
    assert run.state is State.DONE
    choices = Choices(accept=[FIX], reject=[TURNED, NOTES], reason="no notes, please", again=True)
    reviewed = review_run(runtime, run.run_id, choices)
    assert reviewed.again is not None
    look = code("print(read_file('shapes.py'))")
    model = until(look, DONE, APPROVE)
    agent = CodeActAgent(model)
    worker = Worker(runtime, begun=reviewed.again, agent_for=lambda task: agent)
    ended = worker.drive(reviewed.again.run.run_id)
    runtime.store.check(ended.run_id)
    assert (ended.state, ended.verdict) == (State.DONE, "confirmed")
    asked = "\n".join(message.content for message in model.requests[0])
    assert "no notes, please" in asked and "A person rejected shapes.py:2" in asked and "(width + height) * 2" in asked
    remaining = patch_of(runtime, ended).decode()
    assert "width * height" in remaining and "* 2" not in remaining and "notes.md" not in remaining
    again = review_run(runtime, run.run_id, choices)
    assert again.again is not None and again.again.run.run_id == ended.run_id and again.again.start is None


@pytest.mark.variants
def test_the_searching_agent_cannot_redo_a_part(runtime: Runtime, reviewed_run: Run) -> None:
    with pytest.raises(CodePilotError, match="cannot redo a part"):
        review_run(runtime, reviewed_run.run_id, Choices(reject=[TURNED], again=True))
