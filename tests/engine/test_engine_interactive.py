"""Interactive runs: checkpoints, violations, messages and rollbacks while a program works."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from interactive_kit import MEND, MENDED, Interactive, StdioAgent

from codepilot.cli.sessions import say_asked
from codepilot.core.checkpoint import (
    CheckpointFailed,
    CheckpointRecorded,
    MessageSent,
    ModeChanged,
    Promoted,
    RolledBack,
    SessionRequested,
    UserEditsFound,
    ViolationAcknowledged,
)
from codepilot.core.events import Event, State, StepStarted
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.engine import Runtime, Worker
from codepilot.engine.interactive.worktree import WorkingTree
from codepilot.executor import LocalExecutor
from codepilot.workspace import ObjectStore

GUARDED = Policy(generated_code="off", protected_areas=("test_*.py", "ci/**"))


def test_a_program_works_under_checkpoints(runtime: Runtime, checkout: Path) -> None:
    """A checkpoint at each end of a turn: the program hears of its violation, corrects it, and the run is confirmed."""
    agent = StdioAgent(
        [MEND, ["write", "ci/run.yml", "jobs: all\n"], ["turn"], ["run", "rm -r ci"], ["turn"]],
    )
    work = Interactive(runtime, checkout, agent, GUARDED)
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    first, second = work.checkpoints()[:2]
    assert first.trigger == "turn"
    assert first.status == "invalid"
    assert first.severity == "warning"
    assert [(one.file, one.constraint) for one in first.violations] == [("ci/run.yml", "protected_areas")]
    assert set(first.files_changed) == {"shapes.py", "ci/run.yml"}
    assert second.previous == first.checkpoint_id
    assert second.status == "valid"
    assert second.files_changed == ("ci/run.yml",)
    assert second.files_changed_total == 1
    assert second.cached == 1
    acknowledged_by = work.found(ViolationAcknowledged)
    assert [(one.checkpoint_id, one.acknowledged, one.response) for one in acknowledged_by] == [
        (first.checkpoint_id, True, "will move ci/run.yml")
    ]
    assert "Put the file back" in agent.received[0]
    changes = [
        json.loads(line) for line in work.pilot.checkpoint_changes(work.run_id, first.checkpoint_id).splitlines()
    ]
    assert {(one["event_type"], one["file_path"]) for one in changes} == {
        ("change", "shapes.py"),
        ("add", "ci/run.yml"),
    }
    assert all(one["checkpoint_id"] == first.checkpoint_id for one in changes)
    assert {one["file_size"] for one in changes} == {len(MENDED), len("jobs: all\n")}
    patch = work.pilot.compare_checkpoints(work.run_id, first.checkpoint_id, second.checkpoint_id)
    assert b"deleted file mode" in patch
    assert b"shapes.py" not in patch
    assert work.pilot.checkpoint_diff(work.run_id, second.checkpoint_id, total=True) == runtime.artifacts.get(
        run.proposal.diff  # type: ignore[union-attr]
    )


def test_people_message_and_roll_back(runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for owner, name in ((LocalExecutor, "freeze"), (LocalExecutor, "thaw"), (ObjectStore, "_patch")):
        monkeypatch.setattr(owner, name, noted(order, getattr(owner, name)))
    change = "rm test_shapes.py; chmod 600 shapes.py; echo x > new"
    agent = StdioAgent([MEND, ["receive"], ["run", change], ["receive"]])
    work = Interactive(runtime, checkout, agent).begin()
    work.until(lambda: (work.tree / "shapes.py").exists() and (work.tree / "shapes.py").read_text() == MENDED)
    kept = work.pilot.checkpoint(work.run_id, wait_sec=20).done
    assert kept is not None
    assert "_patch" in order
    assert "freeze _patch" not in " ".join(order), "what settled before the freeze costs no frozen time"
    work.pilot.message(work.run_id, "go on", wait_sec=20)
    work.until(lambda: (work.tree / "new").exists())
    asked = work.pilot.rollback(work.run_id, kept.checkpoint_id, by="ann", wait_sec=20)  # type: ignore[union-attr]
    assert isinstance(asked.done, RolledBack)
    assert asked.done.failure is None
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    assert agent.received[0] == "I received: go on"
    assert "All files were put back" in agent.received[1]
    [sent] = [one for one in work.found(MessageSent) if one.type == "user"]
    assert (sent.content, sent.delivered) == ("go on", True)
    before = next(one for one in work.checkpoints() if one.trigger == "rollback")
    assert asked.done.before == before.checkpoint_id
    assert set(before.files_changed) == {"new", "test_shapes.py"}
    assert asked.done.tree == kept.tree  # type: ignore[union-attr]
    assert run.chain.rollbacks == 1


def noted(order: list[str], call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, noted when it begins."""

    def noting(*given: Any, **named: Any) -> Any:
        order.append(call.__name__)
        return call(*given, **named)

    return noting


