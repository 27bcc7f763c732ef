"""Connections at hand for writing: enough for the usual, none that readers would miss."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sample_runs import new_run

from codepilot.store import Store
from servers import PostgresServer

WRITERS = 64


@pytest.fixture
def store(postgres: PostgresServer) -> Iterator[Store]:
    opened = Store.open(postgres.database())
    yield opened
    opened.close()


@pytest.mark.timeout(25)
def test_many_writers_at_once_leave_connections_for_readers(store: Store) -> None:
    run_id = new_run(store)
    together = threading.Barrier(WRITERS)

    def write(_: int) -> None:
        with store._database.write(durable=False):
            together.wait(20)

    with ThreadPoolExecutor(WRITERS) as hands:
        list(hands.map(write, range(WRITERS)))
    assert store.load(run_id).run_id == run_id
