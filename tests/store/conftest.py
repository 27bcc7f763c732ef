"""The same store on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from artifact_kit import Kept, kept_files, kept_objects

from codepilot.store import Home, Store, new_id


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, home: Home) -> str:
    """The store's URL."""
    if request.param == "sqlite":
        return f"sqlite:///{home.database}"
    return str(request.getfixturevalue("postgres").store())


@pytest.fixture
def open_store(place: str, home: Home) -> Iterator[Callable[[], Store]]:
    """Opens the store once more, as another process would."""
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(Store.open(place, locks=home.locks))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()


@pytest.fixture(params=["files", "objects"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """An artifact store, empty."""
    if request.param == "files":
        return kept_files(tmp_path / "artifacts")
    s3 = request.getfixturevalue("s3")
    return kept_objects(s3.bucket, f"tests/{new_id('a')}", s3.environ)
