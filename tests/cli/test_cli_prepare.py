"""`codepilot prepare` asks before it installs, and the answer is on record."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
from cli_kit import Command, committed
from cli_terminal import Terminal

from package_index import PackageIndex


@pytest.fixture
def needy(tmp_path: Path) -> Path:
    (tmp_path / "needy").mkdir()
    return committed(tmp_path / "needy", {"requirements.txt": "greetlib\n", "app.py": ""})


def answers(codepilot: Command) -> list[tuple[str, str, str]]:
    entries = codepilot("audit", "--json").json["entries"]
    return [(one["decision"], one["by"], one["reason"].partition(";")[0]) for one in entries]


def test_a_denial_installs_nothing_and_is_on_record(codepilot: Command, needy: Path) -> None:
    with PackageIndex({"greetlib": "HELLO = 'hello'\n"}) as index:
        headless = codepilot("prepare", str(needy), **index.environ)
        assert (headless.code, "codepilot prepare --yes" in headless.err) == (3, True)
        assert answers(codepilot) == []  # nobody was there to answer
        terminal = Terminal(codepilot, "prepare", str(needy), **index.environ)
        terminal.until("requirements.txt")
        terminal.until("Allow it?")
        terminal.press("no not on this machine\n")
        assert terminal.ended() == 3
        assert index.asked == []
    assert answers(codepilot) == [("denied", getpass.getuser(), "not on this machine")]


def test_what_was_allowed_is_on_record(codepilot: Command, needy: Path) -> None:
    with PackageIndex({"greetlib": "HELLO = 'hello'\n"}) as index:
        ended = codepilot("prepare", str(needy), "--yes", **index.environ)
        assert index.asked, ended.err
    assert answers(codepilot)[0] == ("once", getpass.getuser(), "--yes")
    assert f"install requirements.txt of {needy}" in codepilot("audit").out
