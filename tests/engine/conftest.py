"""Fixtures of the engine's tests."""

import pytest
from engine_kit import checkout, runtime

from codepilot.telemetry import METRICS

__all__ = ["checkout", "runtime"]


@pytest.fixture(autouse=True)
def metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics count as in a worker's process."""
    monkeypatch.setattr(METRICS, "enabled", True)
