"""A candidate's diff applies to the file it was made for, wherever in the file the change lies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codepilot.repair import Candidate

_FILES = {
    "near the end": (b"a = 1\nb = 2\nc = 3\n", b"a = 1\nb = 2\nc = 4\n"),
    "no newline at the end": (b"a = 1\nb = 2\nc = 3", b"a = 1\nb = 2\nc = 4"),
    "newline added": (b"a = 1\nb = 2", b"a = 1\nb = 2\n"),
    "last line removed": (b"a = 1\nb = 2\n", b"a = 1\n"),
    "first line of one": (b"a = 1\n", b"a = 2\n"),
    "carriage returns": (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nb = 3\r\n"),
    "form feed in a line": (b"a = 1\nb = '\x0c\x85'\nc = 3\n".replace(b"\x85", b""), b"a = 1\nb = '\x0c'\nc = 4\n"),
    "line separator in a text": ("a = '\u2028'\nb = 2\n".encode(), "a = '\u2028'\nb = 3\n".encode()),
}


@pytest.mark.parametrize("name", _FILES)
def test_diff_applies(name: str, tmp_path: Path) -> None:
    original, patched = _FILES[name]
    candidate = Candidate("pkg/mod.py", original, patched, "value.number", "", 0.5, 0)
    file = tmp_path / "pkg/mod.py"
    file.parent.mkdir()
    file.write_bytes(original)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=candidate.diff.encode(), check=True)
    assert file.read_bytes() == patched
