"""Fixtures of the tests of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from workers_kit import Deployment, make_repo

from servers import PostgresServer, S3Server


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A little shop whose shipping is not free at the limit."""
    return make_repo(tmp_path / "shop")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Deployment]:
    """One machine: SQLite and files in the home."""
    deployment = Deployment(tmp_path / "deployment")
    yield deployment
    deployment.close()


@pytest.fixture
def team(tmp_path: Path, postgres: PostgresServer, s3: S3Server) -> Iterator[Deployment]:
    """Machines that share a PostgreSQL server and S3, and nothing else."""
    shared = {"CODEPILOT_STORE": postgres.store(), "CODEPILOT_ARTIFACTS": f"{s3.url}/{tmp_path.name}"}
    deployment = Deployment(tmp_path / "deployment", {**s3.environ, **shared})
    yield deployment
    deployment.close()
