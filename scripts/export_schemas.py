"""Write what docs/ generates from the code: the contracts' JSON Schemas, the command line and the configuration.

`--check` only compares.
"""

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
from reference import cli_page, configuration_page

DOCS = Path(__file__).parent.parent / "docs"

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
    """Every generated file of docs/, by its path there."""
    documents = {one.__name__: one.model_json_schema(by_alias=False) for one in (Notice, Report)}
    everything = {**schemas(), **documents}
    written = {f"schemas/{name}.json": json.dumps(one, indent=2, sort_keys=True) for name, one in everything.items()}
    pages = {"cli.md": cli_page(), "configuration.md": configuration_page()}
    return {**{name: text + "\n" for name, text in written.items()}, **pages}


def stale() -> list[str]:
    """The files that differ from what the code says."""
    wanted = texts()
    present = {f"schemas/{path.name}" for path in (DOCS / "schemas").glob("*.json")}
    return sorted(name for name in wanted.keys() | present if wanted.get(name) != _present(name))


def _present(name: str) -> str | None:
    path = DOCS / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main() -> None:
    found = stale()
    if "--check" in sys.argv:
        sys.exit(f"docs/ is not current: {', '.join(found)}. Run: make schemas" if found else 0)
    (DOCS / "schemas").mkdir(parents=True, exist_ok=True)
    wanted = texts()
    for name in found:
        (DOCS / name).unlink(missing_ok=True)
        if name in wanted:
            (DOCS / name).write_text(wanted[name], encoding="utf-8")


if __name__ == "__main__":
    main()
