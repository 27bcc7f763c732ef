"""The skills' source, loaded as the kernel loads it, working in a directory of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.task import Capability
from codepilot.repair import Candidate
from codepilot.skills import basic_skills

Load = Callable[..., dict[str, Any]]


def test_files_are_written_read_and_listed(load: Load) -> None:
    k = load()
    k["write_file"]("src/é b.py", "x = 1\r\n")
    k["create_file"]("top.txt", "top\n")
    Path(".git").mkdir()
    Path(".git/config").write_text("hidden")
    assert k["read_file"]("src/é b.py") == "x = 1\r\n"
    assert k["list_files"]() == ["src/é b.py", "top.txt"]
    assert k["list_files"](pattern="*.py") == ["src/é b.py"]
    assert k["list_files"](pattern="*/*.py") == ["src/é b.py"]
    assert k["list_files"]("src", "**/*.txt") == []
    with pytest.raises(Exception, match="exists already"):
        k["create_file"]("top.txt", "again")


def test_text_that_is_not_utf8_comes_back_byte_for_byte(load: Load) -> None:
    k = load()
    Path("latin.py").write_bytes(b"name = 'caf\xe9'\r\nother = 1\r\n")
    k["write_file"]("latin.py", k["read_file"]("latin.py").replace("other = 1", "other = 2"))
    assert Path("latin.py").read_bytes() == b"name = 'caf\xe9'\r\nother = 2\r\n"
    k["apply_patch"]("--- a/latin.py\n+++ b/latin.py\n@@ -1,2 +1,2 @@\n name = 'café'\n-other = 2\n+other = 3\n")
    assert Path("latin.py").read_bytes() == b"name = 'caf\xe9'\r\nother = 3\r\n"
    with pytest.raises(Exception, match="cannot hold '€'"):
        k["write_file"]("latin.py", "€")


def test_the_diff_of_a_candidate_applies_to_a_file_that_is_not_utf8(load: Load) -> None:
    k = load()
    before, after = (b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'[:%d]" % number for number in (3, 4))
    Path("latin.py").write_bytes(before)
    k["apply_patch"](Candidate("latin.py", before, after, "template", "rationale", 1.0, 0).diff)
    assert Path("latin.py").read_bytes() == after


def test_an_edit_replaces_the_one_place_where_a_text_stands(load: Load) -> None:
    k = load()
    Path("latin.py").write_bytes(b"name = 'caf\xe9'\r\nother = 1\r\nlast = 1\r\n")
    assert k["edit_file"]("latin.py", "other = 1", "other = 2") == "edited latin.py, line 2"
    assert Path("latin.py").read_bytes() == b"name = 'caf\xe9'\r\nother = 2\r\nlast = 1\r\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("x = 1\n", "", r"contains `old` 2 times, from lines 1, 3\."),
        ("absent", "x", r"contains `old` 0 times\.$"),
        ("if y:\n  pass", "x", "Line 4 differs only in blanks"),
        ("", "x", "`old` is empty"),
        ("y", "y", "the same as `new`"),
        ("--", "x", r"contains `old` 2 times, from lines 6, 6\."),
        ("z = 1\nif w:", "x", r"contains `old` 0 times. The nearest lines are:\n3: x = 1\n4: if y:$"),
    ],
)
def test_an_edit_that_is_not_exact_changes_nothing_and_says_why(load: Load, old: str, new: str, why: str) -> None:
    k = load()
    text = "x = 1\n\nx = 1\nif y:\n    pass\n---\n"
    Path("a.py").write_text(text)
    with pytest.raises(Exception, match=why):
        k["edit_file"]("a.py", old, new)
    assert Path("a.py").read_text() == text


def test_an_edit_tells_of_line_endings(load: Load) -> None:
    k = load()
    Path("a.py").write_bytes(b"a\r\nb\r\n")
    with pytest.raises(Exception, match="end in"):
        k["edit_file"]("a.py", "a\nb", "c")


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "link/secret", "a/../../x", "zero\0byte"])
def test_paths_that_lead_out_are_refused(load: Load, path: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    Path("link").symlink_to(tmp_path)
    k = load()
    for skill, arguments in (
        ("read_file", ()),
        ("write_file", ("x",)),
        ("create_file", ("x",)),
        ("edit_file", ("x", "y")),
    ):
        with pytest.raises(Exception, match=r"leads out of the workspace|zero byte"):
            k[skill](path, *arguments)
    assert (tmp_path / "secret").read_text() == "s"


def test_a_missing_file_suggests_others(load: Load) -> None:
    k = load()
    k["write_file"]("pkg/deep/mod.py", "")
    with pytest.raises(Exception, match=r"There is no mod.py. Did you mean pkg/deep/mod.py\?"):
        k["read_file"]("mod.py")


def test_git_itself_may_not_be_written(load: Load) -> None:
    k = load()
    for path in (".git/hooks/pre-commit", "sub/.git/config"):
        with pytest.raises(Exception, match=r"\[path.git\]") as caught:
            k["write_file"](path, "x")
        assert type(caught.value).__name__ == "PolicyError"
    with pytest.raises(Exception, match=r"\[path.git\]"):
        k["apply_patch"]("--- /dev/null\n+++ b/.git/config\n@@ -0,0 +1 @@\n+x\n")
    assert not Path(".git").exists()


def test_search_finds_lines_and_bounds_them(load: Load) -> None:
    k = load()
    k["write_file"]("a.py", "def one():\n    return 1\n" * 3)
    Path("binary").write_bytes(b"def \0")
    hits = k["search_code"](r"def \w+")
    assert [str(hit) for hit in hits] == ["a.py:1: def one():", "a.py:3: def one():", "a.py:5: def one():"]
    assert len(k["search_code"]("def", limit=2)) == 2
    assert k["search_code"]("return", "a.py")[0].line == 2
    with pytest.raises(ValueError, match="not a regular expression"):
        k["search_code"]("(")


def test_a_patch_is_applied_wholly_or_not_at_all(load: Load) -> None:
    k = load()
    k["write_file"]("a.txt", "a\n")
    k["write_file"]("b.txt", "b\n")
    good = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n"
    with pytest.raises(Exception, match=r"hunk 1 of 1 for b.txt"):
        k["apply_patch"](good + "--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-x\n+B\n")
    assert k["read_file"]("a.txt") == "a\n"
    assert k["apply_patch"](good.replace("-1 +1", "-9 +9")) == (
        "patched a.txt\na.txt: hunk 1 applied at line 1 (stated line 9)"
    )
    assert k["apply_patch"]("--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n") == "deleted b.txt"
    assert k["list_files"]() == ["a.txt"]


def test_a_patch_that_cannot_be_written_leaves_everything_as_it_was(load: Load) -> None:
    k = load()
    k["write_file"]("a.txt", "a\n")
    k["write_file"]("file", "")
    new = "--- /dev/null\n+++ b/file/b.txt\n@@ -0,0 +1 @@\n+b\n"
    with pytest.raises((NotADirectoryError, FileExistsError)):
        k["apply_patch"]("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n" + new)
    assert k["read_file"]("a.txt") == "a\n"


def test_a_patch_moves_files_with_their_modes_and_sets_those_it_states(load: Load) -> None:
    k = load()
    k["write_file"]("tool.sh", "#!/bin/sh\n")
    Path("tool.sh").chmod(0o755)
    k["write_file"]("plain.sh", "x\n")
    k["apply_patch"](
        "diff --git a/tool.sh b/bin/tool.sh\nsimilarity index 100%\nrename from tool.sh\nrename to bin/tool.sh\n"
        "diff --git a/plain.sh b/plain.sh\nold mode 100644\nnew mode 100755\n"
        "diff --git a/empty.txt b/empty.txt\nnew file mode 100644\nindex 0000000..e69de29\n"
    )
    assert k["list_files"]() == ["bin/tool.sh", "empty.txt", "plain.sh"]
    assert [Path(name).stat().st_mode & 0o777 for name in ("bin/tool.sh", "plain.sh")] == [0o755, 0o755]


def test_commands_run_without_a_shell_and_show_how_they_ended(load: Load) -> None:
    k = load()
    done = k["run_command"](["python", "-c", "import sys; print('out'); sys.exit(3)"])
    assert (done.exit_code, done.stdout, done.ok) == (3, "out\n", False)
    assert repr(done) == "out\n[exit code 3]"
    assert k["run_command"](["rg", "x"]).exit_code in (1, 2, 126, 127)
    with pytest.raises(ValueError, match="takes a list of strings"):
        k["run_command"]("ls -la")


def test_a_command_at_its_timeout_dies_with_its_children_and_keeps_its_output(load: Load) -> None:
    k = load()
    child = "import subprocess, sys, time; print('begun', flush=True)\n"
    child += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\ntime.sleep(600)"
    done = k["run_command"](["python", "-c", child], timeout=1.5)
    assert done.exit_code is None
    assert str(done) == "begun\n[stopped at its timeout]"


def test_tests_are_run_with_the_projects_runner(load: Load) -> None:
    k = load()
    k["write_file"]("test_one.py", "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n")
    done = k["run_tests"](["test_one"])
    assert (done.ok, done.passed, str(done)) == (True, 1, "1 passed [exit code 0]")


def test_capability_decides_what_exists(load: Load) -> None:
    assert "write_file" not in load(Capability.READ_ONLY)
    assert "run_command" not in load(Capability.WRITE_WITH_DIFF)
    assert "apply_patch" in load(Capability.WRITE_WITH_DIFF)
    with pytest.raises(Exception, match=r"\[command.unknown\]"):
        load()["run_command"](["sh", "-c", "true"])
    assert load(Capability.FULL_SHELL)["run_command"](["sh", "-c", "true"]).ok


def test_loading_again_with_less_takes_skills_away(load: Load) -> None:
    k = load()
    exec(basic_skills().prelude(Capability.READ_ONLY), k)
    assert "read_file" in k
    assert "write_file" not in k
