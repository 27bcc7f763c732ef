"""True if an agent's action may happen: one pure rule for commands, tools, imports, calls, paths and hosts.

A reader (command rules, static check, tree validation, proxy) turns what the agent wants into an `Action` and names the
rule it breaks; `permit` decides. Standard library only: this source also travels into the sandbox.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from codepilot.core.globs import covers, guards, leads_into

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Literal, Protocol

    Effect = Literal["allow", "sanitise", "ask", "deny"]
    Kind = Literal["command", "import", "call", "path", "host", "tool", "install", "network", "finding"]

    class ToolRules(Protocol):
        """Lists of tools by name."""

        @property
        def allow(self) -> Sequence[str]: ...

        @property
        def ask(self) -> Sequence[str]: ...

        @property
        def deny(self) -> Sequence[str]: ...

    class ArgumentPattern(Protocol):
        """What is decided about calls of a tool with matching arguments."""

        @property
        def tool(self) -> str: ...

        @property
        def pattern(self) -> str: ...

        @property
        def effect(self) -> str: ...

        @property
        def reason(self) -> str: ...

    class PathLists(Protocol):
        """The paths that a role may change."""

        @property
        def allow(self) -> Sequence[str]: ...

        @property
        def deny(self) -> Sequence[str]: ...

    class Rules(Protocol):
        """What `permit` reads of a policy."""

        @property
        def imports(self) -> str: ...

        @property
        def hosts(self) -> Sequence[str]: ...

        @property
        def tools(self) -> ToolRules: ...

        @property
        def arguments(self) -> Sequence[ArgumentPattern]: ...

        @property
        def rates(self) -> Mapping[str, int]: ...

        @property
        def max_file_mb(self) -> float | None: ...

        @property
        def protected_areas(self) -> Sequence[str]: ...

        @property
        def path_rules(self) -> Mapping[str, PathLists]: ...

        @property
        def protected_branches(self) -> Sequence[str]: ...


LADDER = ("read_only", "write_with_diff", "write_and_run_tests", "full_shell")
SOURCE_KINDS = ("import", "call")
"""Actions that are read from source code; `imports = "off"` allows them all."""


@dataclass(frozen=True)
class Action:
    """Something an agent wants to do. `rule` is the rule that it breaks, empty if it breaks none."""

    kind: Kind
    subject: str
    """The command, module, function, path or host, as the agent wrote it."""
    rule: str = ""
    reason: str = ""
    """Why the rule exists and what to do instead."""
    lifted_by: str = ""
    """The capability from which on the rule does not apply."""
    needs_network: bool = False
    """The rule applies only to a task without a network."""
    advisory: bool = False
    """Only a strict policy denies it; any other allows it and tells the agent the reason."""
    asks: str = ""
    """The operation that a person may allow; empty if nobody may."""
    about: str = ""
    """What the person is asked about, if that is not the subject: the host of a call."""
    granted: bool = False
    """A person has allowed it."""
    tool: str = ""
    """The tool that would do it."""
    instead: str = ""
    """A harmless form of the subject, which is done in its place."""
    pushes_to: str | None = None
    """The branch that a push names; empty if it names none, None for anything but a push."""
    role: str = ""
    """The role that changes the path."""
    is_link: bool = False
    """The path becomes a symbolic link."""
    size_mb: float = 0.0
    """The size of the file."""
    calls: int = 0
    """How often the tool was called in the last minute."""


@dataclass(frozen=True)
class Decision:
    """What happens to an action, and why. `score` is its risk, from 0 (none) to 1 (forbidden)."""

    effect: Effect
    action: Action
    """What may be done: the action as it was wanted, or its sanitised form."""
    rule: str = ""
    reason: str = ""
    score: float = 0.0
    reasons: tuple[str, ...] = ()
    """What the score is made of."""


@dataclass(frozen=True)
class _Broken:
    """A rule that an action breaks."""

    effect: Effect
    rule: str
    reason: str


def permit(policy: Rules, capability: str, interaction: str, action: Action) -> Decision:
    """Decide whether `action` may happen under `policy`, for a task with this capability and interaction mode.

    What the policy's own lists say comes before the built-in rules, and of them a denial before a question.
    """
    done = _sanitised(action)
    found = [*_configured(policy, done), *_built_in(policy, capability, interaction, done)]
    worst = min(found, key=lambda one: ("deny", "ask", "allow").index(one.effect), default=None)
    score, reasons = _risk(policy, action, worst)
    if worst is None:
        effect: Effect = "allow" if done is action else "sanitise"
        return Decision(effect, done, _SANITISED if done is not action else "", _why(action, done), score, reasons)
    effect = worst.effect
    if effect == "ask" and (done.granted or interaction == "full_autonomy"):
        effect = "allow" if done is action else "sanitise"
    return Decision(effect, done, worst.rule, worst.reason, score, reasons)


_SANITISED = "command.force"


def _sanitised(action: Action) -> Action:
    if not action.instead or action.instead == action.subject:
        return action
    kept = {name: getattr(action, name) for name in Action.__dataclass_fields__}
    return Action(**{**kept, "subject": action.instead, "instead": ""})


def _why(action: Action, done: Action) -> str:
    return "" if done is action else f"`{action.subject}` is done as `{done.subject}`"


def _configured(policy: Rules, action: Action) -> Iterator[_Broken]:
    """What the lists of the policy say."""
    tools, name = policy.tools, action.tool
    if name and any(fnmatchcase(name, one) for one in tools.deny):
        yield _Broken("deny", "tools.deny", f"the policy denies the tool {name}")
    elif name and tools.allow and not any(fnmatchcase(name, one) for one in tools.allow):
        yield _Broken("deny", "tools.allow", f"the policy does not list the tool {name}")
    elif name and any(fnmatchcase(name, one) for one in tools.ask):
        yield _Broken("ask", "tools.ask", f"the policy asks before the tool {name} is used")
    for one in policy.arguments:
        if name and fnmatchcase(name, one.tool) and _matches(action.subject, one.pattern):
            effect: Effect = "ask" if one.effect == "ask" else "deny"
            yield _Broken(effect, f"arguments.{one.tool}", one.reason or f"the policy lists `{one.pattern}`")
    limit = policy.rates.get(name)
    if limit is not None and action.calls >= limit:
        yield _Broken("deny", f"rates.{name}", f"{name} may be called {limit} times a minute: wait, or do with less")
    if action.kind == "path":
        yield from _paths(policy, action)
    if action.pushes_to is not None and _protected(policy, action):
        yield _Broken("ask", "protected_branches", "a push to a protected branch changes what others build on")


def _matches(subject: str, pattern: str) -> bool:
    """True if a pattern covers a command; `git push *` also covers `git push` alone."""
    return fnmatchcase(subject, pattern) or (pattern.endswith(" *") and fnmatchcase(subject, pattern[:-2]))


def _paths(policy: Rules, action: Action) -> Iterator[_Broken]:
    path, lists = action.subject, policy.path_rules.get(action.role)
    if lists is not None and any(_forbids(area, action) for area in lists.deny):
        yield _Broken("deny", f"path_rules.{action.role}", f"the {action.role} may not change {path}")
    elif lists is not None and lists.allow and not any(covers(area, path) for area in lists.allow):
        yield _Broken("deny", f"path_rules.{action.role}", f"the {action.role} may change other paths only")
    if any(_forbids(area, action) for area in policy.protected_areas):
        yield _Broken("ask", "protected_areas", f"the policy protects {path}")
    if policy.max_file_mb is not None and action.size_mb > policy.max_file_mb:
        yield _Broken("deny", "max_file_mb", f"{path} has {action.size_mb:.3g} MB of at most {policy.max_file_mb:g}")


def _forbids(area: str, action: Action) -> bool:
    return guards(area, action.subject) or (action.is_link and leads_into(area, action.subject))


def _protected(policy: Rules, action: Action) -> bool:
    """A push that names no branch may go to any."""
    return not action.pushes_to or any(fnmatchcase(action.pushes_to, one) for one in policy.protected_branches)


def _built_in(policy: Rules, capability: str, interaction: str, action: Action) -> Iterator[_Broken]:
    lifted = bool(action.lifted_by) and LADDER.index(capability) >= LADDER.index(action.lifted_by)
    unread = action.kind in SOURCE_KINDS and policy.imports == "off"
    online = action.needs_network and bool(policy.hosts)
    if not action.rule or lifted or unread or online:
        return
    if action.advisory and policy.imports != "strict" and not action.asks:
        yield _Broken("ask" if interaction == "ask_every_step" else "allow", action.rule, action.reason)
    else:
        yield _Broken("ask" if action.asks else "deny", action.rule, action.reason)


def _risk(policy: Rules, action: Action, broken: _Broken | None) -> tuple[float, tuple[str, ...]]:
    """The score of an action: the sum of what makes it risky, at most 1; what is denied has 1."""
    facts = (
        (0.5, "code could send data out", action.asks == "network"),
        (0.5, "packages run code of their authors", action.asks == "install"),
        (0.4, "the program is on no list", action.rule in ("command.unknown", "command.path")),
        (0.5, "others see what is pushed", action.pushes_to is not None),
        (0.2, "the branch is protected", action.pushes_to is not None and _protected(policy, action)),
        (0.3, "forcing loses the work of others", action.instead not in ("", action.subject)),
        (0.6, "the policy protects the path", broken is not None and broken.rule == "protected_areas"),
        (0.5, "the policy wants a person to decide", broken is not None and broken.rule.startswith(("tools.", "arg"))),
    )
    found = [(points, why) for points, why, holds in facts if holds]
    score, reasons = sum(points for points, _ in found), tuple(f"{why} (+{points:g})" for points, why in found)
    if broken is not None and broken.effect == "deny":
        return 1.0, (*reasons, "a rule forbids it")
    if broken is not None and not found:
        return 0.5, (broken.reason,) if broken.reason else ()
    return round(min(0.95, score), 2), reasons


# A policy as data, where there is no pydantic ----------------------------------------------------------


@dataclass(frozen=True)
class PlainLists:
    """Lists of tools or of paths."""

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()


@dataclass(frozen=True)
class PlainPattern:
    """What is decided about calls of a tool with matching arguments."""

    tool: str
    pattern: str
    effect: str = "deny"
    reason: str = ""


@dataclass(frozen=True)
class PlainRules:
    """The policy inside a sandbox, where paths are not judged. By default a policy without exceptions."""

    imports: str = "advise"
    hosts: Sequence[str] = ()
    tools: PlainLists = field(default_factory=PlainLists)
    arguments: Sequence[PlainPattern] = ()
    rates: Mapping[str, int] = field(default_factory=dict)
    max_file_mb: float | None = None
    protected_areas: Sequence[str] = ()
    path_rules: Mapping[str, PlainLists] = field(default_factory=dict)
    protected_branches: Sequence[str] = ()


def written_rules(policy: Rules) -> str:
    """The part of a policy that is judged inside, as text for `read_rules`."""
    tools = {"allow": list(policy.tools.allow), "ask": list(policy.tools.ask), "deny": list(policy.tools.deny)}
    patterns = [[one.tool, one.pattern, one.effect, one.reason] for one in policy.arguments]
    return json.dumps(
        {
            "tools": tools,
            "arguments": patterns,
            "rates": dict(policy.rates),
            "branches": list(policy.protected_branches),
        },
        sort_keys=True,
    )


def read_rules(text: str) -> PlainRules:
    """What `written_rules` wrote; nothing gives a policy without exceptions."""
    if not text:
        return PlainRules()
    lists = json.loads(text)
    return PlainRules(
        tools=PlainLists(**lists["tools"]),
        arguments=tuple(PlainPattern(*one) for one in lists["arguments"]),
        rates=lists["rates"],
        protected_branches=lists["branches"],
    )
