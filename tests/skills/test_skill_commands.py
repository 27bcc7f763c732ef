from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.executor import CreateWorkspace, LocalExecutor, RunCode, RunCommand
from codepilot.sandbox import choose
from codepilot.skills.command_rules import PROGRAMS
from codepilot.skills.commands import leads_out, refusal
from codepilot.workspace import ObjectStore, pin_base

ROOT = "/srv/project"
"""There is nothing at this path: rules are about names."""


ALLOWED = (Path(__file__).parent / "commands_allowed.txt").read_text().splitlines()
REFUSED = [line.split(" ", 1) for line in (Path(__file__).parent / "commands_refused.txt").read_text().splitlines()]
"""The rule, then the command; arguments are what single spaces separate."""


@pytest.mark.parametrize("command", ALLOWED)
def test_building_testing_and_looking_is_allowed(command: str) -> None:
    assert refusal(command.split(" "), ROOT) == ("", "")
    assert leads_out(command.split(" "), ROOT) == ""


@pytest.mark.parametrize(("rule", "command"), REFUSED)
def test_publishing_reconfiguring_installing_and_starting_programs_is_refused(rule: str, command: str) -> None:
    said, why = refusal(command.split(" "), ROOT)
    assert said == rule
    assert ";" in why or ":" in why, "a refusal says what to do instead"


def test_a_refusal_shows_which_option_an_abbreviation_stands_for() -> None:
    _, why = refusal(["sort", "--comp=x", "y"], ROOT)
    assert why == "`--comp=x` is `--compress-program`: it starts another program; run that program itself"


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
def test_looking_outside_of_the_workspace_is_told_kindly(command: str, lost: str) -> None:
    told = leads_out(command.split(" "), ROOT)
    assert told.startswith(f"{lost} lies outside" if lost else "")
    assert bool(told) == bool(lost)


def test_a_link_out_of_the_workspace_is_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/var/none")
    (tmp_path / "link").symlink_to("/etc")
    assert leads_out(["cat", "link/hosts"], str(tmp_path))
    assert not leads_out(["cat", "file"], str(tmp_path))


# What getopt_long takes for a refused option: (program, long, short letter, harmless letters, operands).
GETOPT = [
    ("sort", "--compress-program", "", "nru", ["x"]),
    ("sort", "--output", "o", "nru", ["x"]),
    ("sort", "--temporary-directory", "T", "bdf", ["x"]),
    ("sed", "--in-place", "i", "nEsz", ["p", "x"]),
    ("sed", "--file", "f", "nEsz", ["p", "x"]),
    ("tail", "--follow", "f", "qvz", ["x"]),
    ("make", "--eval", "E", "kns", ["test"]),
    ("git grep", "--open-files-in-pager", "O", "nliw", ["x"]),
    ("git diff", "--output", "", "", ["x"]),
    ("git log", "--ext-diff", "", "", []),
    ("mypy", "--python-executable", "", "", ["x"]),
]


@given(st.sampled_from(GETOPT), st.data())
def test_no_spelling_that_the_program_takes_slips_through(
    case: tuple[str, str, str, str, list[str]], data: st.DataObject
) -> None:
    """Abbreviated, attached or separate, alone or in a cluster, anywhere among the operands."""
    program, name, letter, others, operands = case
    if letter and data.draw(st.booleans()):
        cluster = data.draw(st.text(others, max_size=4)) if others else ""
        spelled = [f"-{cluster}{letter}" + data.draw(st.sampled_from(["", "value"]))]
    else:
        cut = data.draw(st.integers(min(len(name), 5), len(name)))
        short = name[:cut]
        spelled = data.draw(st.sampled_from([[short], [f"{short}=value"], [short, "value"]]))
    place = data.draw(st.integers(0, len(operands)))
    command = [*program.split(), *operands[:place], *spelled, *operands[place:]]
    assert refusal(command, ROOT)[0] == f"command.{program.split()[0]}", command


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6), st.sampled_from(sorted(PROGRAMS)))
def test_any_command_is_judged_in_words(arguments: list[str], program: str) -> None:
    rule, why = refusal([program, *arguments], ROOT)
    assert bool(rule) == bool(why)
    assert isinstance(leads_out([program, *arguments], ROOT), str)
    assert isinstance(refusal(arguments, ROOT), tuple)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    """A small repository inside the sandbox, with a program that makes itself heard."""
    folder = tmp_path_factory.mktemp("tricks")
    root = folder / "repo"
    root.mkdir()
    (root / "x").write_text("b/c\na\n")
    (root / "shout").write_text("#!/bin/sh\necho shouted >&2\ncat\n")
    (root / "shout").chmod(0o755)
    quiet = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "base"]):
        subprocess.run(["git", *command], cwd=root, env=quiet, check=True)
    with ObjectStore.open(folder / "objects.git") as objects:
        tree = pin_base(root, objects).tree
    executor = LocalExecutor(folder / "home", choose("best"))
    executor.create(CreateWorkspace(workspace="w", objects=str(folder / "objects.git"), tree=tree))
    executor.init_git("w")

    yield executor
    executor.close()


@pytest.mark.parametrize(
    "command",
    [
        ["git", "grep", "-lO./shout", "a"],
        ["git", "grep", "--open=./shout", "a"],
        ["git", "-c", "alias.status=!./shout", "-c", "alias.z=!./shout", "z"],
        ["find", "x", "-exec", "./shout", ";"],
        ["sed", "1e ./shout", "x"],
        ["sed", "-n", "1s/.*/.\\/shout/;1s/$//e", "x"],
        ["make", "--eva=all:;./shout </dev/null"],
        ["make", "--eval", "$(shell ./shout </dev/null)all:"],
        ["make", "-f", "/dev/null", "--ev", "$(shell ./shout </dev/null)all:"],
    ],
    ids=lambda command: " ".join(command)[:40],
)
def test_the_tricks_are_real(inside: LocalExecutor, command: list[str]) -> None:
    """What is refused would start a program: otherwise the rule would be superstition."""
    assert refusal(command, ROOT)[0].startswith("command.")
    done = inside.run_command(RunCommand(workspace="w", argv=tuple(command), timeout_sec=20.0))
    assert b"shouted" in done.stdout + done.stderr


def test_sed_scripts_that_are_allowed_hold_nothing_that_sed_itself_would_refuse(inside: LocalExecutor) -> None:
    """sed's own sandbox mode is the judge: it finds e, r and w while it reads a script, before anything runs."""
    chance = random.Random(7)
    pieces = [*"s/[];epgw|\\a^1$!{}\n", "s/", "s/", "/", "/", "[/]", "\\/", "/p", "/e"]
    made = {"".join(chance.choices(pieces, k=chance.randint(2, 9))) for _ in range(40_000)}
    known = {"s/[/]/;s/e;/p/p", "s/[/]/e", "/[/]/p;e", "s/\\[/]/;s/e;/p/p"}
    allowed = [one for one in sorted(made | known) if refusal(["sed", one, "x"], ROOT) == ("", "")]
    telling = [one for one in allowed if one in known or ("/" in one and ("e" in one or "w" in one))]
    assert len(telling) > 100
    asked = [*telling, *known.intersection(allowed), "e"]
    judge = (
        "import subprocess\n"
        f"for script in {asked!r}:\n"
        "    said = subprocess.run(['sed', '--sandbox', '-n', '-e', script, 'x'], capture_output=True, text=True)\n"
        "    if 'sandbox' in said.stderr: print(repr(script))\n"
    )
    done = inside.run_code(RunCode(workspace="w", code=judge, timeout_sec=60.0))
    assert (done.status, done.stdout) == ("ok", "'e'\n")
