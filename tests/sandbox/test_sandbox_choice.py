"""Which level is given, and how a machine without any is informed so. Each case is a process of its own."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from codepilot.sandbox import Level, choose, probe
from levels import level

ASK = """
    from codepilot.core.failures import CodePilotError
    from codepilot.sandbox import choose
    try:
        print(choose({wanted!r}).level)
    except CodePilotError as error:
        print(error.kind, error, error.failure.next_action, sep="|")
"""


def ask(wanted: str, setup: str = "", **env: str) -> str:
    code = f"{setup}\n{textwrap.dedent(ASK.format(wanted=wanted))}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


NO_LANDLOCK = "import codepilot.sandbox.levels.landlock as l; l.landlock_abi = lambda: -1"
OLD_LANDLOCK = "import codepilot.sandbox.levels.landlock as l; l.landlock_abi = lambda: 2"


@pytest.fixture
def broken_bwrap(tmp_path: Path) -> str:
    """A `bwrap` that is installed and refused by the system, as under a strict AppArmor profile."""
    script = tmp_path / "bwrap"
    refusal = "bwrap: setting up uid map: Permission denied"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && echo "    --size BYTES" && exit\necho "{refusal}" >&2\nexit 1\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_every_level_that_confines_is_reported():
    assert [report.level for report in probe()] == [Level.BUBBLEWRAP, Level.LANDLOCK]
    assert all(report.available or (report.reason and report.advice) for report in probe())


def test_best_is_the_strongest_that_works():
    working = [report.level for report in probe() if report.available]
    assert choose("best").level == working[0]


def test_none_is_given_only_by_name():
    assert choose("none").level is Level.NONE


def test_where_bubblewrap_is_refused_landlock_is_best(broken_bwrap):
    level("landlock")
    assert ask("best", PATH=broken_bwrap) == "landlock"


def test_a_level_asked_for_by_name_is_never_replaced(broken_bwrap):
    message = ask("bubblewrap", PATH=broken_bwrap)
    assert message.startswith("sandbox_unavailable|")
    assert "uid map: Permission denied" in message
    assert "AppArmor" in message


def test_where_nothing_works_the_refusal_says_what_to_install(broken_bwrap):
    message = ask("best", NO_LANDLOCK, PATH=broken_bwrap)
    assert message.startswith("sandbox_unavailable|no sandbox level works here")
    assert "this kernel has no Landlock" in message
    for hint in ("apt install bubblewrap", "dnf install bubblewrap", "pacman -S bubblewrap", "--unsafe-no-sandbox"):
        assert hint in message


def test_a_landlock_too_old_to_confine_is_refused():
    assert "version 2" in ask("landlock", OLD_LANDLOCK)


def test_macos_is_reported_plainly():
    assert "no sandbox level exists for macOS yet" in ask(
        "best", "import sys, codepilot.sandbox; sys.platform = 'darwin'"
    )
