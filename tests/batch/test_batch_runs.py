"""Attempts are runs: where they work, what they hand back, how they are proved, and what becomes of a quota."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from batch_kit import BatchProject, Ended, shell

from codepilot.agents import profile
from codepilot.agents.cli import profiles
from codepilot.core.attempt import Profile
from codepilot.core.failures import CodePilotError
from ready import run as run_command

DONE = "echo TASK_COMPLETE:{task_id}"
BUG = "def add(a, b):\n    return a - b\n"
TEST = "import unittest\n\nfrom calc import add\n\n\nclass AddTest(unittest.TestCase):\n    def test_add(self):\n"
TEST += "        self.assertEqual(add(1, 2), 3)\n"
AGENT = Path(__file__).parents[1] / "json_lines_agent.py"


def git(place: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", "-C", place, *identity, *words], capture_output=True, text=True, check=True).stdout


def with_profile(project: BatchProject, text: str) -> None:
    with (project.folder / "config" / "codepilot" / "codepilot.toml").open("a") as config:
        config.write(text)


@dataclass(frozen=True)
class Done:
    project: BatchProject
    ended: Ended
    tasks: dict[str, dict[str, Any]]

    def result(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.tasks[task_id]["result"]
        return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """A checkout in the seed's own layout: its tasks file lies in `run_code_agent/`, and its cwd is absolute."""
    project = BatchProject.made(tmp_path_factory.mktemp("batch") / "shop" / "run_code_agent")
    shop = project.folder.parent
    (shop / "calc.py").write_text(BUG)
    (shop / "test_calc.py").write_text(TEST)
    (shop / ".gitignore").write_text("run_code_agent/home\nrun_code_agent/config\nbuild\n")
    git(shop, "init", "-q")
    git(shop, "add", "-A")
    git(shop, "commit", "-qm", "shop")
    (shop / "note.txt").write_text("not committed\n")
    (shop / "build").mkdir()
    script = project.folder / "config" / "agent.json"
    script.write_text('[["write", "calc.py", "x = 1\\n"], ["say", "Done.\\n\\nTASK_COMPLETE:lines"]]')
    with_profile(project, f'[profiles.lines]\nadapter = "stdio:{sys.executable} {AGENT} {script}"\n')
    fix = "sed -i 's/a - b/a + b/' calc.py"
    test = "test_calc.py::AddTest::test_add"

    def task(task_id: str, command: str, **fields: Any) -> dict[str, Any]:
        return shell(task_id, f"{command}; {DONE}", **{"cwd": str(shop), **fields})

    project.write(
        task("fixed", fix, verify=test),
        task("spoiled", "echo '# x' >> calc.py", verify=test),
        task("seen", "cat note.txt; ls run_code_agent; git status --short; git log --oneline"),
        task("below", "pwd; touch new.txt", cwd=str(shop / "build")),
        task("lines", "", agent="lines", prompt_template="Do it."),
        task("nowhere", "", cwd="not/there"),
    )
    ended = project("--jobs", "2", "--json", CODEPILOT_PROJECT_RUNNER="unittest", CODEPILOT_POLICY_GENERATED_CODE="off")
    yield Done(project, ended, project.tasks())


def test_the_classes(done: Done) -> None:
    assert {name: task["status"] for name, task in done.tasks.items()} == {
        "fixed": "completed",
        "spoiled": "failed_incomplete",
        "seen": "completed",
        "below": "completed",
        "lines": "completed",
        "nowhere": "failed_process",
    }, (done.ended, done.tasks)


def test_a_change_is_proved_where_its_task_says_so(done: Done) -> None:
    assert done.result("fixed")["verdict"] == "confirmed"
    assert "+    return a + b" in Path(done.project.folder / done.result("fixed")["patch"]).read_text()
    assert done.result("spoiled")["verdict"] == "none" and "not proved" in done.result("spoiled")["message"]
    with done.project.pilot() as pilot:
        proof = pilot.run(done.result("fixed")["proof"])
        assert (proof.verdict, proof.task.kind) == ("confirmed", "prove")


