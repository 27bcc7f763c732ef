from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from codepilot.store import Home, Store


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    opened = Store.open(home.database, locks=home.locks)
    yield opened
    opened.close()
