"""Calls as models really make them, in a kernel inside: what is meant is done, and errors tell the next step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from codepilot.core.task import Capability
from codepilot.sandbox import CodeResult, Kernel, Limits, Mount, SandboxSpec, choose
from codepilot.skills import basic_skills

SETUP = r"""
import os
from pathlib import Path
os.makedirs("src/pkg"); os.makedirs("tests")
Path("src/pkg/calc.py").write_text("def add(a, b):\n    return a - b\n")
Path("src/pkg/__init__.py").write_text("")
Path("bin.dat").write_bytes(b"\0\xff" * 100)
Path("page.txt").write_bytes(b"one\x0c\r\ntwo\r\nthree")
Path("big.log").write_text("".join("line %d\n" % n for n in range(400_000)))
os.symlink("/etc/passwd", "out"); os.symlink("nowhere", "dangling"); os.symlink("loop", "loop")
os.mkfifo("pipe")
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    tree = tmp_path_factory.mktemp("calls").resolve() / "tree"
    tree.mkdir()
    skills = basic_skills()
    capability = Capability.WRITE_AND_RUN_TESTS
    view = SandboxSpec(Mount(tree, tree, writable=True))
    prelude = skills.prelude(capability, prepare=True)
    kernel = Kernel(choose("best"), view, Limits(), prelude=prelude, answer=skills.answer(capability))
    assert kernel.run(SETUP).status == "ok"
    yield kernel
    kernel.stop()


def error_text(result: CodeResult) -> str:
    assert result.error is not None, result
    return f"{result.error.type}: {result.error.message}"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("read_file(Path('src/pkg/calc.py'))[:7]", "'def add'"),
        ("read_file(os.path.abspath('src/pkg/calc.py'))[:7]", "'def add'"),
        ("read_file(path='./src/../src/pkg/calc.py')[:7]", "'def add'"),
        ("write_file(content='x', path=Path('new/x.txt')); read_file('new/x.txt')", "'x'"),
        ("list_files(None, '*.py')", "['src/pkg/__init__.py', 'src/pkg/calc.py']"),
        ("list_files(pattern='*.{log,dat}')", "['big.log', 'bin.dat']"),
        ("list_files(pattern='[!_a-b]*.py')", "['src/pkg/calc.py']"),
        ("list_files(pattern='[')", "[]"),
        ("search_code('add', Path('src'))", "[src/pkg/calc.py:1: def add(a, b):]"),
        ("search_code('two', 'page.txt')", "[page.txt:2: two]"),
        ("search_code('line 399999', 'big.log')", "[big.log:400000: line 399999]"),
        ("search_code('', 'src/pkg/__init__.py')", "[]"),
        ("run_command(['ls', Path('src')], timeout=None).stdout", r"'pkg\n'"),
        ("run_command(('ls', 'src')).ok", "True"),
        ("git_diff(None) == git_diff()", "True"),
    ],
)
def test_what_is_meant_is_done(kernel: Kernel, code: str, value: str) -> None:
    result = kernel.run(code)
    assert (result.error, result.value) == (None, value)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("read_file()", "BadArguments: read_file needs 'path'. Call it as read_file(path: str)."),
        ("read_file(file_path='x')", "BadArguments: read_file has no argument 'file_path'. Call it as read_file(path"),
        ("read_file('a', 1, 10)", "read_file takes at most 1 arguments by position, not 3. Call it as"),
        ("read_file('a', path='b')", "read_file was given 'path' twice, by position and by name."),
        ("read_file(b'x')", "read_file takes 'path' as str, not as bytes."),
        ("read_file(['x'])", "read_file takes 'path' as str, not as list."),
        ("write_file('x', {'a': 1})", "write_file takes 'content' as str, not as dict."),
        (
            "search_code('add', 'src', '*.py')",
            "takes 'limit' as int, not as str. Call it as search_code(pattern: str, ",
        ),
        ("apply_patch(None)", "apply_patch takes 'diff' as str, not as NoneType."),
        (
            "run_tests(path='tests')",
            "run_tests has no argument 'path'. Call it as run_tests(tests: list[str] | None = ",
        ),
        ("parse_surefire_xml(b'<a/>')", "parse_surefire_xml takes 'report' as str, not as bytes."),
        ("check_policy('', max_lines=3)", "check_policy has no argument 'max_lines'. Call it as check_policy(diff: "),
        ("read_file('calc.py')", "PathError: There is no calc.py. Did you mean src/pkg/calc.py?"),
        ("read_file('/workspace/src/pkg/calc.py')", "leads out of the workspace. Use paths relative to its root. Did"),
        ("read_file('/etc/passwd')", "/etc/passwd leads out of the workspace. Use paths relative to its root."),
        ("read_file('out')", "out leads out of the workspace."),
        ("read_file('src')", "src is a directory; use list_files."),
        ("read_file('')", "The empty path is a directory; use list_files."),
        ("read_file('src/pkg/calc.py/x')", "There is no src/pkg/calc.py/x: a part of it is a file."),
        ("read_file('dangling')", "dangling is a link to nowhere, which is not there."),
        ("read_file('loop')", "PathError: 'loop' cannot be a path: "),
        ("read_file('pipe')", "pipe is no ordinary file and cannot be read."),
        ("write_file('pipe', 'x')", "pipe is no ordinary file"),
        ("read_file('x' * 5000)", "…' cannot be a path: file name too long."),
        (r"read_file('\ud800')", "cannot be a path: it holds characters that no file name can have."),
        (r"read_file('a\0b')", "A path cannot contain a zero byte."),
        (
            "search_code('add(')",
            "'add(' is not a regular expression: missing ), unterminated subpattern at position 3.",
        ),
        ("search_code('src', 'def add')", "There is no def add. Is it search_code('def add', 'src')?"),
        ("search_code('add', '*.py')", "There is no *.py. Name a directory or a file; list_files(pattern=...) gives"),
        ("search_code('x', 'bin.dat')", "bin.dat is binary; its bytes can be read with pathlib."),
        ("search_code('x', 'pipe')", "pipe is no ordinary file and cannot be searched."),
        ("search_code('add', limit=0)", "limit is 0; it must be 1 or more."),
        ("run_command('ls -la')", 'takes a list of strings, one for each argument, like ["ls", "-la"].'),
        ("run_command(['ls -la'])", 'takes a list of strings, one for each argument, like ["ls", "-la"].'),
        ("run_command([])", 'takes a list of strings, one for each argument, like ["python", "-m", "pytest", "-q"].'),
        ("run_command(['ls', 3])", "run_command takes a list of strings; str() what is not one."),
        ("run_command(['ls'], 'src')", "run_command takes 'timeout' as float, not as str."),
        ("run_command(['ls'], timeout=0)", "The timeout is 0 s; it must be more than 0"),
        ("run_command(['ls'], timeout=float('nan'))", "The timeout is nan s; it must be more than 0"),
        (r"run_command(['ls', 'a\0b'])", "No argument of a program can hold a zero byte"),
        (r"run_command(['ls', '\ud800'])", "No argument of a program can hold a zero byte"),
        ("run_tests('tests/a.py')", 'run_tests takes a list of names, like ["tests/a.py"], or nothing for all.'),
        ("git_diff('src')", 'For one path: run_command(["git", "diff", "--", "src"])'),
        ("git_reset('HEAD~1')", "'HEAD~1' names no commit here. The base is HEAD; there is no other history."),
        ("parse_surefire_xml('target/x.xml')", "it is no XML. Give its text: parse_surefire_xml(read_file(path))."),
        ("check_policy('x = 1')", "This is not a unified diff: no lines name a file"),
        ("score_patch_quality('x = 1')", "Use what git_diff() gives."),
    ],
)
def test_what_cannot_be_done_tells_the_next_step(kernel: Kernel, code: str, error: str) -> None:
    result = kernel.run(code)
    assert error in error_text(result)
    assert [call.status for call in result.calls] == ["error"]


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["bash", "-c", "ls | wc"], "there is no shell; run the program itself, and use Python for pipes"),
        (["cd", "src"], "every command runs in the workspace's root"),
        (["pip", "install", "x"], "packages are installed only if a person allows it"),
        (["rm", "-r", "src"], "use pathlib and shutil"),
        (["frobnicate"], "only these programs may be run: cargo, cat"),
    ],
)
def test_programs_that_are_not_there_have_a_substitute(kernel: Kernel, command: list[str], instead: str) -> None:
    result = kernel.run(f"run_command({command})")
    assert instead in error_text(result)
    assert [call.status for call in result.calls] == ["policy_violation"]


