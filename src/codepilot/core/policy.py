"""The policy of a run: one value that configures sandbox, skills and validation."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from codepilot.core.contract import Contract
from codepilot.core.globs import covers

HOST_PATTERN = r"^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:\d{1,5})?$"

Host = Annotated[str, Field(pattern=HOST_PATTERN, max_length=259)]
Covers = Callable[[str, str], bool]
Severity = Literal["low", "medium", "high"]


class ToolLists(Contract):
    """Tools by name; `*` and `?` stand for any characters."""

    allow: tuple[str, ...] = ()
    """The only tools that may be used; empty means all."""
    ask: tuple[str, ...] = ()
    """Tools before whose use a person is asked."""
    deny: tuple[str, ...] = ()
    """Tools that may not be used."""


class ArgumentRule(Contract):
    """What happens to calls of a tool whose arguments match."""

    tool: str = "run_command"
    """The tool's name; `*` stands for any characters."""
    pattern: str = Field(min_length=1)
    """The whole command with `*` for any characters, for example `git push *`, which covers `git push` too. Of another
    tool it is the first argument, for example a path.
    """
    effect: Literal["ask", "deny"] = "deny"
    """True if a person is asked, or the call is denied."""
    reason: str = ""
    """The message to the agent and the person."""


class RolePaths(Contract):
    """The paths that a role may change."""

    allow: tuple[str, ...] = ()
    """The only paths that it may change; empty means all."""
    deny: tuple[str, ...] = ()
    """Paths that it may not change."""


class Policy(Contract):
    """The rules of one run. A repository's configuration may tighten them, never loosen them."""

    violations: PositiveInt = 3
    """How many forbidden actions end the run."""
    least_level: Literal["bubblewrap", "landlock"] | None = None
    """The weakest sandbox level in which the run may work."""
    imports: Literal["advise", "strict", "off"] = "advise"
    """How imports that are on no list are handled: `advise` warns the agent, `strict` refuses the action."""
    generated_code: Severity | Literal["off"] = "high"
    """The least severity of a static finding that refuses generated code."""
    free_first: bool = False
    """True if the model-free engine tries first, before a model is paid for."""
    tools: ToolLists = ToolLists()
    """Which tools agents may use, by name."""
    arguments: tuple[ArgumentRule, ...] = ()
    """Calls of tools that are asked about or denied by their arguments."""
    rates: dict[str, PositiveInt] = {}
    """How often a tool may be called in a minute, by its name."""
    runtime_sec: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The longest time that one action or command of an agent may take; the budget's command_sec holds anyway."""
    max_file_mb: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The largest file that a change may add or change, in megabytes."""
    protected_areas: tuple[str, ...] = ()
    """Paths that are changed only if a person allows it, for example `.github/**`."""
    path_rules: dict[str, RolePaths] = {}
    """The paths that a role may change, by the role's name, for example `implementer`."""
    protected_branches: tuple[str, ...] = ("main", "master", "release*")
    """Branches to which nothing is pushed unless a person allows it."""
    enforce_plan: bool = False
    """True if a change without a plan is refused."""
    enforce_allowed_areas: bool = True
    """True if a change outside of the plan's allowed areas is refused. Its forbidden areas always are."""
    approval_timeout_sec: float = Field(default=600.0, ge=0, allow_inf_nan=False)
    """Seconds in which a person may answer a request; no answer is a denial. With 0 nobody is asked."""
    regression_test: bool = True
    """True if a confirmed repair of the model-free engine gets a regression test."""
    hosts: tuple[Host, ...] = ()
    """Hosts that code in the sandbox may reach, through a proxy. Empty means no network."""
    test_hosts: tuple[Host, ...] = ()
    """Further hosts for the command that runs the tests."""

    @field_validator("hosts", "test_hosts", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        """Accept one text with commas, as in an environment variable."""
        return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


_LEVELS = (None, "landlock", "bubblewrap")
_IMPORTS = ("off", "advise", "strict")
_SEVERITIES = ("off", "high", "medium", "low")


def tightened(policy: Policy, wish: Policy) -> Policy:
    """`policy` with the further restrictions of `wish`. Nothing that `policy` forbids becomes allowed."""
    return Policy(
        violations=min(policy.violations, wish.violations),
        least_level=max(policy.least_level, wish.least_level, key=_LEVELS.index),
        imports=max(policy.imports, wish.imports, key=_IMPORTS.index),
        generated_code=max(policy.generated_code, wish.generated_code, key=_SEVERITIES.index),
        free_first=policy.free_first or wish.free_first,
        tools=_joined(policy.tools, wish.tools),
        arguments=tuple(dict.fromkeys((*policy.arguments, *wish.arguments))),
        rates={
            name: min(limits.rates[name] for limits in (policy, wish) if name in limits.rates)
            for name in {**policy.rates, **wish.rates}
        },
        runtime_sec=_least(policy.runtime_sec, wish.runtime_sec),
        max_file_mb=_least(policy.max_file_mb, wish.max_file_mb),
        protected_areas=tuple(dict.fromkeys((*policy.protected_areas, *wish.protected_areas))),
        path_rules={
            name: _joined_paths(policy.path_rules.get(name), wish.path_rules.get(name))
            for name in {**policy.path_rules, **wish.path_rules}
        },
        protected_branches=tuple(dict.fromkeys((*policy.protected_branches, *wish.protected_branches))),
        enforce_plan=policy.enforce_plan or wish.enforce_plan,
        enforce_allowed_areas=policy.enforce_allowed_areas or wish.enforce_allowed_areas,
        approval_timeout_sec=min(policy.approval_timeout_sec, wish.approval_timeout_sec),
        regression_test=policy.regression_test and wish.regression_test,
        hosts=tuple(host for host in policy.hosts if host in wish.hosts),
        test_hosts=tuple(host for host in policy.test_hosts if host in wish.test_hosts),
    )


NOTHING = "-"
"""In an allow list: nothing is allowed, since an empty list allows everything."""


def _least(mine: float | None, wish: float | None) -> float | None:
    return min((one for one in (mine, wish) if one is not None), default=None)


def _both(mine: tuple[str, ...], wish: tuple[str, ...], covers: Covers) -> tuple[str, ...]:
    """What two allow lists have in common; an empty one allows everything."""
    if not mine or not wish:
        return mine or wish
    common = [one for one in mine if _listed(one, wish, covers)] + [one for one in wish if _listed(one, mine, covers)]
    return tuple(dict.fromkeys(common)) or (NOTHING,)


def _listed(entry: str, patterns: tuple[str, ...], covers: Covers) -> bool:
    """True if an entry is in a list, or is a plain name that one of its patterns covers."""
    plain = not set("*?[{") & set(entry)
    return entry in patterns or (plain and any(covers(pattern, entry) for pattern in patterns))


def _names(pattern: str, tool: str) -> bool:
    return fnmatchcase(tool, pattern)


def _either(mine: tuple[str, ...], wish: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*mine, *wish)))


def _joined(mine: ToolLists, wish: ToolLists) -> ToolLists:
    return ToolLists(
        allow=_both(mine.allow, wish.allow, _names), ask=_either(mine.ask, wish.ask), deny=_either(mine.deny, wish.deny)
    )


def _joined_paths(mine: RolePaths | None, wish: RolePaths | None) -> RolePaths:
    mine, wish = mine or RolePaths(), wish or RolePaths()
    return RolePaths(allow=_both(mine.allow, wish.allow, covers), deny=_either(mine.deny, wish.deny))
