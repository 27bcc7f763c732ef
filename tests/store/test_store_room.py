"""Where there is no room for another thread, who asks is informed, and the next is served."""

from __future__ import annotations

import threading

import pytest

from codepilot.store import Store
from no_room import no_room_for
from servers import PostgresServer


def test_a_keeper_of_locks_that_could_not_be_started_is_started_for_the_next(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(postgres.store())
    refused = no_room_for("store-locks", monkeypatch)
    with pytest.raises(RuntimeError, match="thread"):
        store.register_worker("w-one")
    store.register_worker("w-one")
    assert refused and store.queue.alive("w-one")
    assert "store-locks" in [thread.name for thread in threading.enumerate()]
    store.close()
