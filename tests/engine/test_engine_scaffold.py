"""New modules: made, tested in the sandbox, proved on a clean copy, and only then handed over."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from engine_kit import CHEAP, code, commit, result, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine import Request, Runtime, Worker, apply_run, make_task, submit
from codepilot.engine.kinds.module_request import make_scaffold
from codepilot.models import ScriptedModel
from configured import reconfigured
from toolchains import POM, maven_home, toolchain


def made(
    runtime: Runtime,
    ecosystem: str,
    name: str,
    *,
    into: Path | None = None,
    out: Path | None = None,
    model: ScriptedModel | None = None,
    **asked: object,
) -> Run:
    wanted = make_scaffold(ecosystem, name, "", None, None if into is None else str(into), None)
    request = Request(repo=str(into or out), kind=TaskKind.SCAFFOLD, scaffold=wanted, agent="template", **asked)  # type: ignore[arg-type]
    task = make_task(request, CHEAP)
    if model is None:
        return Worker(runtime).drive(submit(runtime, task).run_id)
    task = task.model_copy(update={"model": "scripted", "agent": "codeact"})
    return Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(submit(runtime, task).run_id)


def test_a_python_module_is_proved_and_handed_over_once(runtime: Runtime, tmp_path: Path) -> None:
    place = tmp_path / "new" / "order-history"
    run = made(runtime, "python", "order-history", out=place)
    assert (run.state, run.verdict, run.failure) == (State.DONE, "confirmed", None)
    assert run.test_result is not None
    gates = {gate.name: gate.ok for gate in run.test_result.gates}
    assert gates == {"pass_to_pass": True, "compiles": True, "own_tests": True}
    assert not place.exists()
    place.mkdir(parents=True)  # as an apply leaves it that is killed before it writes anything
    assert "pyproject.toml" in apply_run(runtime, run.run_id, accept_plausible=False).files
    (place / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(CodePilotError):
        apply_run(runtime, run.run_id, accept_plausible=False)
    with pytest.raises(CodePilotError, match="exists"):
        made(runtime, "python", "order-history", out=place)
    assert (place / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_package_joins_an_npm_workspace_and_a_dry_run_leaves_it_alone(runtime: Runtime, tmp_path: Path) -> None:
    toolchain("node")
    root = tmp_path / "all"
    root.mkdir()
    (root / "package.json").write_text('{"workspaces": ["parts/one"]}\n', encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    commit(root, "first")
    run = made(runtime, "npm", "two", into=root, dry_run=True)
    assert (run.state, run.verdict, run.failure) == (State.DONE, "confirmed", None)
    with pytest.raises(CodePilotError, match="dry run") as refused:
        apply_run(runtime, run.run_id, accept_plausible=True)
    assert refused.value.kind is FailureKind.DENIED and not (root / "parts").exists()


WRITTEN = code(
    "import os\n"
    "write_file('src/adder/greeting.py', 'def greet(a, b):\\n    return a + b\\n')\n"
    "write_file('tests/test_adder.py', 'from adder import greet\\n\\n\\n"
    "def test_adds():\\n    assert greet(1, 2) == 3\\n')\nprint('done')"
)
BENT = code("write_file('tests/test_adder.py', '')\nprint('done')")
DONE = result(rationale="as described")


def test_a_model_fills_the_template_in_under_the_same_gates(runtime: Runtime, tmp_path: Path) -> None:
    model = until(BENT, DONE, WRITTEN, DONE)
    run = made(runtime, "python", "adder", out=tmp_path / "adder", model=model, prompt="It adds two numbers")
    assert (run.state, run.verdict, run.failure) == (State.DONE, "confirmed", None)
    assert run.spent.iterations == 2
    applied = apply_run(runtime, run.run_id, accept_plausible=False)
    assert (tmp_path / "adder/src/adder/greeting.py").read_text(encoding="utf-8").startswith("def greet(a, b)")
    assert "pyproject.toml" in applied.files


@pytest.mark.languages
def test_a_module_joins_a_reactor_and_the_whole_reactor_passes(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = maven_home(tmp_path / "user")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CODEPILOT_PROJECT_RUNNER")
    root = tmp_path / "shop"
    root.mkdir()
    parent = POM.replace("<version>1</version>\n", "<version>1</version><packaging>pom</packaging>\n", 1)
    (root / "pom.xml").write_text(parent, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    commit(root, "first")
    for name, passed in (("core", 2), ("billing", 4)):
        run = made(reconfigured(runtime), "maven", name, into=root)
        assert (run.verdict, run.failure) == ("confirmed", None)
        assert run.proof is not None and run.proof.after.passed == passed
        apply_run(runtime, run.run_id, accept_plausible=False)
    repository = f"-Dmaven.repo.local={home / '.m2/repository'}"
    done = subprocess.run(["mvn", "-B", "-o", "-q", repository, "test"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(list(root.glob("*/target/surefire-reports/*.txt"))) == 2