def test_a_program_works_on_a_copy_with_uncommitted_files_and_a_repository_of_its_own(done: Done) -> None:
    text = done.project.log("seen", suffix=".txt").decode()
    assert "not committed" in text and "base" in text and "runs" not in text
    shop = done.project.folder.parent
    assert (shop / "calc.py").read_text() == BUG
    assert [line for line in git(shop, "status", "--short").splitlines() if "tasks.json" not in line] == ["?? note.txt"]


def test_a_directory_that_git_ignores_is_there(done: Done) -> None:
    assert done.project.log("below", suffix=".txt").decode().startswith(str(done.project.folder.parent / "build"))


def test_a_profile_may_name_a_structured_adapter(done: Done) -> None:
    assert done.result("lines")["completion_marker_seen"] and done.result("lines")["exit_code"] == 0
    assert "+x = 1" in Path(done.project.folder / done.result("lines")["patch"]).read_text()


def test_what_cannot_begin_says_why(done: Done) -> None:
    assert "no directory" in done.result("nowhere")["message"]


def test_each_attempt_is_a_run_that_can_be_shown(done: Done) -> None:
    with done.project.pilot() as pilot:
        run = pilot.run(done.result("lines")["run_id"])
        assert (run.task.kind, run.state, run.task.goal.natural.startswith("Do it.")) == ("prompt", "DONE", True)
        shown = pilot.report(run.run_id)
    assert shown.status == "DONE" and shown.verdict is None
    code, out, _ = run_command(["show", run.run_id], done.project.environ)
    assert code == 0 and "+x = 1" in out
    assert "printed TASK_COMPLETE:lines" in out and "plausible" not in out and "apply" not in out
    page = done.project.folder / "page.html"
    assert run_command(["show", run.run_id, str(page), "--html"], done.project.environ)[0] == 0
    assert "did not judge its change" in page.read_text() and "No change was made" not in page.read_text()


@pytest.fixture
def project(tmp_path: Path) -> BatchProject:
    return BatchProject.made(tmp_path)


def test_in_place_works_on_the_directory_and_nowhere_else(project: BatchProject) -> None:
    project.write(shell("in", f"echo x > made.txt; touch ../out.txt; {DONE}"), shell("own", DONE, cwd="."))
    assert project("--in-place").code == 1
    tasks = project.tasks()
    assert tasks["in"]["status"] == "completed" and "patch" not in tasks["in"]["result"]
    assert (project.work / "made.txt").read_text() == "x\n" and not (project.folder / "out.txt").exists()
    assert tasks["own"]["status"] == "failed_process" and "tasks file" in tasks["own"]["result"]["message"]


def test_a_quota_is_waited_for_if_asked(project: BatchProject) -> None:
    command = "test -e made || { touch made; echo 'Rate limit reached, try again in 2 seconds'; exit 1; }; "
    project.write(shell("a", command + DONE))
    assert project("--in-place", "--json").code == 3
    assert project.tasks()["a"]["status"] == "failed_quota"
    (project.work / "made").unlink()
    project.write(shell("a", command + DONE), shell("b", DONE))
    ended = project("--in-place", "--wait-for-quota")
    assert ended.code == 0 and "waits for its quota until" in ended.err
    assert project.tasks()["a"]["attempts"] == 2


