"""`/metrics` and `/healthz` of a process that is no web service otherwise."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.telemetry.metrics import CONTENT_TYPE, METRICS

_log = logging.getLogger(__name__)

Health = Callable[[], tuple[bool, JsonObject]]


class Endpoint:
    """Answers scrapers and probes from a thread of its own."""

    def __init__(self, host: str, port: int, health: Health) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                path = _path(self.path)
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE, METRICS.render().encode())
                elif path == "/healthz":
                    well, facts = health()
                    self._answer(200 if well else 503, "application/json", json.dumps(facts).encode())
                else:
                    self._answer(404, "text/plain; charset=utf-8", b"There are /metrics and /healthz.\n")

            def do_HEAD(self) -> None:
                self.do_GET()

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every few seconds and are not worth a line."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that went away is nobody's business; the rest is said as everything else is."""
                error = sys.exception()
                if not isinstance(error, OSError):
                    _log.error("a request of %s was not answered", client_address, exc_info=error)

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"Nothing can listen on {host}:{port}: {error.strerror or error}.",
                next_action="Name another address; port 0 takes any that is free.",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _path(target: str) -> str:
    """What is asked for, without the query; whoever asks through a proxy names the whole URL."""
    path = target.partition("?")[0]
    scheme, proxied, rest = path.partition("://")
    return f"/{rest.partition('/')[2]}" if proxied and scheme.lower() in ("http", "https") else path