@pytest.mark.variants
def test_a_rollback_or_message_of_nothing_is_refused(runtime: Runtime, checkout: Path) -> None:
    agent = StdioAgent([MEND, ["run", "mkdir -p new; echo x > new/a; chmod +x shapes.py"], ["receive"], ["receive"]])
    work = Interactive(runtime, checkout, agent).begin()
    work.until(lambda: (work.tree / "new" / "a").exists() and (work.tree / "shapes.py").stat().st_mode & 0o100)
    work.pilot.checkpoint(work.run_id, wait_sec=20)

    def refused(**asked: Any) -> str:
        done = work.pilot.rollback(work.run_id, wait_sec=20, **asked).done
        assert isinstance(done, RolledBack)
        assert done.failure is not None and done.failure.kind is FailureKind.INVALID_SPEC
        return done.failure.message

    assert refused(files=("nowhere.py", "new/b")).startswith("nowhere.py, new/b is neither in the tree")
    assert refused(smart=True).startswith("No file breaks a rule"), "an executable file is only flagged"
    for words in ("", " \n", "x" * 20_001):
        with pytest.raises(CodePilotError, match="1 to 20,000 characters"):
            work.pilot.message(work.run_id, words)
    for outside in ("/etc/passwd", "../x", ".", "a/../.."):
        with pytest.raises(CodePilotError, match="inside the repository"):
            work.pilot.rollback(work.run_id, files=(outside,))
    put_back = work.pilot.rollback(work.run_id, files=("./new/",), wait_sec=20).done
    assert isinstance(put_back, RolledBack) and put_back.failure is None
    assert not (work.tree / "new").exists()
    assert work.end().verdict == "confirmed"
    assert ["neither" in text or "No file" in text for text in agent.received] == [False, False]


@pytest.mark.variants
def test_a_message_for_the_end_of_a_turn_that_never_came_reaches_the_next_agent(
    runtime: Runtime, checkout: Path
) -> None:
    agent = StdioAgent([["write", "notes.txt", "x"], ["receive"]], [["turn"], MEND])
    work = Interactive(runtime, checkout, agent).begin()
    work.until(lambda: (work.tree / "notes.txt").exists())
    work.pilot.message(work.run_id, "multiply them", when="turn")
    work.pilot.message(work.run_id, "go on")
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    assert agent.received == ["I received: go on", "I received: multiply them"]
    assert [one.delivered for one in work.found(MessageSent) if one.type == "user"] == [True, True]
    assert run.undelivered == ()


@pytest.mark.variants
def test_a_message_after_the_agents_last_step_is_not_delivered_and_its_sender_learns_it(
    runtime: Runtime, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, answers = StdioAgent([MEND]), []
    work = Interactive(runtime, checkout, agent)

    def send() -> None:
        answers.append(work.pilot.message(work.run_id, "one thing more", wait_sec=60))

    sender = threading.Thread(target=send)

    def react(event: Event) -> None:
        if isinstance(event.data, StepStarted) and work.pilot.run(work.run_id).state is State.TEST:
            sender.start()
            while sender.is_alive() and not work.found(SessionRequested):
                time.sleep(0.01)

    run = Worker(work.runtime, agent_for=lambda task: agent, on_event=react).drive(work.run_id)
    sender.join(60)
    assert run.verdict == "confirmed", run.failure
    [asked] = answers
    assert isinstance(asked.done, MessageSent)
    assert not asked.done.delivered
    with pytest.raises(typer.Exit) as left:
        say_asked(asked, as_json=False)
    assert left.value.exit_code == 1
    assert capsys.readouterr().out.startswith(f"Not delivered: {run.run_id} has ended")
    assert work.pilot.report(work.run_id).undelivered == ("one thing more",)
    bundled = json.loads((runtime.home.bundles / run.run_id / "report.json").read_text())
    assert bundled["undelivered"] == ["one thing more"]


@pytest.mark.variants
def test_an_agent_without_the_features_works_deterministically(runtime: Runtime, checkout: Path) -> None:
    work = Interactive(runtime, checkout, StdioAgent([MEND], features=frozenset({"messages"})))
    run = work.end()
    assert run.verdict == "confirmed"
    assert not work.checkpoints()
    [changed] = work.found(ModeChanged)
    assert "does not offer interactive mode and working directory" in changed.reason


def test_a_shadow_promotes_only_what_is_valid(runtime: Runtime, checkout: Path) -> None:
    agent = StdioAgent(
        [["write", "ci/run.yml", "jobs\n"], ["write", "notes.txt", "x\n"], ["turn"], ["run", "ls"], MEND, ["turn"]]
    )
    work = Interactive(runtime, checkout, agent, GUARDED, strategy="shadow")
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    discarded, *later = work.checkpoints()
    assert (discarded.status, discarded.action_taken, discarded.strategy) == ("invalid", "discarded", "shadow")
    promoted = [one.checkpoint_id for one in work.found(Promoted)]
    assert discarded.checkpoint_id not in promoted
    assert set(promoted) <= {one.checkpoint_id for one in later if one.status == "valid"}
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    assert "Everything since the last valid checkpoint was discarded" in agent.received[0]


def test_violations_are_reverted_by_file_or_with_what_belongs_to_them(runtime: Runtime, checkout: Path) -> None:
    agent = StdioAgent([MEND, ["run", "mkdir ci; mv test_shapes.py ci/shapes.py"], ["turn"]])
    work = Interactive(
        runtime, checkout, agent, Policy(generated_code="off", protected_areas=("ci/**",)), revert="smart"
    )
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    first = work.checkpoints()[0]
    assert first.action_taken == "reverted"
    [undone] = work.found(RolledBack)
    assert undone.reason == "violation"
    assert set(undone.files) == {"ci/shapes.py", "test_shapes.py"}
    assert work.checkpoints()[1].status == "valid"
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)


