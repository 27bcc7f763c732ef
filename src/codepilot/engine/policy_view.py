"""The effective policy with the source of each value, and what it decides about one action."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.permit import Action, Decision, permit
from codepilot.core.policy import Policy
from codepilot.core.task import Capability, InteractionMode
from codepilot.engine.settings import FILE_NAME, Settings
from codepilot.sandbox.proxy.rules import Rule
from codepilot.skills import wanted_command

KINDS = ("command", "tool", "path", "host")


class PolicySetting(Contract):
    """One value of the effective policy."""

    name: str
    value: JsonValue
    source: str
    """`default`, or the file or the environment that says so."""


class Explanation(Contract):
    """What the policy decides about an action, why, and what would change that."""

    effect: str
    kind: str
    subject: str
    sanitised: str | None = None
    """What is done in place of the subject."""
    rule: str
    reason: str
    score: float
    reasons: tuple[str, ...]
    change: str


def effective(settings: Settings, root: Path | None) -> list[PolicySetting]:
    """Every value of the policy for a repository, in the order of the documentation."""
    found = settings.for_repository(root).policy
    user, environment = settings.policy_sources()
    mine = Policy.model_validate(user)
    values = found.model_dump(mode="json")
    listed = []
    for name in Policy.model_fields:
        if name in environment:
            source = f"environment ({environment[name]})"
        elif getattr(found, name) != getattr(mine, name):
            source = f"repository ({FILE_NAME})"
        else:
            source = "user (codepilot.toml)" if name in user else "default"
        listed.append(PolicySetting(name=name, value=values[name], source=source))
    return listed


def explain(
    policy: Policy, words: Sequence[str], kind: str, capability: Capability, interaction: InteractionMode, role: str
) -> Explanation:
    """What the policy decides about a command, a tool, a changed path or a host."""
    action = _action(policy, words, kind, role)
    decision = permit(policy, capability, interaction, action)
    done = decision.action.subject
    return Explanation(
        effect=decision.effect,
        kind=kind,
        subject=" ".join(words),
        sanitised=done if done != action.subject else None,
        rule=decision.rule or "none",
        reason=decision.reason or "no rule is about it",
        score=decision.score,
        reasons=decision.reasons,
        change=_change(decision),
    )


def _action(policy: Policy, words: Sequence[str], kind: str, role: str) -> Action:
    if not words or kind not in KINDS:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "There is nothing to explain." if not words else f"{kind!r} is no kind of action.",
            next_action=f"For example: codepilot policy explain -- git push --force. Kinds: {', '.join(KINDS)}.",
        )
    first = words[0]
    match kind:
        case "command":
            return wanted_command(_split(first) if len(words) == 1 else words)
        case "tool":
            return Action("tool", words[1] if len(words) > 1 else first, tool=first)
        case "path":
            return Action("path", posixpath.normpath(first), role=role)
        case _:
            listed = any(_covers(rule, first) for rule in policy.hosts)
            rule = "" if listed else "hosts"
            return Action("host", first, rule, "code has no network but the hosts that are listed", asks="network")


def _split(line: str) -> list[str]:
    """The words of a command that was given as one, for example in quotes."""
    try:
        return shlex.split(line) or [line]
    except ValueError:
        return [line]


def _covers(rule: str, host: str) -> bool:
    """True if an entry of the allowed hosts is about a host; without a port, the port of the entry is meant."""
    name, _, port = host.lower().rstrip(".").partition(":")
    listed = Rule.parse(rule)
    return listed.matches(name, int(port) if port.isdecimal() else listed.port or 443)


def _change(decision: Decision) -> str:
    """What a person can do to get another decision."""
    rule = decision.rule
    if decision.effect == "allow" and not rule:
        return "To forbid it, add it to [[policy.arguments]] or [policy.tools] in codepilot.toml."
    if rule.startswith(("tools.", "rates.", "path_rules.")):
        section, _, name = rule.partition(".")
        return f"Change [policy.{section}] {name} in your own codepilot.toml; a repository's may only be stricter."
    if rule.startswith("arguments."):
        return "Change [[policy.arguments]] in your own codepilot.toml; a repository's may only be stricter."
    if rule in Policy.model_fields and rule != "hosts":
        return f"Allow it when the run asks, or change [policy] {rule} in your own codepilot.toml."
    if rule == "hosts" or rule.startswith("import."):
        return "Allow it when the run asks, give the task --allow-host HOST, or set [policy] hosts."
    if decision.effect in ("ask", "sanitise"):
        return "Allow it when the run asks, give the task --interaction full_autonomy, or deny it always."
    return "Give the task --capability full_shell; the sandbox holds all the same."
