"""The contracts as JSON Schema, for programs that speak with CodePilot."""

from __future__ import annotations

from typing import Any

from codepilot.core.artifacts import ArtifactRef, ContextItem, PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import DATA, Event
from codepilot.core.failures import Failure
from codepilot.core.plan import Plan
from codepilot.core.run import Run
from codepilot.core.task import FollowUp, TaskSpec

CONTRACTS: tuple[type[Contract], ...] = (
    ArtifactRef,
    ContextItem,
    Event,
    Failure,
    FollowUp,
    PatchCandidate,
    Plan,
    Reflection,
    RepoMap,
    Review,
    Run,
    TaskSpec,
    TestResult,
)


def schemas() -> dict[str, dict[str, Any]]:
    """One schema a contract, and one that lists what each type of event carries."""
    found = {contract.__name__: contract.model_json_schema(by_alias=False) for contract in CONTRACTS}
    found["EventData"] = {kind.value: data.model_json_schema(by_alias=False) for kind, data in DATA.items()}
    return found
