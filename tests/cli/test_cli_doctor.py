"""`codepilot doctor` reports what a run started here would meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_kit import Command, Repo

from codepilot.engine.environment.inspection import declared_packages
from codepilot.sandbox import choose

QUICK = ("doctor", "--no-tests", "--json")


def findings(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in document["findings"]}


def test_outside_a_repository_only_the_machine_is_checked(codepilot: Command, tmp_path: Path) -> None:
    done = codepilot("doctor", "--json", cwd=tmp_path)
    assert (done.code, done.json["ok"]) == (0, True)
    found = findings(done.json)
    assert found["runs"]["detail"] == f"use {choose().level}"
    assert found["sessions"]["detail"].startswith("frozen by ")
    assert all(name in found["sessions"]["detail"] for name in choose().offer().offers)
    assert (found["project"]["status"], found["workers"]["status"]) == ("missing", "missing")
    assert "codepilot worker" in found["workers"]["advice"]
    assert "database" in found["disk use"]["detail"]
    shown = codepilot("doctor", cwd=tmp_path).out
    assert "Ready" in shown and "- notify" in shown and "✓ git" in shown


def test_the_project_of_this_directory_is_checked(codepilot: Command, repo: Repo) -> None:
    tests = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.fail()\n"
    checkout = repo(
        {
            "pyproject.toml": '[project]\nname = "x"\nversion = "1"\n'
            'dependencies = ["pydantic>=2", "left-pad-of-nobody", "no-such ; python_version < \'3\'", "my-part"]\n'
            '[tool.uv.sources]\nmy-part = {path = "part"}\n',
            "part/pyproject.toml": '[project]\nname = "My.Part"\n',
            "pkg/__init__.py": "",
            "pkg/test_x.py": tests,
        }
    )
    with codepilot.runtime() as runtime:
        runtime.store.register_worker("w-pool", takes_queued=True)
        done = codepilot("doctor", "--json", cwd=checkout / "pkg")
    assert done.code == 0, done.out + done.err
    found = findings(done.json)
    assert str(checkout) in found["project"]["detail"] and "tested by unittest" in found["project"]["detail"]
    assert found["interpreter"]["ok"]
    assert found["dependencies"]["status"] == "failed"
    assert "1 of 2 declared packages is not installed: left-pad-of-nobody" in found["dependencies"]["detail"]
    assert "codepilot prepare" in found["dependencies"]["advice"]
    assert found["tests"]["ok"] and found["tests"]["detail"].startswith("0 pass, 1 fail in ")
    assert found["workers"]["ok"] and "w-pool" in found["workers"]["detail"]
    assert "running the tests" in done.err


def test_a_suite_that_cannot_start_is_not_fine(codepilot: Command, repo: Repo) -> None:
    done = codepilot("doctor", "--json", cwd=repo({"test_x.py": "import unittest\nimport nowhere.at_all\n"}))
    found = findings(done.json)["tests"]
    assert (done.code, found["status"], found["needed"]) == (0, "failed", False)


@pytest.mark.parametrize(
    ("name", "text", "declared"),
    [
        ("requirements.txt", "# ours\nrich>=13  # shown\n-r other.txt\n./local\ngit+https://x/y\nhttpx[http2]==1\n", 2),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3"\nrich = "*"\nx = {version="1",optional=true}', 1),
        ("setup.cfg", "[options]\ninstall_requires =\n    rich\n    tomli; python_version < '3.11'\n", 1),
        ("pyproject.toml", "[project\n", 0),
        ("README", "rich\n", 0),
    ],
)  # fmt: skip
def test_packages_are_declared_in_several_files(tmp_path: Path, name: str, text: str, declared: int) -> None:
    (tmp_path / name).write_text(text)
    assert len(declared_packages(tmp_path)) == declared


@pytest.mark.parametrize("where", ["environment", "repository"])
def test_the_level_that_the_configuration_demands_is_reported(codepilot: Command, tmp_path: Path, where: str) -> None:
    environ = {"CODEPILOT_SANDBOX_LEVEL": "landlock"}
    if where == "repository":
        (tmp_path / "codepilot.toml").write_text('[policy]\nleast_level = "bubblewrap"\n')
    done = codepilot(*QUICK, cwd=tmp_path, **environ)
    runs = findings(done.json)["runs"]
    if where == "repository":
        assert done.code == 4
        assert "demands at least" in runs["detail"] and runs["advice"]
    else:
        assert runs["detail"] == "use landlock"


def test_a_mistake_in_the_configuration_is_reported_with_its_line(codepilot: Command, tmp_path: Path) -> None:
    (tmp_path / "codepilot.toml").write_text("[sandbox]\nlevle = 1\n")
    done = codepilot("doctor", cwd=tmp_path)
    assert done.code == 4
    assert "line 2: there is no setting sandbox.levle" in done.out
    assert "Not ready" in done.out


def test_an_executor_that_does_not_answer_is_reported(codepilot: Command, tmp_path: Path) -> None:
    done = codepilot(*QUICK, cwd=tmp_path, CODEPILOT_EXECUTOR_URL="http://127.0.0.1:9")
    assert done.code == 4
    assert "127.0.0.1:9" in findings(done.json)["runs"]["detail"]


def test_without_control_groups_the_watchdog_is_reported(codepilot: Command, tmp_path: Path) -> None:
    limits = findings(codepilot(*QUICK, cwd=tmp_path, CODEPILOT_CGROUPS="off").json)["limits"]
    assert limits["ok"] is True
    assert "watchdog every 25 ms; control groups are not usable" in limits["detail"]
