"""The answer to an agent that asks whether it may do something: the policy's, or a person's.

Programs inside the sandbox can do less than they ask for: it has no network but the hosts of the task, and no files but
the workspace. So a shell command is judged by what it would do outside: install, fetch, push.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from codepilot.agents.approvals import denial, granted, granted_hosts, risk_of
from codepilot.agents.cli.protocol import Permission
from codepilot.agents.protocol import StepContext
from codepilot.core.approval import OPERATIONS, PolicyDecided
from codepilot.core.areas import outside
from codepilot.core.events import EventType, GuardrailBlocked
from codepilot.core.failures import CodePilotError
from codepilot.core.permit import Action, Decision, permit
from codepilot.core.policy import HOST_PATTERN
from codepilot.core.spending import forbidden_too_often
from codepilot.core.task import Capability
from codepilot.skills import hosts_in, installs, packages_in, pushed

IMPLEMENTER = "implementer"
_FETCHERS = frozenset(["curl", "wget"])
_BETWEEN = re.compile(r"&&|\|\||[;|&\n]")
_HOST_NAME = re.compile(HOST_PATTERN)
_SHOWN = 500
_BEFORE = frozenset(["sudo", "env", "time", "nohup", "exec", "command"])


@dataclass(frozen=True)
class Answered:
    """`message` is the reason of a refusal, for the agent."""

    allow: bool
    message: str = ""


def answer(asked: Permission, context: StepContext) -> Answered:
    """Judge what the agent asks for. Raises `ApprovalNeeded` until a person has answered, or what ends the run."""
    run = context.now()
    task = run.task
    policy = task.policy.model_copy(update={"hosts": (*task.hosts, *granted_hosts(run))})
    capability, mode = task.risk_profile.capability, task.risk_profile.interaction.mode
    for action in wanted(asked, context):
        decision = permit(policy, capability, mode, action)
        if decision.effect in ("allow", "sanitise"):
            continue
        _record(context, decision)
        if decision.effect == "deny":
            return _denied(context, asked, decision)
        operation = OPERATIONS.get(action.asks, "command")
        subject = (action.about or action.subject)[:_SHOWN]
        reasons = tuple(one for one in (decision.reason, *decision.reasons) if one)
        risk = risk_of(decision.score)
        if not context.ask(operation, subject, risk=risk, reasons=reasons, snippet=asked.subject, occasion=""):
            return Answered(False, str(denial(context.now(), operation, subject)["message"]))
        if operation == "network":
            context.open_again(())
    return Answered(True)


def wanted(asked: Permission, context: StepContext) -> Iterator[Action]:
    """What the agent wants, as actions for the policy."""
    capability = context.run.task.risk_profile.capability
    tool = asked.tool or asked.operation
    match asked.operation:
        case "command":
            if not capability.allows(Capability.WRITE_AND_RUN_TESTS):
                yield Action("command", asked.subject, "capability", "the task allows no commands", tool=tool)
            yield from _commands(asked, context, tool)
        case "path":
            yield _path(asked, context, tool)
        case "host" | "network" if _HOST_NAME.fullmatch(asked.subject):
            yield _host(asked.subject, context, tool)
        case "host" | "network":
            yield Action("host", asked.subject, "network", "code inside reaches only the task's hosts", tool=tool)
        case "install":
            why = "packages run code of their authors"
            given = asked.subject in granted(context.now(), "")
            yield Action("install", asked.subject, "install", why, asks="install", granted=given, tool=tool)
        case _:
            yield Action("tool", asked.subject, tool=tool)


def _commands(asked: Permission, context: StepContext, tool: str) -> Iterator[Action]:
    """The whole command for the policy's own lists, and each part that installs, fetches or pushes."""
    yield Action("command", asked.subject, tool=tool)
    allowed = granted(context.now(), "")
    for part in _BETWEEN.split(asked.subject):
        words = _words(part)
        if not words:
            continue
        subject = " ".join(words)
        if installs(words):
            about = " ".join(packages_in(words)) or "the project's dependencies"
            given = about in allowed
            why = "packages cannot be installed here; use what the project has"
            yield Action("command", subject, "command.installs", why, asks="install", about=about, granted=given)
        elif words[0].rpartition("/")[2] in _FETCHERS:
            for host in hosts_in(subject):
                yield _host(host, context, tool)
        elif (push := pushed(words)) is not None:
            why = "publishing is not part of a task; leave it to the people who accept the change"
            yield Action("command", subject, "command.publishes", why, tool=tool, pushes_to=push[1])


def _words(part: str) -> list[str]:
    try:
        words = shlex.split(part)
    except ValueError:
        words = part.split()
    while words and (words[0] in _BEFORE or re.fullmatch(r"\w+=.*", words[0])):
        words.pop(0)
    return words


def _host(host: str, context: StepContext, tool: str) -> Action:
    name = host.partition(":")[0]
    known = (*context.run.task.hosts, *granted_hosts(context.now()))
    if host in known or name in known:
        return Action("host", host, tool=tool)
    return Action("host", host, "network", "code inside reaches only the task's hosts", asks="network", tool=tool)


def _path(asked: Permission, context: StepContext, tool: str) -> Action:
    """A path that the agent wants to change, as the policy names it."""
    root = context.directory().rstrip("/")
    path = posixpath.normpath(posixpath.join(root, asked.subject))
    inside = posixpath.relpath(path, root) if path == root or path.startswith(f"{root}/") else ""
    if not inside and path.startswith("/tmp/"):
        return Action("tool", asked.subject, tool=tool)  # its own, and no part of the change
    if not inside:
        why = f"only files below {root} are part of the change"
        return Action("path", asked.subject, "path.outside", why, tool=tool)
    if ".git" in inside.split("/"):
        return Action("path", inside, "path.git", "the git directory is the platform's", tool=tool)
    if not context.run.task.risk_profile.capability.allows(Capability.WRITE_WITH_DIFF):
        return Action("path", inside, "capability", "the task only reads", tool=tool, role=IMPLEMENTER)
    enforced = context.run.task.policy.enforce_allowed_areas
    if broken := outside(context.run.plan, [inside], enforce_allowed=enforced):
        why = "the plan does not allow a change there"
        return Action("path", inside, broken[inside], why, tool=tool, role=IMPLEMENTER)
    given = inside in granted(context.now(), "")
    return Action("path", inside, tool=tool, role=IMPLEMENTER, asks="path", granted=given)


def _denied(context: StepContext, asked: Permission, decision: Decision) -> Answered:
    blocked = GuardrailBlocked(
        skill=asked.tool or asked.operation, rule=decision.rule, attempt=decision.action.subject[:_SHOWN]
    )
    context.append(EventType.GUARDRAIL_BLOCKED, blocked)
    if (ended := forbidden_too_often(context.now(), f"{asked.operation} {asked.subject[:_SHOWN]}")) is not None:
        raise CodePilotError.of(ended)
    return Answered(False, f"CodePilot's policy does not allow it ({decision.rule}): {decision.reason}.")


def _record(context: StepContext, decision: Decision) -> None:
    action = decision.action
    decided = PolicyDecided(
        effect=decision.effect,
        kind=action.kind,
        subject=(action.about or action.subject)[:_SHOWN],
        rule=decision.rule,
        reason=decision.reason,
        reasons=decision.reasons,
        score=decision.score,
    )
    context.append(EventType.POLICY_DECIDED, decided)
