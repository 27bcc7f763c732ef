"""Packages that an agent asks for: nothing is fetched before the answer, then they are there, also for later runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, RIGHT, checkout, code, commit, runtime

from build_kit import result, written
from codepilot.agents import CodeActAgent
from codepilot.core.approval import ApprovalDecided
from codepilot.core.events import EnvironmentPrepared, State, TurnFinished
from codepilot.core.run import Run
from codepilot.core.task import Interaction, InteractionMode, RiskProfile, TaskKind
from codepilot.engine import CodePilot, Request, Runtime, Worker, make_task, submit
from codepilot.engine.audit import audit
from codepilot.engine.control import decide_approval
from codepilot.models import ScriptedModel
from configured import configured
from package_index import NpmRegistry, PackageIndex

__all__ = ["checkout", "runtime"]

INSTALL = code("print(run_command(['pip', 'install', 'greetlib']))")
USE = code("import greetlib\nprint(greetlib.HELLO)")
FREE = RiskProfile(interaction=Interaction(mode=InteractionMode.FULL_AUTONOMY))


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with PackageIndex({"greetlib": "HELLO = 'hello from the registry'\n", "pytest": ""}) as served:
        yield served


@pytest.fixture
def online(runtime: Runtime, index: PackageIndex) -> Runtime:
    """The runtime of a user whose pip knows this registry alone."""
    environ = {**index.environ, "CODEPILOT_POLICY_GENERATED_CODE": "off"}
    return replace(runtime, settings=configured(environ, home=runtime.home.path))


def driven(runtime: Runtime, run: Run, agent: CodeActAgent) -> Run:
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    runtime.store.check(run.run_id)
    return ended


def started(runtime: Runtime, checkout: Path, *replies: str, **contract: object) -> tuple[Run, CodeActAgent]:
    task = make_task(Request(repo=str(checkout)), runtime.settings).model_copy(update={"agent": "codeact", **contract})
    agent = CodeActAgent(ScriptedModel([MAP, PLAN, *replies, RIGHT, DONE, APPROVE]))
    return driven(runtime, submit(runtime, task), agent), agent


def allowed(runtime: Runtime, run: Run, agent: CodeActAgent) -> Run:
    assert run.open_request is not None, run.failure
    decide_approval(
        runtime, run.run_id, ApprovalDecided(approval_id=run.open_request.approval_id, decision="once", by="ada")
    )
    return driven(runtime, run, agent)


def observed(runtime: Runtime, run: Run) -> str:
    events = runtime.store.events(run.run_id)
    return "\n".join(str(event.data.observation) for event in events if isinstance(event.data, TurnFinished))


def test_an_allowed_package_is_installed_once_and_later_runs_have_it_without_the_registry(
    online: Runtime, checkout: Path, index: PackageIndex
) -> None:
    run, agent = started(online, checkout, INSTALL, USE)
    assert run.open_request is not None, run.failure
    assert (run.open_request.operation, run.open_request.details) == ("install", "greetlib")
    assert index.asked == []
    ended = allowed(online, run, agent)
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert "hello from the registry" in observed(online, run)
    (prepared,) = (e.data for e in online.store.events(run.run_id) if isinstance(e.data, EnvironmentPrepared))
    assert prepared.packages == ("greetlib",) and len(prepared.hosts) == 1
    (entry,) = (one for one in audit(online, run.run_id) if one.what == "installed")
    assert entry.subject == "greetlib" and prepared.hosts[0] in entry.reason
    fetched = len(index.asked)
    assert fetched >= 2
    asked = code("if request_permission('install', 'greetlib', 'to greet'):\n    pass")
    again, agent = started(online, checkout, asked, USE)
    ended = allowed(online, again, agent)
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert "hello from the registry" in observed(online, again)
    assert len(index.asked) == fetched


@pytest.mark.builds
def test_a_package_that_the_registry_lacks_is_an_observation(online: Runtime, checkout: Path) -> None:
    missing = INSTALL.replace("greetlib", "nosuchlib")
    run, _ = started(online, checkout, missing, risk_profile=FREE)
    assert (run.state, run.failure) == (State.DONE, None)
    assert "[not installed]" in observed(online, run) and "nosuchlib" in observed(online, run)


@pytest.mark.builds
def test_a_build_gets_the_package_that_was_allowed(online: Runtime, tmp_path: Path, index: PackageIndex) -> None:
    plan = result(
        nodes=[
            {"id": "one", "title": "Greet"},
            {"id": "two", "title": "Test it", "role": "Tester", "depends_on": ["one"]},
        ]
    )
    program = "import greetlib\n\n\ndef greeting():\n    return greetlib.HELLO\n"
    tests = "from greet import greeting\n\n\ndef test_greeting():\n    assert greeting().startswith('hello')\n"
    model = ScriptedModel(
        [
            plan,
            written({"greet.py": program, "requirements.txt": "greetlib\n", "README.md": "# Greet\n"}),
            result(rationale="it greets"),
            written({"tests/test_greet.py": tests}),
            result(tests=["tests/test_greet.py"], rationale="the greeting"),
        ]
    )
    agent = CodeActAgent(model)
    asked = Request(repo=str(tmp_path / "greet"), kind=TaskKind.BUILD, prompt="Build a program that greets people")
    settings = online.settings.model_copy(update={"environ": {**online.settings.environ, "ANTHROPIC_API_KEY": "x"}})
    run = driven(online, submit(online, make_task(asked, settings)), agent)
    assert run.open_request is not None, run.failure
    assert (run.open_request.operation, run.open_request.details) == ("install", "greetlib")
    assert index.asked == []
    ended = allowed(online, run, agent)
    assert (ended.state, ended.failure, ended.verdict) == (State.DONE, None, "confirmed")


@pytest.mark.builds
def test_a_prepared_project_is_tested_with_its_dependencies(
    online: Runtime, checkout: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (checkout / "requirements.txt").write_text("greetlib\n")
    with (checkout / "test_shapes.py").open("a") as tests:
        tests.write("\n    def test_greeting(self):\n        import greetlib\n        greetlib.HELLO.upper()\n")
    environ = {name: value for name, value in online.settings.environ.items() if name != "VIRTUAL_ENV"}
    settings = online.settings.model_copy(update={"environ": environ})
    with CodePilot(settings) as pilot:
        assert not pilot.look_at_dependencies(str(checkout)).done
        assert pilot.prepare(str(checkout)).done
        task = pilot.task(Request(repo=str(checkout), tests=("test_shapes.ShapesTest.test_area",)))
        assert pilot.inspect(task).origin == "made by `codepilot prepare`"
    agent = CodeActAgent(ScriptedModel([MAP, PLAN, RIGHT, DONE, APPROVE]))
    opened = replace(online, settings=settings)
    ended = driven(opened, submit(opened, task.model_copy(update={"agent": "codeact"})), agent)
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert ended.baseline is not None and ended.baseline.before.passed == 2, ended.baseline


@pytest.mark.builds
def test_npm_packages_are_prepared_and_installed_for_a_build(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CODEPILOT_PROJECT_RUNNER")
    project = make_package(tmp_path / "shop")
    with NpmRegistry({"greetlib": "export const HELLO = 'hello from the registry';\n"}) as registry:
        environ = {**registry.environ, "CODEPILOT_POLICY_GENERATED_CODE": "off", "ANTHROPIC_API_KEY": "x"}
        online = replace(runtime, settings=configured(environ, home=runtime.home.path))
        with CodePilot(online.settings) as pilot:
            assert not pilot.look_at_dependencies(str(project)).done
            assert pilot.prepare(str(project)).done
        fixed = (project / "greet.js").read_text().replace("toLowerCase", "toUpperCase")
        write = code(f"write_file('greet.js', {fixed!r})")
        task = make_task(Request(repo=str(project)), online.settings).model_copy(update={"agent": "codeact"})
        ended = driven(online, submit(online, task), CodeActAgent(ScriptedModel([MAP, PLAN, write, DONE, APPROVE])))
        assert (ended.state, ended.failure) == (State.DONE, None)
        fetched = len(registry.asked)
        files = {
            "package.json": '{"name": "g", "type": "module", "scripts": {"test": "node --test"}}',
            "greet.js": "import { HELLO } from 'greetlib';\n\nexport const greeting = () => HELLO;\n",
            "README.md": "# Greet\n",
        }
        test = (
            "import assert from 'node:assert';\nimport { test } from 'node:test';\n"
            "import { greeting } from '../greet.js';\n\ntest('greets', () => assert.match(greeting(), /hello/));\n"
        )
        plan = result(
            nodes=[
                {"id": "one", "title": "Greet"},
                {"id": "two", "title": "Test it", "role": "Tester", "depends_on": ["one"]},
            ]
        )
        replies = (plan, written(files), result(rationale="it greets"))
        tested = (written({"test/greet.test.js": test}), result(tests=["greets"], rationale="the greeting"))
        agent = CodeActAgent(ScriptedModel([*replies, *tested]))
        asked = Request(
            repo=str(tmp_path / "g"), kind=TaskKind.BUILD, prompt="Build a program that greets people", language="node"
        )
        run = driven(online, submit(online, make_task(asked, online.settings)), agent)
        assert run.open_request is not None, run.failure
        assert (run.open_request.operation, run.open_request.details) == ("install", "greetlib")
        assert len(registry.asked) == fetched
        ended = allowed(online, run, agent)
        assert (ended.state, ended.failure, ended.verdict) == (State.DONE, None, "confirmed")


def make_package(place: Path) -> Path:
    place.mkdir()
    package = {"name": "shop", "type": "module", "dependencies": {"greetlib": "^1.0.0"}}
    (place / "package.json").write_text(json.dumps({**package, "scripts": {"test": "node --test"}}))
    (place / "greet.js").write_text(
        "import { HELLO } from 'greetlib';\n\nexport const greet = () => HELLO.toLowerCase();\n"
    )
    (place / "greet.test.js").write_text(
        "import assert from 'node:assert';\nimport { test } from 'node:test';\nimport { greet } from './greet.js';\n\n"
        "test('greets loudly', () => assert.equal(greet(), 'HELLO FROM THE REGISTRY'));\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    commit(place, "first")
    return place
