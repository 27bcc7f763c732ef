"""Each attack runs at each level that confines; a machine without one may skip, CI may not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_kit import LEVELS, Targets

from codepilot.sandbox import Level, Sandbox, choose, probe
from codepilot.workspace import remove_workspace


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sandbox" in metafunc.fixturenames:
        metafunc.parametrize("sandbox", LEVELS, indirect=True, ids=str)


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    level: Level = request.param
    report = next(report for report in probe() if report.level == level)
    if not report.available:
        message = f"{level} does not work here: {report.reason}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return choose(level.value)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: a socket's address has no room for a long one."""
    path = Path(tempfile.mkdtemp(prefix="atk-")).resolve()
    yield path
    remove_workspace(path)


@pytest.fixture
def targets(place: Path) -> Iterator[Targets]:
    with Targets(place).standing() as standing:
        yield standing
