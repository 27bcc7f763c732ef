"""Write the contracts' JSON Schemas to docs/schemas, one file each; `--check` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from codepilot.core.artifacts import ArtifactRef, ContextItem, PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import DATA, Event
from codepilot.core.failures import Failure
from codepilot.core.plan import Plan
from codepilot.core.run import Run
from codepilot.core.task import FollowUp, TaskSpec
from codepilot.telemetry import Report
from codepilot.verify import Notice

DIRECTORY = Path(__file__).parent.parent / "docs" / "schemas"


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


def texts() -> dict[str, str]:
    documents = {one.__name__: one.model_json_schema(by_alias=False) for one in (Notice, Report)}
    everything = {**schemas(), **documents}
    return {f"{name}.json": json.dumps(schema, indent=2, sort_keys=True) + "\n" for name, schema in everything.items()}


def stale() -> list[str]:
    """The files that differ from what the code says."""
    wanted = texts()
    present = {path.name: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.json")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main() -> None:
    if "--check" in sys.argv:
        sys.exit(f"docs/schemas is not current: {', '.join(stale())}. Run: make schemas" if stale() else 0)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name in stale():
        (DIRECTORY / name).unlink(missing_ok=True)
    for name, text in texts().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
