"""A run whose worker is killed in every state comes to the same end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from engine_kit import CHEAP

import ready
from codepilot.core.events import EventType, State
from codepilot.engine import Request, Runtime, make_task, submit

HERE = Path(__file__).parent


def test_a_run_that_is_killed_in_every_state_finishes_as_if_nothing_had_been(
    runtime: Runtime, checkout: Path, tmp_path: Path
) -> None:
    graves = tmp_path / "graves"
    graves.mkdir()
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    command = [str(tmp_path / "home"), run.run_id, str(graves)]
    environment = {**os.environ, "CODEPILOT_HOME": str(tmp_path / "home")}
    lives = 0
    while True:
        code, _, err = ready.run(command, environment, script=HERE / "dying_worker.py")
        lives += 1
        if code != -signal.SIGKILL:
            break
    assert code == 0, err
    ended = runtime.store.load(run.run_id)
    runtime.store.check(run.run_id)
    assert (ended.state, ended.failure) == (State.DONE, None)
    states = {State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW, State.FINALIZE}
    assert {path.name for path in graves.iterdir()} == {state.value for state in states}
    assert lives == len(states) + 1
    assert ended.proposal is not None
    assert ended.proposal.patch.diff.count("+    return") == 1
    assert ended.spent.iterations == 1
    events = runtime.store.events(run.run_id)
    assert sum(event.type is EventType.PATCH_PROPOSED for event in events) == 1
