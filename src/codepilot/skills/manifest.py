"""What a skill is called, takes and gives, and what it may do."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.task import Capability

NAME = r"^[a-z][a-z0-9_]*$"
VERSION = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"
"""A semantic version."""


class Target(StrEnum):
    """Where a skill's body runs."""

    LOCAL = "local"
    EXECUTOR = "executor"


class SkillPolicy(Contract):
    """The limits within which a skill runs, and the least capability a task must have for it to exist."""

    target: Target = Target.EXECUTOR
    network: bool = False
    """Whether it needs one; it does not exist for a task that may reach no host."""
    filesystem_write: bool = False
    timeout_sec: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    memory_mb: int | None = Field(default=None, gt=0)
    """What a call may add to its process; None leaves it to the sandbox's own limit. Not for LOCAL skills."""
    needs: Capability = Capability.READ_ONLY
    retries: int | None = Field(default=None, ge=1, le=3)
    """How often it is tried when a failure may pass by itself: three times, but once if it may change something."""

    @property
    def tries(self) -> int:
        return self.retries or (1 if self.filesystem_write or self.network else 3)


class SkillManifest(Contract):
    """A skill's identity and shape, generated from its function."""

    name: str = Field(pattern=NAME)
    version: str = Field(pattern=VERSION)
    description: str = Field(min_length=1)
    signature: str
    input_schema: JsonObject
    output_schema: JsonObject
