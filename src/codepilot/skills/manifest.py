"""What a skill is called, takes and gives, and what it may do."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.task import Capability


class Target(StrEnum):
    """Where a skill's body runs."""

    LOCAL = "local"
    EXECUTOR = "executor"


class SkillPolicy(Contract):
    """The limits within which a skill runs, and the least capability a task must have for it to exist."""

    target: Target = Target.EXECUTOR
    network: bool = False
    filesystem_write: bool = False
    timeout_sec: float = 300.0
    memory_mb: int = 1024
    needs: Capability = Capability.READ_ONLY


class SkillManifest(Contract):
    """A skill's identity and shape, generated from its function."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    version: str = Field(pattern=r"^\d+\.\d+\.\d+$")
    description: str = Field(min_length=1)
    signature: str
    input_schema: JsonObject
    output_schema: JsonObject
