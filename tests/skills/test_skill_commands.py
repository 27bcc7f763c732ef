"""Which commands an agent may run, by name and argument."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.skills.command_rules import PROGRAMS, leads_out, refusal

ROOT = "/srv/project"
"""There is nothing at this path: rules are about names."""


ALLOWED = (Path(__file__).parent / "commands_allowed.txt").read_text().splitlines()
REFUSED = [line.split(" ", 1) for line in (Path(__file__).parent / "commands_refused.txt").read_text().splitlines()]
"""The rule, then the command; arguments are what single spaces separate."""


@pytest.mark.parametrize("command", ALLOWED)
def test_building_testing_and_looking_is_allowed(command: str) -> None:
    assert refusal(command.split(" ")) == ("", "")
    assert leads_out(command.split(" "), ROOT) == ""


@pytest.mark.parametrize(("rule", "command"), REFUSED)
def test_publishing_reconfiguring_installing_and_starting_programs_is_refused(rule: str, command: str) -> None:
    message, why = refusal(command.split(" "))
    assert message == rule
    assert ";" in why or ":" in why, "a refusal says what to do instead"


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("cat /etc/passwd", "/etc/passwd"),
        ("cat x ../y", "../y"),
        ("rg total /etc", "/etc"),
        ("rg -e total /etc", "/etc"),
        ("grep -rn total -- ../x", "../x"),
        ("find / -name x", "/"),
        ("find . .. -name x", ".."),
        ("git diff /etc/hosts /etc/passwd", "/etc/hosts"),
        ("sed -n p /etc/hosts", "/etc/hosts"),
        ("head -n 1 sub/../../x", "sub/../../x"),
        ("ls -la /home", "/home"),
        ("cat x", ""),
        ("rg /etc/passwd src", ""),
        ("find . -path /a", ""),
        ("cat /tmp/x", ""),
        (f"cat {os.__file__}", ""),
        ("sort /dev/null", ""),
        ("curl /etc", ""),
        ("make /etc", ""),
    ],
)
def test_looking_outside_of_the_workspace_is_reported_kindly(command: str, lost: str) -> None:
    reported = leads_out(command.split(" "), ROOT)
    assert reported.startswith(f"{lost} lies outside" if lost else "")
    assert bool(reported) == bool(lost)


def test_a_link_out_of_the_workspace_is_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/var/none")
    (tmp_path / "link").symlink_to("/etc")
    assert leads_out(["cat", "link/hosts"], str(tmp_path))
    assert not leads_out(["cat", "file"], str(tmp_path))


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6), st.sampled_from(sorted(PROGRAMS)))
def test_any_command_is_judged_in_words(arguments: list[str], program: str) -> None:
    rule, why = refusal([program, *arguments])
    assert bool(rule) == bool(why)
    assert isinstance(leads_out([program, *arguments], ROOT), str)
    assert isinstance(refusal(arguments), tuple)
