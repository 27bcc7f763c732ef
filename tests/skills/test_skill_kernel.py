"""Skills where they live: in a kernel, inside the sandbox."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codepilot.core.task import Capability
from codepilot.sandbox import CodeResult, Kernel, Limits, Mount, SandboxSpec, choose
from codepilot.skills import Registry, SkillPolicy, Target, basic_skills

Run = Callable[[str], CodeResult]


def registry() -> Registry:
    skills = basic_skills()

    @skills.skill(SkillPolicy(target=Target.LOCAL, needs=Capability.FULL_SHELL))
    def mighty(text: str) -> str:
        """Needs everything."""
        return text

    @skills.skill(SkillPolicy(target=Target.LOCAL, timeout_sec=0.2))
    def slow() -> int:
        """Takes too long."""
        import time

        time.sleep(3)
        return 1

    return skills


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    sandbox = choose("best")
    tree = tmp_path_factory.mktemp("kernel").resolve() / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("a\n")
    skills = registry()
    prelude = skills.prelude(Capability.WRITE_AND_RUN_TESTS, prepare=True)
    answer = skills.answer(Capability.WRITE_AND_RUN_TESTS)
    kernel = Kernel(sandbox, SandboxSpec(Mount(tree, tree, writable=True)), Limits(), prelude=prelude, answer=answer)
    yield kernel
    kernel.stop()


def reported(result: CodeResult) -> list[tuple[str, str]]:
    return [(call.skill, call.status) for call in result.calls]


def test_each_call_is_reported_with_its_outcome_and_its_time(kernel: Kernel) -> None:
    result = kernel.run("read_file('a.txt')\ntry:\n    read_file('none')\nexcept Exception as e: print(e)")
    assert reported(result) == [("read_file", "success"), ("read_file", "error")]
    assert all(0 < call.duration_ms < 10_000 for call in result.calls)
    assert kernel.run("1").calls == ()


def test_a_skill_that_uses_others_counts_once(kernel: Kernel) -> None:
    patch = "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n"
    assert reported(kernel.run(f"apply_patch({patch!r}); create_file('c.txt', '')")) == [
        ("apply_patch", "success"),
        ("create_file", "success"),
    ]
    status = kernel.run("git_status()")
    assert (status.value, reported(status)) == ("untracked c.txt\nuntracked new.txt", [("git_status", "success")])


def test_violations_are_reported_also_when_the_action_caught_them(kernel: Kernel) -> None:
    code = "for path in ('.git/config', 'x/.GIT/hooks'):\n    try: write_file(path, '')\n    except Exception: pass"
    result = kernel.run(code)
    assert (result.status, reported(result)) == ("ok", [("write_file", "policy_violation")] * 2)
    assert result.calls[0].violation.startswith("[path.git] write_file: .git/config")


def test_a_traceback_shows_the_agents_own_lines(kernel: Kernel) -> None:
    error = kernel.run("x = 1\n\nread_file('no such file')").error
    assert error is not None
    assert (error.line, error.type) == (3, "PathError")
    assert "read_file('no such file')" in error.traceback
    assert "<skills" not in error.traceback
    assert "kernel.py" not in error.traceback
    assert "There is no no such file." in error.traceback


def test_help_and_signatures_work(kernel: Kernel) -> None:
    assert kernel.run("import inspect; str(inspect.signature(read_file))").value == "\"(path: 'str') -> 'str'\""
    shown = kernel.run("help(search_code); help(check_policy)").stdout
    assert "search_code(pattern: 'str', path: 'str' = '.', limit: 'int' = 200) -> 'list[Hit]'" in shown
    assert "The lines that match a Python regular expression" in shown
    assert "Keys: name, ok, evidence." in shown


def test_local_skills_are_called_on_the_hosts_side_and_give_plain_data(kernel: Kernel) -> None:
    result = kernel.run("check_policy('--- a/x\\n+++ b/x\\n@@ -1 +1 @@\\n-a\\n+breakpoint()\\n')[2]['ok']")
    assert (result.value, reported(result)) == ("False", [("check_policy", "success")])
    wrong = kernel.run("check_policy(object())")
    assert wrong.error is not None
    assert "check_policy takes 'diff' as str, not as object. Call it as check_policy(diff: str" in wrong.error.message
    wrong = kernel.run("check_policy('', patch_lines='many')")
    assert wrong.error is not None
    assert "patch_lines" in wrong.error.message
    assert reported(wrong) == [("check_policy", "error")]


def test_a_local_skill_at_its_timeout_leaves_the_kernel_as_it_was(kernel: Kernel) -> None:
    kernel.run("kept = 1")
    result = kernel.run("slow()")
    assert reported(result) == [("slow", "timeout")]
    assert kernel.run("kept").value == "1"


def test_the_host_holds_to_the_capability_whatever_the_namespace_holds(kernel: Kernel) -> None:
    assert kernel.run("'mighty' in globals()").value == "False"
    ask = "import codepilot_kernel as k\n"
    asked = kernel.run(ask + "k.ask('mighty', {'text': 'x'})['error']['kind']")
    assert asked.value == "'tool_permission_denied'"
    asked = kernel.run(ask + "k.ask('read_file', {'path': '/etc/passwd'})['error']['kind']")
    assert asked.value == "'tool_invalid_args'"
    asked = kernel.run(ask + "k.ask('nothing', {})['error']['kind']")
    assert asked.value == "'tool_invalid_args'"


@pytest.mark.parametrize(
    "line",
    [
        '{"call": 1, "skill": "check_policy", "arguments": {"diff": ""}}',
        '{"call": "x", "skill": 3, "arguments": []}',
        '{"call": null}',
        '{"call": 1e400, "skill": "slow", "arguments": {"a": NaN}}',
    ],
)
def test_forged_calls_harm_nobody(kernel: Kernel, line: str) -> None:
    forge = f"import os\nfor fd in range(100, 106):\n    try: os.write(fd, {line!r}.encode() + b'\\n')\n"
    forge += "    except OSError: pass"
    kernel.run(forge)
    assert kernel.run("1 + 1").value == "2"
    assert kernel.run("check_policy('')[0]['ok']").value == "True"


def test_what_is_reported_of_calls_is_bounded(kernel: Kernel) -> None:
    result = kernel.run("for _ in range(3000): list_files('.', 'nothing')")
    assert len(result.calls) == 1_000
    note = (
        "import codepilot_kernel as k\nfor n in range(5000): k.note('x' * 10_000, 'policy_violation', 0, 'y' * 10_000)"
    )
    result = kernel.run(note)
    assert len(result.calls) <= 1_100
    assert max(len(call.skill) for call in result.calls) <= 100
    assert max(len(call.violation) for call in result.calls) <= 500


def test_a_skill_is_stopped_at_its_timeout(tmp_path: Path) -> None:
    skills = Registry()
    module = tmp_path / "sleepy_skill.py"
    module.write_text('def sleepy() -> None:\n    """Sleeps."""\n    while True:\n        pass\n')
    sys.path.insert(0, os.fspath(tmp_path))
    try:
        import sleepy_skill
    finally:
        sys.path.remove(os.fspath(tmp_path))
    skills.skill(SkillPolicy(timeout_sec=0.2))(sleepy_skill.sleepy)
    tree = tmp_path / "tree"
    tree.mkdir()
    view = SandboxSpec(Mount(tree.resolve(), tree.resolve(), writable=True))
    kernel = Kernel(choose("best"), view, Limits(), prelude=skills.prelude(Capability.READ_ONLY))
    try:
        result = kernel.run("kept = 1\nsleepy()")
        assert reported(result) == [("sleepy", "timeout")]
        assert result.error is not None
        assert "took longer than its 0.2 s" in result.error.message
        assert kernel.run("kept").value == "1"
    finally:
        kernel.stop()
