"""Servers that any test may ask for; each is started once a test process, when it is first wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from servers import PostgresServer, S3Server, postgres_server, quick_place, s3_server

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with quick_place() as place, postgres_server(place / "server") as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with quick_place() as place, s3_server(place / "server") as server:
        yield server
