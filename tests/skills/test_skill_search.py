"""Searching gives the same lines with `rg` and without it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.skills.searching import _literal

Load = Callable[..., dict[str, Any]]

RG = f"""#!{sys.executable}
import os, sys
literal = sys.argv[sys.argv.index("-e") + 1].encode()
with open(os.environ["RG_MARK"], "a") as mark:
    mark.write(repr(sys.argv[1:]) + "\\n")
found = [os.path.join(top, name) for top, _, names in os.walk(".") for name in names
         if "/.git" not in top and literal in open(os.path.join(top, name), "rb").read()]
sys.stdout.buffer.write(b"".join(os.fsencode(name) + b"\\0" for name in found))
sys.exit(int(os.environ.get("RG_EXIT", "0" if found else "1")))
"""

PATTERNS = [
    "def", r"def \w+\(", r"^class ", "caf.", "café", "(?i)DEF", "a|b", "x*", r"\bone\b", "(def) (one)",
    "nothing at all", "re(turn)? 1", "(?:return) [12]$", r"\(\)", "[d]ef one",
]  # fmt: skip


@pytest.fixture
def tree(load: Load) -> dict[str, Any]:
    Path("a.py").write_text("class A:\n    def one():\n        return 1\n")
    Path("sub/.hidden").mkdir(parents=True)
    Path("sub/b.py").write_text("def one(): return 2\nnot café\n")
    Path("sub/.hidden/c.py").write_bytes(b"# caf\xe9 def one\r\nx = 'a'\r\n")
    Path("wide.txt").write_bytes("def one".encode("utf-16"))
    Path(".git").mkdir()
    Path(".git/config").write_text("def one")
    return load()


@pytest.mark.parametrize("code", ["0 or 1", "2", "missing"])
def test_the_results_are_the_same(
    tree: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    plain = [tree["search_code"](pattern) for pattern in PATTERNS]
    assert [str(hit) for hit in plain[0]] == [
        "a.py:2:     def one():",
        "sub/.hidden/c.py:1: # café def one",
        "sub/b.py:1: def one(): return 2",
    ]
    program, mark = tmp_path / "bin" / "rg", tmp_path / "mark"
    program.parent.mkdir()
    program.write_text(RG if code != "missing" else "#!/nonexistent\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("RG_MARK", str(mark))
    if code == "2":
        monkeypatch.setenv("RG_EXIT", code)
    assert [tree["search_code"](pattern) for pattern in PATTERNS] == plain
    assert tree["search_code"]("one", "sub") == [hit for hit in plain[8] if hit.path.startswith("sub/")]
    assert mark.exists() == (code != "missing")


@given(st.from_regex(r"\A[a-c.*+?()|^$\\bwd]{0,12}\Z"), st.text(alphabet="abcw d.", max_size=20))
def test_whatever_matches_contains_the_literal(pattern: str, line: str) -> None:
    try:
        found = re.search(pattern, line)
    except re.error:
        return
    if found:
        assert _literal(pattern) in found.group()
