"""The policy of a run: one value that configures sandbox, skills and validation."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from codepilot.core.contract import Contract

HOST_PATTERN = r"^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:\d{1,5})?$"

Host = Annotated[str, Field(pattern=HOST_PATTERN, max_length=259)]
Severity = Literal["low", "medium", "high"]


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
        regression_test=policy.regression_test and wish.regression_test,
        hosts=tuple(host for host in policy.hosts if host in wish.hosts),
        test_hosts=tuple(host for host in policy.test_hosts if host in wish.test_hosts),
    )