def test_a_task_that_is_set_to_pending_has_all_its_retries_again_and_waiting_takes_none(project: BatchProject) -> None:
    count = "echo x >> count; test $(wc -l < count) -gt {more} && "
    quota = "test -e waited || {{ touch waited; echo 'Rate limit reached, try again in 1 second'; exit 1; }}; "
    again = {"status": "pending", "attempts": 4, "max_retries": 1}
    project.write(
        shell("again", (count + DONE).replace("{more}", "1"), **again),
        shell("quota", quota + "echo x >> tried; test $(wc -l < tried) -gt 1 && " + DONE, max_retries=1),
    )
    assert project("--in-place", "--wait-for-quota").code == 0
    assert {name: task["attempts"] for name, task in project.tasks().items()} == {"again": 6, "quota": 3}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([DONE, "exit 1"], 1),
        (["exit 1", "echo not logged in; exit 1"], 3),
        (["echo quota; exit 1"], 3),
        (["echo not logged in; exit 1", "true"], 3),
    ],
)
def test_the_exit_code_is_the_worst_of_all_tasks(project: BatchProject, commands: list[str], code: int) -> None:
    project.write(*(shell(f"t{number}", command) for number, command in enumerate(commands)))
    assert project("--jobs", "2").code == code
    assert project().code == code, "it says the same of what is in the file"


def test_what_this_machine_lacks_is_a_failure_of_the_platform(project: BatchProject) -> None:
    project.write(shell("a", DONE))
    nowhere = {"CODEPILOT_EXECUTOR_URL": "http://127.0.0.1:9", "CODEPILOT_EXECUTOR_TOKEN": "0123456789abcdef"}
    assert project(**nowhere).code == 4


def test_where_a_task_works_may_be_below_the_home_and_is_never_the_whole_machine(project: BatchProject) -> None:
    project.write(shell("home", f"pwd; {DONE}", cwd="~/work"), shell("all", DONE, cwd="/"))
    assert project(HOME=str(project.folder)).code == 1
    assert project.log("home").decode().startswith(str(project.work))
    assert "whole machine" in project.tasks()["all"]["result"]["message"]


def test_the_summary_shows_a_command_that_applies_a_change(project: BatchProject) -> None:
    project.write(shell("a", f"echo x > made.txt; {DONE}"))
    words = next(line for line in project().out.splitlines() if "git" in line).partition("example: ")[2].split()
    assert words[:4] == ["git", "-C", str(project.work), "apply"]
    subprocess.run(words, check=True)
    assert (project.work / "made.txt").read_text() == "x\n"


def test_a_batch_without_an_enabled_task_says_so(project: BatchProject) -> None:
    project.write(shell("a", DONE, enabled=False))
    ended = project()
    assert ended.code == 0 and "nothing to do" in ended.out


def test_one_profile_for_all_and_only_some_tasks(project: BatchProject) -> None:
    project.write(shell("a", DONE, agent="nobody"), shell("b", DONE, agent="nobody", enabled=False), shell("c", DONE))
    assert project("--agent", "shell", "--only", "a", "--only", "b").code == 0
    assert [task.get("status") for task in project.tasks().values()] == ["completed", "completed", None]
    assert project("--only", "d").code == 2


@pytest.mark.parametrize(("agent", "why", "code"), [("nobody", "no profile 'nobody'", 2), ("gone", "/gone/program", 3)])
def test_a_program_that_is_not_there_is_refused_before_any_task_fails(
    project: BatchProject, agent: str, why: str, code: int
) -> None:
    with_profile(project, '[profiles.gone]\ncommand = ["/gone/program"]\n')
    project.write(shell("a", DONE), shell("b", DONE, agent=agent))
    before = project.path.read_bytes()
    ended = project()
    assert ended.code == code and why in ended.err
    assert project.path.read_bytes() == before
    assert project("--only", "a").code == 0


def test_packages_bring_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "brought", "package:PROFILE"

        @staticmethod
        def load() -> object:
            return loaded

    monkeypatch.setattr(profiles, "entry_points", lambda group: [Point] if group == "codepilot.profiles" else [])
    monkeypatch.setattr(profiles, "_installed", profiles._installed.__wrapped__)  # type: ignore[attr-defined]
    loaded: object = Profile(command=("brought", "{prompt}"))
    assert profile("brought", {}).command == ("brought", "{prompt}") and profile("brought", {}).name == "brought"
    assert profile("brought", {"brought": Profile(max_keys=2)}).max_keys == 2
    loaded = "no profile"
    with pytest.raises(CodePilotError, match="not a Profile"):
        profile("brought", {})