def test_signs_of_a_shell_are_explained_when_they_did_harm(kernel: Kernel) -> None:
    for harmed in (["ls", "*.py"], ["ls", "src", "|", "wc"]):
        assert kernel.run(f"'There is no shell: ' in run_command({harmed}).stderr").value == "True"
    for harmless in (["grep", "-c", "a*", "src/pkg/calc.py"], ["ls", "nowhere"]):
        assert kernel.run(f"'no shell' in run_command({harmless}).stderr").value == "False"


def test_a_file_that_cannot_be_read_does_not_take_the_base_away(tmp_path: Path) -> None:
    tree = tmp_path.resolve() / "tree"
    tree.mkdir()
    (tree / "a.txt").write_text("a\n")
    skills = basic_skills()
    view = SandboxSpec(Mount(tree, tree, writable=True))
    kernel = Kernel(choose("best"), view, Limits())
    try:
        kernel.run("import os\nopen('secret', 'w').close()\nos.chmod('secret', 0)")
        kernel.run(skills.prelude(Capability.WRITE_AND_RUN_TESTS, prepare=True))
        kernel.run("write_file('a.txt', 'b\\n')")
        assert kernel.run("git_status()").value == "changed a.txt\nuntracked secret"
        assert 'error: open("secret"): Permission denied' in error_text(kernel.run("git_diff()"))
        assert "os.chmod or remove that file." in error_text(kernel.run("git_diff()"))
        assert kernel.run("os.remove('secret'); '+b' in git_diff()").value == "True"
    finally:
        kernel.stop()
