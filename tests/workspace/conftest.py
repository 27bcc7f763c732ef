"""Repositories, stores and workspaces to test with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from user_repo import Repo, read_state

from codepilot.workspace import ObjectStore


@pytest.fixture
def state() -> Callable[[Path], dict[str, tuple[object, ...]]]:
    return read_state


@pytest.fixture
def make_repo(tmp_path: Path) -> Callable[..., Repo]:
    def make(name: str = "repo", *init: str) -> Repo:
        path = tmp_path / name
        path.mkdir(parents=True)
        repo = Repo(path)
        repo.git("init", "-q", "-b", "main", *init)
        return repo

    return make


@pytest.fixture
def repo(make_repo: Callable[..., Repo]) -> Repo:
    return make_repo()


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(tmp_path / "repos" / "x.git")
