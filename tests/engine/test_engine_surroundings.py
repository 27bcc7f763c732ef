"""What fails around a run, provoked for real: workers, executors, models, disks, stores. Nothing done is lost by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_kit import CHEAP, CODE, DONE, MAP, PLAN, RIGHT, code, drive, states, until
from pydantic import ValidationError

from codepilot.agents import CodeActAgent
from codepilot.core.events import DependencyDegraded, EventType, SnapshotKept, State, TurnStarted
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Request, Runtime, Worker, make_task, resume, submit
from codepilot.models import FallbackModel, ScriptedModel
from codepilot.telemetry import exit_code
from configured import configured
from levels import lacking
from ready import Started
from servers import PostgresServer, S3Server, free_ports

RIGHT_DIFF = "+    return width * height"
HERE = Path(__file__).parent


def go_on(runtime: Runtime, run_id: str, *replies: str) -> Run:
    model = until(*replies)
    return Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run_id)


def fails_once(kind: FailureKind, *replies: str, times: int = 1) -> ScriptedModel:
    """A model whose provider fails at the first requests."""

    def fail() -> None:
        raise CodePilotError(kind, "the provider refused")

    return until(*[""] * times, *replies, before=dict.fromkeys(range(times), fail))


# People and models ----------------------------------------------------------------------------------


def test_a_task_that_says_nothing_is_refused_before_anything_is_done(runtime: Runtime, checkout: Path) -> None:
    with pytest.raises(CodePilotError, match="is empty") as refused:
        make_task(Request(repo=str(checkout), prompt=" \n"), configured())
    assert refused.value.kind is FailureKind.INVALID_SPEC
    with pytest.raises(ValidationError, match="the goal is empty"):
        TaskSpec(task_id="t-1", goal=Goal(natural=" \n"), repo=str(checkout))


def test_words_that_no_failing_test_bears_out_are_refused_before_a_model_is_asked(
    runtime: Runtime, checkout: Path
) -> None:
    (checkout / "shapes.py").write_text(CODE.replace("width + height", "width * height", 1), encoding="utf-8")
    model = until()
    run, _ = drive(runtime, checkout, model, prompt="make something cool")
    assert run.failure is not None
    assert (run.failure.kind, exit_code(run)) == (FailureKind.TEST_ALREADY_PASSES, 2)
    assert "Write a test that shows the bug" in run.failure.next_action
    assert model.requests == []


@pytest.mark.variants
@pytest.mark.parametrize("kind", [FailureKind.MODEL_AUTH, FailureKind.MODEL_QUOTA])
def test_what_a_person_must_mend_at_the_provider_parks_the_run(
    runtime: Runtime, checkout: Path, kind: FailureKind
) -> None:
    run, events = drive(runtime, checkout, fails_once(kind))
    assert (run.state, run.failure and run.failure.kind, exit_code(run)) == (State.BLOCKED, kind, 3)
    blocked = run.spent.wall_us
    resume(runtime, run.run_id)
    ended = go_on(runtime, run.run_id, MAP)
    assert State.PLAN in states(runtime.store.events(run.run_id))
    assert ended.spent.wall_us > blocked
    assert states(events).count(State.MAP_REPO) == 1, "it is the same step that goes on"


@pytest.mark.variants
def test_a_provider_that_is_away_is_asked_again_and_then_the_run_can_be_resumed(
    runtime: Runtime, checkout: Path
) -> None:
    run, events = drive(runtime, checkout, fails_once(FailureKind.MODEL_OVERLOADED, MAP))
    assert [event.attempt for event in events if event.type is EventType.STEP_QUEUED][:4] == [1, 1, 2, 1]
    assert run.repo_map is not None
    assert run.state is State.FAILED, "the script has no plan"
    run, _ = drive(runtime, checkout, fails_once(FailureKind.MODEL_OVERLOADED, times=2))
    assert run.failure is not None
    assert (run.state, run.failure.kind, exit_code(run)) == (State.FAILED, FailureKind.MODEL_OVERLOADED, 4)
    resume(runtime, run.run_id)
    assert go_on(runtime, run.run_id, MAP).repo_map is not None


def test_a_second_model_stands_in_and_the_run_says_so(runtime: Runtime, checkout: Path) -> None:
    busy = fails_once(FailureKind.MODEL_OVERLOADED, PLAN)
    agent = CodeActAgent(FallbackModel(busy, ScriptedModel([MAP], name="second")))
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    assert (ended.repo_map is not None, ended.plan is not None) == (True, True)
    reported = [event.data for event in runtime.store.events(run.run_id) if isinstance(event.data, DependencyDegraded)]
    assert [(one.dependency, one.consequence) for one in reported] == [("model", "second replies in place of scripted")]
    assert reported[0].failure.kind is FailureKind.MODEL_OVERLOADED


# Workers and executors ------------------------------------------------------------------------------

_DOOMED = """
import sys
from codepilot.agents import CodeActAgent
from codepilot.engine import Runtime, Worker
from codepilot.models import ScriptedModel
from configured import configured
from engine_kit import MAP, PLAN, code
spoil = code("write_file('shapes.py', 'spoiled')\\nwrite_file('left.py', 'x')\\nimport time\\ntime.sleep(100)")
with Runtime.open(configured({"CODEPILOT_HOME": sys.argv[1]})) as runtime:
    model = ScriptedModel([MAP, PLAN, code("write_file('kept.txt', 'x')"), spoil])
    Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(sys.argv[2])
