"""What is left of a run that ended, was gone on with, and ended anew: the bundle, never an earlier end's record."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import threading
import time
from pathlib import Path

import pytest

from codepilot.core.artifacts import ArtifactType
from codepilot.core.decide import Failed, decide, decide_resume, start
from codepilot.core.events import BundleWritten, EventDraft, EventType, RunFinished, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Runtime, fetch_bundle, report_run
from codepilot.engine.close import close_run, recording
from codepilot.store import Claim, new_id
from codepilot.verify import write_directory

BUNDLE = {"patch.diff": b"--- a\n+++ b\n", "report.json": b'{"status": "DONE"}\n'}
WORKER = "w-1"


@pytest.fixture
def aborted(runtime: Runtime) -> Run:
    """A run that has spent its budget, with its record left here."""
    run_id = new_id("r-")
    task = TaskSpec(task_id=new_id("t-"), goal=Goal(natural="Nothing"), repo="/nowhere", sandbox_level="none")
    runtime.store.create_run(run_id, start(task, run_id))
    spent = Failed(Failure(kind=FailureKind.BUDGET_EXCEEDED, message="spent", details={"budget": "wall_sec"}))
    runtime.store.commit(begin(runtime, run_id), lambda run: decide(run, spent, run.updated_at))
    close_run(runtime.store.load(run_id), runtime)
    return runtime.store.load(run_id)


def begin(runtime: Runtime, run_id: str) -> Claim:
    runtime.store.register_worker(WORKER)
    begun = runtime.store.claim_next(WORKER, run_id)
    assert begun is not None
    return begun.claim


def finish(runtime: Runtime, run_id: str) -> Run:
    """As a worker of another home does: all that is known of its bundle here are the events and the artifacts."""
    runtime.store.control(run_id, decide_resume)
    claim = begin(runtime, run_id)
    files = {name: runtime.artifacts.put(data, ArtifactType.REPORT) for name, data in BUNDLE.items()}
    written = BundleWritten(path="/elsewhere", sha256=hashlib.sha256(b"").hexdigest(), files=files)
    bundle = EventDraft(type=EventType.BUNDLE_WRITTEN, data=written, step_id=claim.step_id, attempt=claim.attempt)
    done = EventDraft(
        type=EventType.RUN_FINISHED,
        data=RunFinished(state=State.DONE),
        step_id=claim.step_id,
        attempt=claim.attempt,
    )
    runtime.store.commit(claim, lambda run: [bundle.model_copy(update={"artifacts": (*files.values(),)}), done])
    return runtime.store.load(run_id)


def held(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_record_of_an_earlier_end_does_not_hide_the_bundle(runtime: Runtime, aborted: Run) -> None:
    directory = runtime.home.bundles / aborted.run_id
    assert "patch.diff" not in held(directory)
    run = finish(runtime, aborted.run_id)
    events = runtime.store.events(run.run_id)
    fetch_bundle(run, events, runtime)
    assert held(directory) == BUNDLE
    assert report_run(run, events, runtime.home).patch == str(directory / "patch.diff")
    before = directory.stat().st_ino
    fetch_bundle(run, events, runtime)
    assert directory.stat().st_ino == before, "what is there already is left alone"
    (directory / "patch.diff").write_bytes(b"something else")
    fetch_bundle(run, events, runtime)
    assert held(directory) == BUNDLE
    assert [path.name for path in runtime.home.bundles.iterdir()] == [run.run_id]


def test_several_may_fetch_a_bundle_at_the_same_time(runtime: Runtime, aborted: Run) -> None:
    run = finish(runtime, aborted.run_id)
    (runtime.home.logs / f"{run.run_id}.jsonl").unlink()
    events = runtime.store.events(run.run_id)
    failures: list[BaseException] = []

    def fetch() -> None:
        try:
            fetch_bundle(run, events, runtime)
        except BaseException as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert held(runtime.home.bundles / run.run_id) == BUNDLE


@pytest.mark.parametrize("ended", [True, False])
def test_who_was_stopped_before_it_wrote_a_record_writes_no_old_one(
    runtime: Runtime, aborted: Run, ended: bool
) -> None:
    """The run was gone on with since: it is at work, or its bundle is there."""
    directory, log = runtime.home.bundles / aborted.run_id, runtime.home.logs / f"{aborted.run_id}.jsonl"
    with log.open("ab") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        late = threading.Thread(target=close_run, args=(aborted, runtime))
        late.start()
        time.sleep(0.3)
        if ended:
            finish(runtime, aborted.run_id)
        else:
            runtime.store.control(aborted.run_id, decide_resume)
        write_directory(directory, BUNDLE)
    late.join()
    assert held(directory) == BUNDLE


def test_the_record_of_a_run_that_failed_elsewhere_is_made_from_its_log(runtime: Runtime, aborted: Run) -> None:
    """The machine that it ended on may be gone for good."""
    left = held(runtime.home.bundles / aborted.run_id)
    shutil.rmtree(runtime.home.bundles / aborted.run_id)
    assert recording(runtime, aborted.run_id).read_bytes() == left["transcript.jsonl"]
    assert held(runtime.home.bundles / aborted.run_id) == left
