"""Each attack runs at each level that confines; a machine without one may skip, CI may not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack_kit import LEVELS, Targets

from codepilot.sandbox import Sandbox
from codepilot.workspace import remove_workspace
from levels import level


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sandbox" in metafunc.fixturenames:
        metafunc.parametrize("sandbox", LEVELS, indirect=True, ids=str)


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return level(request.param.value)


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
