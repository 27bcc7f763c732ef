"""HTTP endpoint of a worker: `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.telemetry.metrics import CONTENT_TYPE, METRICS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Health:
    """`ok` answers `/healthz`, `ready` answers `/readyz`; both show `facts`."""

    ok: bool
    ready: bool
    facts: JsonObject


class Endpoint:
    """Serves scrapers and probes from a thread of its own, and enables the process's metrics."""

    def __init__(self, host: str, port: int, health: Callable[[], Health]) -> None:
        METRICS.enabled = True

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                path = _path(self.path)
                if path == "/metrics":
                    self._answer(200, CONTENT_TYPE, METRICS.render().encode())
                elif path in ("/healthz", "/readyz"):
                    found = health()
                    passed = found.ok if path == "/healthz" else found.ready
                    self._answer(200 if passed else 503, "application/json", json.dumps(found.facts).encode())
                else:
                    self._answer(404, "text/plain; charset=utf-8", b"There are /metrics, /healthz and /readyz.\n")

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
                """Do not log requests: probes come every few seconds."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Log errors other than a client that closed its connection."""
                error = sys.exception()
                if not isinstance(error, OSError):
                    _log.error("the request of %s failed", client_address, exc_info=error)

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"Cannot listen on {host}:{port}: {error.strerror or error}.",
                next_action="Use another address; port 0 takes any free port.",
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
    """The path without the query. A client behind a proxy sends the whole URL."""
    path = target.partition("?")[0]
    scheme, proxied, rest = path.partition("://")
    return f"/{rest.partition('/')[2]}" if proxied and scheme.lower() in ("http", "https") else path
