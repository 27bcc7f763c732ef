"""The application of a home of its own, asked in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_kit import OPEN, Site, make_checkout
from fastapi.testclient import TestClient

from codepilot.api import create_app
from codepilot.engine import CodePilot
from configured import configured


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "shapes")


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    opened: list[CodePilot] = []

    def make(**flags: Any) -> Site:
        pilot = CodePilot(configured({"CODEPILOT_HOME": str(tmp_path / "home")}, **{**OPEN, **flags}))
        opened.append(pilot)
        return Site(pilot, TestClient(create_app(pilot), base_url="http://127.0.0.1", follow_redirects=False))

    yield make
    for pilot in opened:
        pilot.close()


@pytest.fixture
def site(open_site: Callable[..., Site]) -> Site:
    return open_site()