def test_a_person_edits_the_worktree_while_the_agent_works(runtime: Runtime, checkout: Path, tmp_path: Path) -> None:
    """Edits are seen, shown to the agent and part of the change; the person's version wins, the agent's is kept."""
    place = tmp_path / "mine"
    agent = StdioAgent([["write", "both.txt", "the agent's\n"], MEND, ["receive"], ["receive"]])
    work = Interactive(runtime, checkout, agent, worktree=place).begin()
    work.until(lambda: (work.tree / "both.txt").exists() and (work.tree / "shapes.py").read_text() == MENDED)
    work.until(lambda: (place / "shapes.py").exists())
    (place / "both.txt").write_text("the person's\n")
    (place / "notes.md").write_text("mine\n")
    kept = work.pilot.checkpoint(work.run_id, wait_sec=20).done
    assert kept is not None
    work.pilot.message(work.run_id, "that is all")
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    [edits] = work.found(UserEditsFound)
    assert set(edits.files) == {"both.txt", "notes.md"}
    assert edits.conflicts == ("both.txt",)
    assert "The user changed both.txt, notes.md while you worked" in agent.received[0]
    assert "+mine" in agent.received[0]
    assert (place / "shapes.py").read_text() == MENDED
    assert (place / "both.txt").read_text() == "the person's\n"
    assert run.proposal is not None
    assert set(run.proposal.patch.touched_files) == {"both.txt", "notes.md", "shapes.py"}


@pytest.mark.variants
@pytest.mark.parametrize("strategy", ["direct", "shadow"])
def test_an_edit_in_the_moment_of_the_last_promotion_is_kept(
    runtime: Runtime, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    place, promote = tmp_path / "mine", WorkingTree.promote

    def edited(tree: WorkingTree, one: CheckpointRecorded, agent_tree: str) -> object:
        if not work.found(UserEditsFound) and one.trigger == "final":
            (place / "late.txt").write_text("late\n")
        return promote(tree, one, agent_tree)

    monkeypatch.setattr(WorkingTree, "promote", edited)
    work = Interactive(runtime, checkout, StdioAgent([MEND]), worktree=place, strategy=strategy)
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    [edits] = work.found(UserEditsFound)
    assert edits.files == ("late.txt",)
    assert (place / "late.txt").read_text() == "late\n"
    assert run.proposal is not None
    assert set(run.proposal.patch.touched_files) == {"late.txt", "shapes.py"}


def test_checkpoints_that_cannot_be_made_block_the_run(runtime: Runtime, checkout: Path) -> None:
    """Artifacts cannot be written any more: three such checkpoints, and a person has to look."""
    agent = StdioAgent([MEND, ["receive"], ["write", "notes.txt", "x"], ["sleep", 60]])
    work = Interactive(runtime, checkout, agent, max_uncommitted_changes=1).begin()
    work.until(lambda: len(work.checkpoints()) == 1 and work.pilot.run(work.run_id).chain.last)
    kept = runtime.home.artifacts
    kept.rename(kept.with_name("away"))
    kept.write_text("no directory")
    work.pilot.message(work.run_id, "go on")
    while len(work.found(CheckpointFailed)) < 3:
        time.sleep(0.01)
    kept.unlink()
    kept.with_name("away").rename(kept)
    run = work.end()
    assert run.state is State.BLOCKED
    assert run.failure is not None
    assert run.failure.kind is FailureKind.INTERACTIVE_MODE_FAILURE
    assert "rollback" in run.failure.advice
    assert [one.in_a_row for one in work.found(CheckpointFailed)] == [1, 2, 3]
    work.pilot.resume(work.run_id)
    work.agent = StdioAgent([["run", "ls"]])
    run = work.end()
    assert run.verdict == "confirmed", run.failure


@pytest.mark.variants
def test_an_agent_that_takes_too_long_is_ended_with_what_it_has(runtime: Runtime, checkout: Path) -> None:
    work = Interactive(runtime, checkout, StdioAgent([MEND, ["sleep", 60]]), max_execution_time_ms=1_500)
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    assert "request" in [one.trigger for one in work.checkpoints()]