"""


def test_a_worker_killed_in_mid_action_is_followed_by_one_that_finds_clean_files(
    runtime: Runtime, checkout: Path
) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    environ = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"}
    doomed = subprocess.Popen([sys.executable, "-c", _DOOMED, str(runtime.home.path), run.run_id], env=environ)
    deadline = time.monotonic() + 60
    while not list(runtime.home.workspaces.glob("*/tree/left.py")):
        assert doomed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    doomed.send_signal(signal.SIGKILL)
    doomed.wait()
    assert runtime.store.load(run.run_id).state is State.IMPLEMENT
    look = code("print(sorted(list_files()), read_file('shapes.py'))")
    model = until(look, RIGHT, DONE)
    ended = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)
    assert "This action was interrupted" in model.requests[0][-1].content
    seen = model.requests[1][-1].content
    assert "kept.txt" in seen, "what the turn before had done is there"
    assert "left.py" not in seen
    assert "spoiled" not in seen
    assert ended.test_result is not None
    assert ended.test_result.passed
    assert ended.spent.iterations == 1
    runtime.store.check(run.run_id)


Service = Callable[[], Started]


@pytest.fixture
def start_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Starts an executor's service, always at the same address."""
    port, started = free_ports(1)[0], []
    shown = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), str(HERE.parents[1] / "src")}
    command = ["executor", "--listen", f"127.0.0.1:{port}", "--json"]
    command += ["--home", str(tmp_path / "executor")]
    command += [word for path in sorted(shown) for word in ("--allow-mount", path)]
    monkeypatch.setenv("CODEPILOT_EXECUTOR_TOKEN", "a-token-for-tests-0123456789")
    monkeypatch.setenv("CODEPILOT_EXECUTOR_URL", f"http://127.0.0.1:{port}")

    def start() -> Started:
        with (tmp_path / "executor.log").open("ab") as log:
            process = Started(command, os.environ, stderr=log)
        started.append(process)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["url"]
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.variants
def test_an_executor_killed_in_mid_step_is_gone_on_with_when_it_is_back(
    runtime: Runtime, checkout: Path, start_service: Service
) -> None:
    service = [start_service()]

    def restart() -> None:
        service[0].kill()
        service[0].wait()
        service[0] = start_service()

    left, look = code("write_file('left.py', 'x')"), code("print(sorted(list_files()))")
    model = until(MAP, PLAN, left, look, RIGHT, DONE, before={3: restart})
    run, events = drive(runtime, checkout, model)
    assert run.test_result is not None
    assert run.test_result.passed
    assert run.proposal is not None
    assert RIGHT_DIFF in run.proposal.patch.diff
    assert run.spent.iterations == 1
    assert states(events).count(State.IMPLEMENT) <= 2


# Disks and stores -----------------------------------------------------------------------------------

