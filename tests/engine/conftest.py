"""Fixtures of the engine's tests."""

from collections.abc import Iterator

import pytest
from engine_kit import checkout, runtime

from codepilot.engine.change import finalize
from codepilot.repair import MutationScore
from codepilot.telemetry import METRICS

__all__ = ["checkout", "runtime"]


@pytest.fixture(autouse=True, scope="module")
def mutation_score() -> Iterator[None]:
    """A fixed mutation score: measuring one is a fifth of a small run."""
    with pytest.MonkeyPatch.context() as patched:
        strong = MutationScore(mutants=6, killed=6, score=1.0, near=2, near_killed=2)
        patched.setattr(finalize, "mutation_score", lambda *_, **__: strong)
        yield


@pytest.fixture(autouse=True)
def metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics count as in a worker's process."""
    monkeypatch.setattr(METRICS, "enabled", True)
