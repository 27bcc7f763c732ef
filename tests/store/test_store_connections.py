"""Connections at hand for writing: enough for the usual, none that readers would miss, none to a server long gone."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sample_runs import new_run
from sqlalchemy import make_url

from codepilot.store import Store
from servers import PostgresServer

WRITERS = 64


class Relay(socketserver.StreamRequestHandler):
    """From a port of this machine to the server's socket."""

    to = ""

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self.to)
            back = threading.Thread(target=self._pass, args=(server, self.connection), daemon=True)
            back.start()
            self._pass(self.connection, server)
            back.join(5)

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while message := source.recv(65536):
                sink.sendall(message)
            sink.shutdown(socket.SHUT_WR)


class Relaying(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def store(postgres: PostgresServer) -> Iterator[Store]:
    opened = Store.open(postgres.store())
    yield opened
    opened.close()


@pytest.mark.timeout(200)
def test_many_writers_at_once_leave_connections_for_readers(store: Store) -> None:
    run_id = new_run(store)
    together = threading.Barrier(WRITERS)

    def write(_: int) -> None:
        with store._database.write(durable=False):
            together.wait(60)

    with ThreadPoolExecutor(WRITERS) as hands:
        list(hands.map(write, range(WRITERS)))
    assert store.load(run_id).run_id == run_id


@pytest.mark.parametrize(("asked", "idle"), [("", 10), ("?keepalives_idle=77", 77)])
def test_a_server_that_is_gone_without_a_word_is_missed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, asked: str, idle: int
) -> None:
    url = make_url(postgres.store())
    monkeypatch.setattr(Relay, "to", f"{postgres.directory}/.s.PGSQL.5432")
    with Relaying(("127.0.0.1", 0), Relay) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        by_port = f"postgresql://{url.username}@127.0.0.1:{relay.server_address[1]}/{url.database}{asked}"
        store = Store.open(by_port)
        with store._database.read() as connection:
            driver = connection.connection.dbapi_connection
            assert driver is not None
            with socket.socket(fileno=os.dup(driver.fileno())) as ours:  # type: ignore[attr-defined]
                reported = [
                    ours.getsockopt(socket.IPPROTO_TCP, one) for one in (socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT)
                ]
            shown = connection.exec_driver_sql("SHOW tcp_keepalives_idle").scalar()
        store.close()
        relay.shutdown()
    assert reported == [idle, 30_000]
    assert shown == "0", "the server's own side is a socket of the machine"