_FULL = """
import sys
from pathlib import Path
from codepilot.agents import CodeActAgent
from codepilot.engine import Runtime, Request, Worker, make_task, resume, submit
from codepilot.models import ScriptedModel
from configured import configured
from engine_kit import CHEAP, MAP
home, checkout = sys.argv[1:]
fill = Path(home, "workspaces", "fill")
with Runtime.open(configured({"CODEPILOT_HOME": home})) as runtime:
    def drive(run_id):
        ended = Worker(runtime, agent_for=lambda task: CodeActAgent(ScriptedModel([MAP]))).drive(run_id)
        print(ended.state, ended.failure.kind, ended.repo_map is not None)
    with fill.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    run = submit(runtime, make_task(Request(repo=checkout), CHEAP))
    drive(run.run_id)
    fill.unlink()
    resume(runtime, run.run_id)
    drive(run.run_id)
    runtime.store.check(run.run_id)
"""


def test_a_full_disk_ends_the_run_and_resume_goes_on_when_there_is_room(runtime: Runtime, checkout: Path) -> None:
    home = runtime.home.path
    mount = f'mount -t tmpfs -o size=8m none {home}/workspaces && exec "$0" -c "$1" {home} {checkout}'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, _FULL],
        env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        lacking("no file system can be mounted here")
    reported = done.stdout.splitlines()
    assert reported[:1] == ["FAILED disk_full False"], done.stdout + done.stderr
    assert reported[1].endswith("True"), "the repository was mapped once there was room"


def shared_runtime(tmp_path: Path, postgres: PostgresServer, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    places = {"CODEPILOT_STORE": postgres.store(), "CODEPILOT_ARTIFACTS": f"{s3.url}/{tmp_path.name}"}
    return Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "home"), **places}))


@pytest.fixture
def team(tmp_path: Path, postgres: PostgresServer, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    with shared_runtime(tmp_path, postgres, s3, monkeypatch) as opened:
        yield opened


def test_a_store_that_goes_away_stops_the_worker_and_loses_nothing(
    team: Runtime, checkout: Path, postgres: PostgresServer
) -> None:
    model = until(MAP, PLAN, RIGHT, DONE, before={3: postgres.stop})
    run = submit(team, make_task(Request(repo=str(checkout)), CHEAP))
    try:
        with pytest.raises(CodePilotError) as away:
            Worker(team, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)
    finally:
        if postgres.process is None:
            postgres.start()
    assert away.value.kind is FailureKind.STORE_UNAVAILABLE
    found = team.store.load(run.run_id)
    assert (found.state, found.failures) == (State.IMPLEMENT, ())
    ended = go_on(team, run.run_id, DONE)
    assert ended.test_result is not None
    assert ended.test_result.passed
    team.store.check(run.run_id)
    turns = [event for event in team.store.events(run.run_id) if isinstance(event.data, TurnStarted)]
    assert len(turns) == 4, "every turn once"


@pytest.mark.variants
def test_artifacts_that_go_away_for_a_while_cost_a_snapshot_and_the_run_says_so(
    team: Runtime, checkout: Path, s3: S3Server
) -> None:
    model = until(MAP, PLAN, RIGHT, DONE, before={2: s3.stop, 3: s3.start})
    try:
        run, events = drive(team, checkout, model)
    finally:
        if s3.process is None:
            s3.start()
    assert run.test_result is not None
    assert run.test_result.passed
    assert [failure.kind for failure in run.failures] == [FailureKind.MODEL_REFUSED], "nothing else failed"
    degraded = [event.data for event in events if isinstance(event.data, DependencyDegraded)]
    assert [(one.dependency, one.failure.kind) for one in degraded] == [
        ("artifacts", FailureKind.ARTIFACT_STORE_UNAVAILABLE)
    ]
    assert "no other machine" in degraded[0].consequence
    assert run.proposal is not None
    kept = {event.data.snapshot for event in events if isinstance(event.data, SnapshotKept)}
    assert run.proposal.snapshot in kept, "what was proposed is kept again once they are back"


def test_a_defect_that_quotes_a_key_is_on_record_without_it(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "an-unusual-key-without-any-shape"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)

    def reply(messages: object) -> str:
        raise RuntimeError(f"Illegal header value {key!r}")

    run, events = drive(runtime, checkout, ScriptedModel(reply))
    assert run.failure is not None
    assert run.failure.kind is FailureKind.INTERNAL
    assert "Illegal header value" in run.failure.message
    assert key not in "".join(event.model_dump_json() for event in events)
