"""Servers that any test may ask for; each is started once a test process, when it is first wanted."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from servers import PostgresServer, S3Server, postgres_server, quick_place, s3_server

_any_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _any_machine, max_examples=40)
settings.register_profile("thorough", _any_machine, max_examples=400)
settings.load_profile("quick")  # `--hypothesis-profile thorough` for more

# A shell ignores these for what it runs in the background, and tests interrupt processes that would inherit it.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Leave the collected tests, which are thousands, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with quick_place() as place, postgres_server(place / "server") as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with quick_place() as place, s3_server(place / "server") as server:
        yield server
