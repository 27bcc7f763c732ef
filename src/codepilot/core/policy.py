"""What a run may do beyond its capability: one value, compiled into sandbox, skills and validation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from codepilot.core.contract import Contract

HOST_PATTERN = r"^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?(:\d{1,5})?$"

Host = Annotated[str, Field(pattern=HOST_PATTERN, max_length=259)]
Severity = Literal["low", "medium", "high"]


class Policy(Contract):
    """The rules of one run. A repository's own configuration may tighten them, never loosen them."""

    violations: PositiveInt = 3
    """How many forbidden actions end the run."""
    least_level: Literal["bubblewrap", "landlock"] | None = None
    """The weakest sandbox level in which the run may work."""
    imports: Literal["advise", "strict", "off"] = "advise"
    """What happens to an action that imports what is on no list: it is told, refused, or neither."""
    generated_code: Severity | Literal["off"] = "high"
    """The least severity of a static finding that refuses generated code."""
    hosts: tuple[Host, ...] = ()
    """Hosts that code inside may reach, through a proxy that sees every request. None means no network at all."""
