"""Servers that any test may ask for; each is started once a test process, when it is first wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers import PostgresServer, S3Server, postgres_server, s3_server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres_server(tmp_path_factory.mktemp("pg") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server
