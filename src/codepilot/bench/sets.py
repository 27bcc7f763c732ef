"""The sets that there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from codepilot.bench import humanevalfix, quixbugs, realfix
from codepilot.bench.bugs import Bug, Judgement, Repair
from codepilot.bench.judge import judge, judge_real
from codepilot.core.failures import CodePilotError, FailureKind

SETS: dict[str, Callable[[Path], list[Bug]]] = {
    "humanevalfix": humanevalfix.load,
    "quixbugs": quixbugs.load,
    "realfix": realfix.load,
}
Judge = Callable[[Bug, Sequence[Repair], Path, Path, str | None], list[Judgement]]


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


def judge_of(bug: Bug) -> Judge:
    """The judge of a bug's offers."""
    return judge if bug.origin is None else judge_real
