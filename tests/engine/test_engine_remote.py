"""A run whose code is executed by a service: the same change, the same proof, nothing left there."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, RIGHT, drive
from interactive_kit import MEND, Interactive, StdioAgent

from codepilot.agents import Agent, CodeActAgent
from codepilot.core.checkpoint import ModeChanged, Promoted, ViolationAcknowledged
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.core.task import TaskSpec
from codepilot.engine import Runtime, Worker, open_executor, pause, resume
from codepilot.engine.execution_context import least_elsewhere
from codepilot.models import ScriptedModel
from codepilot.sandbox import Least, Wanted
from configured import configured, reconfigured
from ready import Started

TOKEN = "a-token-for-tests-0123456789"


@dataclass(frozen=True)
class Service:
    url: str
    home: Path
    process: Started


@pytest.fixture(params=["bubblewrap", "landlock"])
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    home = tmp_path / "executor"
    shown = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), str(Path(__file__).parents[2] / "src")}
    command = ["executor", "--listen", "127.0.0.1:0", "--home", str(home), "--json"]
    command += ["--level", request.param, *(word for path in sorted(shown) for word in ("--allow-mount", path))]
    monkeypatch.setenv("CODEPILOT_EXECUTOR_TOKEN", TOKEN)
    with (tmp_path / "executor.log").open("wb") as log:
        process = Started(command, os.environ, stderr=log)
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    monkeypatch.setenv("CODEPILOT_EXECUTOR_URL", url)
    yield Service(url, home, process)
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()


def test_a_run_goes_the_same_way_through_a_service(service: Service, runtime: Runtime, checkout: Path) -> None:
    run, _ = drive(runtime, checkout, ScriptedModel([MAP, PLAN, RIGHT, DONE, APPROVE]))
    assert (run.state, run.failure, run.sandbox_level) == (State.DONE, None, run.sandbox_level)
    assert run.proposal is not None
    assert "+    return width * height" in run.proposal.patch.diff
    assert list((service.home / "workspaces").iterdir()) == []
    assert list(runtime.home.workspaces.iterdir()) == []


@pytest.mark.variants
def test_an_interactive_run_goes_the_same_way_through_a_service(
    service: Service, runtime: Runtime, checkout: Path, request: pytest.FixtureRequest
) -> None:
    """Frozen, checked, reported and promoted on the other side; `landlock` has no shadow."""
    strategy = "shadow" if "bubblewrap" in request.node.name else "direct"
    steps = [["write", "ci/run.yml", "jobs\n"], ["turn"], ["run", "rm -rf ci"], MEND, ["turn"]]
    guarded = Policy(generated_code="off", protected_areas=("ci/**",))
    work = Interactive(runtime, checkout, StdioAgent(steps), guarded, strategy=strategy)
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    assert not work.found(ModeChanged)
    first, *later = work.checkpoints()
    assert (first.status, first.strategy, later[-1].status) == ("invalid", strategy, "valid")
    assert bool(work.found(Promoted)) == (strategy == "shadow")
    assert [one.acknowledged for one in work.found(ViolationAcknowledged)] == [True]


@pytest.mark.variants
def test_a_service_that_is_weaker_than_demanded_is_refused(service: Service, runtime: Runtime, checkout: Path) -> None:
    demand = Policy(least_level="bubblewrap")
    run, _ = drive(runtime, checkout, ScriptedModel([MAP, PLAN, RIGHT, DONE, APPROVE]), demand)
    if run.sandbox_level == "bubblewrap":
        assert run.state is State.DONE
    else:
        assert (run.state, run.failure and run.failure.kind) == (State.FAILED, FailureKind.SANDBOX_UNAVAILABLE)


def test_a_service_that_is_away_says_so(runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEPILOT_EXECUTOR_URL", "http://127.0.0.1:9")
    run, _ = drive(runtime, checkout, ScriptedModel([]))
    assert (run.state, run.failure and run.failure.kind) == (State.FAILED, FailureKind.EXECUTOR_LOST)


@pytest.mark.variants
def test_a_run_goes_on_where_its_workspace_is(
    service: Service, runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pausing(messages: object) -> str:
        pause(runtime, runtime.store.find("last"))
        return MAP

    run, _ = drive(runtime, checkout, ScriptedModel(pausing))
    assert (run.state, run.executor) == (State.PAUSED, service.url)
    monkeypatch.delenv("CODEPILOT_EXECUTOR_URL")
    resume(runtime, run.run_id)
    ended = Worker(reconfigured(runtime), agent_for=_nobody).drive(run.run_id)
    assert (ended.state, ended.failure and ended.failure.kind) == (State.FAILED, FailureKind.EXECUTOR_LOST)
    assert ended.failure is not None
    assert service.url in ended.failure.message
    assert f"CODEPILOT_EXECUTOR_URL={service.url}" in ended.failure.next_action
    monkeypatch.setenv("CODEPILOT_EXECUTOR_URL", service.url)
    resume(runtime, run.run_id)
    agent = CodeActAgent(ScriptedModel([PLAN, RIGHT, DONE, APPROVE]))
    ended = Worker(reconfigured(runtime), agent_for=lambda task: agent).drive(run.run_id)
    assert ended.state is State.DONE


def _nobody(task: TaskSpec) -> Agent:
    raise AssertionError("the run is not worked on")


@pytest.mark.parametrize(
    ("wanted", "least", "needed"),
    [
        ("best", None, "landlock"),
        ("landlock", None, "landlock"),
        ("landlock", "bubblewrap", "bubblewrap"),
        ("bubblewrap", "landlock", "bubblewrap"),
        ("none", "landlock", "landlock"),
        ("none", None, None),
    ],
)
def test_the_stronger_of_two_demands_counts(wanted: Wanted, least: Least | None, needed: Least | None) -> None:
    assert least_elsewhere(wanted, Policy(least_level=least)) == needed


def test_code_and_token_do_not_travel_in_clear_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEPILOT_EXECUTOR_URL", "http://192.0.2.1:8700")
    with pytest.raises(CodePilotError, match="unencrypted") as refused:
        open_executor(configured(home=tmp_path), "best", Policy())
    assert "plain_http" in refused.value.failure.next_action
