"""The sets that there are, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from codepilot.bench import humanevalfix, quixbugs
from codepilot.bench.bugs import Bug
from codepilot.core.failures import CodePilotError, FailureKind

SETS: dict[str, Callable[[Path], list[Bug]]] = {"humanevalfix": humanevalfix.load, "quixbugs": quixbugs.load}


def load_set(name: str, path: Path) -> list[Bug]:
    if name not in SETS:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There is no set called {name!r}.",
            next_action=f"Use one of: {', '.join(SETS)}.",
        )
    if not path.exists():
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"{path} does not exist.", next_action="Name the set's data with --data."
        )
    return SETS[name](path)
