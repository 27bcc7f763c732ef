"""Ask the person at this terminal what a run waits for."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from typing import TYPE_CHECKING, Literal

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from codepilot.cli import output
from codepilot.cli.output import console, plain, plain_lines, say, show_prompt

if TYPE_CHECKING:
    from codepilot.core.approval import ApprovalRequested
    from codepilot.core.run import Run
    from codepilot.engine import CodePilot, Preparation

NAMES = {
    "network": "reach a host on the network",
    "command": "run a command that is not on the list",
    "install": "install packages",
    "finding": "run generated code with a security finding",
    "path": "change a protected file",
    "spend": "spend more than its budget",
    "plan": "carry out its plan",
}
EXPLAINED = {
    "network": "Code in the sandbox could then send data to this host and fetch anything from it, through the proxy"
    " and on record. Everything else stays unreachable.",
    "command": "The command runs in the sandbox: it cannot reach the network or files outside of the workspace, but its"
    " effect on the workspace is the program's, not the agent's.",
    "install": "Packages run code of their authors when they are installed and imported. The installation runs in a"
    " sandbox that reaches the configured package registries alone, and makes an environment of its own: neither your"
    " checkout nor your system's Python changes.",
    "finding": "A scanner sees a pattern in the new code that is often a weakness. The code has not run yet; it would"
    " run in the sandbox, and become part of the change.",
    "path": "The policy or the plan protects this file. The change to it would become part of the result.",
    "spend": "The run has reached its limit, or four fifths of it. Yes grants the same budget once more.",
    "plan": "Nothing has been changed yet. Yes lets the agent carry out the plan, no sends it back to planning.",
}
_ANSWERS: dict[str, Literal["once", "always", "denied", "explain"]] = {
    **dict.fromkeys(("y", "yes"), "once"),
    **dict.fromkeys(("n", "no"), "denied"),
    **dict.fromkeys(("a", "always"), "always"),
    **dict.fromkeys(("e", "explain", "?"), "explain"),
}
_COLOURS = {"low": "", "medium": "yellow", "high": "red"}
PROMPT = "Allow it? [y]es, [n]o REASON, [a]lways for this task, [e]xplain: "


def can_ask() -> bool:
    """True if a person reads and writes here."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty() and not output.quiet()


def ask_here(pilot: CodePilot, run: Run) -> bool:
    """Ask for what the run waits for and record the answer; False if it waits for no answer, or nobody gave one."""
    request = run.open_request
    if request is None or not can_ask():
        return False
    screen = console(err=True)
    screen.print(panel(request))
    try:
        answer = _answered(request)
    except KeyboardInterrupt:
        answer = None
    if answer is None:
        say(f"\nThe run waits for the answer: codepilot approve {run.run_id}, or codepilot deny {run.run_id}", err=True)
        return False
    decision, reason = answer
    asked, _ = pilot.decide_approval(run.run_id, decision, request.approval_id, by=person(pilot), reason=reason)
    if asked.by == "expiry":
        say("Nobody answered in time: it is denied, and the run looks for another way.", err=True)
    return True


def person(pilot: CodePilot) -> str:
    """Who answers here, as the environment says."""
    environ = pilot.settings.environ
    named = next((environ[name] for name in ("USER", "LOGNAME") if environ.get(name)), None)
    return named or _login_name()


def _login_name() -> str:
    """The name of this process's user; a container may have none."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "user"


def panel(request: ApprovalRequested) -> RenderableType:
    """What is asked, why it is risky, and the code that wants it."""
    rows: list[RenderableType] = [
        Text.assemble(("Operation  ", "dim"), NAMES[request.operation]),
        Text.assemble(("Subject    ", "dim"), (plain(request.details), "bold")),
        Text.assemble(("Risk       ", "dim"), (request.risk, _COLOURS[request.risk])),
        *(Text.assemble(("Because    " if number == 0 else " " * 11, "dim"), plain(why))
          for number, why in enumerate(request.reasons)),
    ]  # fmt: skip
    if request.snippet:
        rows += [Text(""), Text(plain_lines(request.snippet), "cyan")]
    return Panel(Group(*rows), title="Approval required", border_style="yellow", title_align="left")


def _answered(request: ApprovalRequested) -> tuple[Literal["once", "always", "denied"], str] | None:
    """The person's decision and reason; None at the end of the input. After the request's time the answer is moot."""
    while True:
        line = _line(request.expires_at)
        if line is None:
            return None
        word, _, rest = line.strip().partition(" ")
        match _ANSWERS.get(word.lower().rstrip(",.:")):
            case "explain":
                say(EXPLAINED[request.operation], err=True)
                say("Always is for this operation and subject in this run. No tells the agent to find another way; what"
                    " you write after it goes to the agent.", err=True)  # fmt: skip
            case None:
                say("Answer yes, no, always or explain.", err=True)
            case decision:
                return decision, re.sub(r"\s+", " ", rest).strip()


def _line(expires_at: int | None) -> str | None:
    """What the person writes; None at the end of the input, or an empty denial when it is too late."""
    show_prompt(PROMPT, err=True)
    while expires_at is None or time.time() * 1e6 < expires_at:
        left = 1.0 if expires_at is None else max(0.05, min(1.0, expires_at / 1e6 - time.time()))
        if select.select([sys.stdin], [], [], left)[0]:
            return sys.stdin.readline() or None
    show_prompt("\n", err=True)
    return "no nobody answered in time"


def ask_to_install(wanted: Preparation) -> tuple[bool, str] | None:
    """Ask whether packages may be installed: the answer and its reason. Without a terminal say how to allow it."""
    from codepilot.core.approval import ApprovalRequested

    reach = f"the installation reaches {', '.join(wanted.hosts) or 'no host'}"
    request = ApprovalRequested(
        approval_id="prepare", operation="install", details=wanted.subject, reasons=(EXPLAINED["install"], reach)
    )
    if not can_ask():
        say(f"A person has to approve: install {wanted.subject}; {reach}.", err=True)
        say("Allow it with: codepilot prepare --yes", err=True)
        return None
    console(err=True).print(panel(request))
    answer = _answered(request)
    return None if answer is None else (answer[0] != "denied", answer[1])
