"""What a command wants, as an action for the policy. Standard library only: shipped into the sandbox."""

from __future__ import annotations

import re
from collections.abc import Sequence

from codepilot.core.permit import Action
from codepilot.skills.command_rules import INSTEAD, refusal

_INSTALLERS = frozenset(["pip", "pip3", "uv", "poetry", "pipenv", "npm", "pnpm", "yarn"])
_INSTALLS = frozenset(["install", "i", "ci", "add", "sync"])
_FETCHERS = frozenset(["curl", "wget"])
_FORCE = re.compile(r"--force(-with-lease|-if-includes)?(=.*)?|-[a-zA-Z]*f[a-zA-Z]*")
_HOST = re.compile(r"https?://([A-Za-z0-9.-]+(?::\d{1,5})?)")
EVERYTHING = "the project's dependencies"
"""What an installing command wants that names no package."""
_BEFORE = frozenset(("-C", "-c", "--git-dir", "--work-tree"))
"""Options of git that take the next word as their value."""


def wanted_command(words: Sequence[str], granted: Sequence[str] = ()) -> Action:
    """The action of running a command. `granted` are commands, packages and hosts that a person allowed."""
    subject = " ".join(words)
    rule, why = refusal(words)
    allowed = subject in granted or "*" in granted
    if not rule:
        return Action("command", subject, granted=allowed, tool="run_command")
    unlisted = rule in ("command.unknown", "command.path")
    asks, about, instead, branch = "", "", "", None
    if installs(words):
        why = "packages are installed only if a person allows it"
        asks, about = "install", " ".join(packages_in(words)) or EVERYTHING
    elif words[0] in _FETCHERS:
        about = next(iter(hosts_in(subject)), "")
        asks = "network" if about else ""
        why = "hosts are reached only if a person allows it" if about else why
    elif (push := pushed(words)) is not None:
        why = "others see what is pushed: a person decides"
        asks, instead, branch = "command", " ".join(push[0]), push[1]
    elif unlisted and words[0].rpartition("/")[2] not in INSTEAD:
        asks = "command"
    return Action(
        "command",
        subject,
        rule,
        why,
        lifted_by="full_shell",
        asks=asks,
        about=about,
        granted=allowed or any(one in granted for one in (about, instead) if one),
        tool="run_command",
        instead=instead,
        pushes_to=branch,
    )


def installs(words: Sequence[str]) -> bool:
    """True if a command installs packages."""
    rest = list(words)
    if re.fullmatch(r"(.*/)?python[\d.]*", rest[0]) and rest[1:2] == ["-m"]:
        rest = rest[2:]
    if rest[:2] == ["uv", "pip"]:
        rest = rest[1:]
    first = next((word for word in rest[1:] if not word.startswith("-")), "")
    return bool(rest) and rest[0] in _INSTALLERS and first in _INSTALLS


def packages_in(words: Sequence[str]) -> tuple[str, ...]:
    """The packages that an installing command names; none if it installs what the project lists."""
    after = list(words)
    while after and after.pop(0) not in _INSTALLS:
        pass
    named: list[str] = []
    skip = False
    for word in after:
        if skip or word.startswith("-"):
            skip = not skip and word in ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")
        elif word not in (".", ".[dev]", ".[test]"):
            named.append(word)
    return tuple(named)


def pushed(words: Sequence[str]) -> tuple[tuple[str, ...], str] | None:
    """A push without what forces it, and the branch that it names; None for any other command."""
    rest = list(words[1:])
    before = [words[0]]
    while rest and rest[0].startswith("-"):
        before += [rest.pop(0)] + ([rest.pop(0)] if before[-1] in _BEFORE and rest else [])
    if words[0] != "git" or not rest or rest[0] != "push":
        return None
    kept = [word.removeprefix("+") for word in rest[1:] if not _FORCE.fullmatch(word)]
    operands = [word for word in kept if not word.startswith("-")]
    branches = [word.rpartition(":")[2].removeprefix("refs/heads/") for word in operands[1:]]
    return (*before, "push", *kept), branches[0] if len(branches) == 1 else ""


def hosts_in(text: str) -> tuple[str, ...]:
    """The hosts of the URLs in a text, in their order."""
    return tuple(dict.fromkeys(host.lower().rstrip(".") for host in _HOST.findall(text)))
