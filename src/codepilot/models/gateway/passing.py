"""One call through the gateway: examined, charged, sent on with the key, and passed back while it is metered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from codepilot.core.events import Usage
from codepilot.core.failures import FailureKind
from codepilot.models import errors
from codepilot.models.gateway.meter import CallRefused, Meter, MeteredCall
from codepilot.models.gateway.refusals import Why, cut_off
from codepilot.models.gateway.requests import Examined, examine
from codepilot.models.gateway.routes import Route
from codepilot.models.gateway.upstream import Begun, Unreachable, Upstream, Upstreams, passed_back
from codepilot.models.gateway.usage import UsageReader
from codepilot.models.prices import Prices

MOST_ERROR = 1 << 20
"""The size of a provider's error that is passed back."""
LOOK_TOKENS = 500
"""After how much more output the budget is looked at again."""
_SPENT = "The run's budget is spent: CodePilot cut the reply off."


class Refused(Exception):
    """The gateway itself refuses a request."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why = why


class Client(Protocol):
    """The program that asked."""

    def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None: ...
    def begin(self, status: int, headers: Mapping[str, str]) -> None: ...
    def write(self, data: bytes) -> None: ...
    def gone(self) -> bool: ...


class Around(Protocol):
    """What a call needs of its gateway."""

    meter: Meter
    upstreams: Upstreams
    clean: Callable[[str], str]


@dataclass
class Passing:
    method: str
    way: Route
    around: Around
    sent: Mapping[str, str]
    body: bytes
    replying: bool = False
    """True once the client has got the head of a reply."""

    def run(self, client: Client) -> None:
        """Raises `Refused` before anything is replied."""
        if not self.way.metered:
            self._pass(client, None, None)
            return
        upstream = self._upstream
        try:
            examined = examine(self.way, self.body)
        except CallRefused as refused:
            raise Refused("request", str(refused)) from None
        prices = upstream.prices(examined.model)
        most = prices.priced(examined.estimate, self._written(examined.estimate))
        try:
            call = self.around.meter.begin(examined.model, most)
        except CallRefused as refused:
            raise Refused("budget", str(refused)) from None
        metering = _Metering(self.way, examined, prices, call)
        try:
            self._pass(client, metering, examined.body)
        finally:
            metering.end()

    @property
    def _upstream(self) -> Upstream:
        return self.around.upstreams.by_dialect[self.way.dialect]

    def _written(self, estimate: Usage) -> int:
        """The most expensive case: everything goes into the provider's cache, if that costs more."""
        return estimate.input_tokens if self.way.dialect == "anthropic" else 0

    def _pass(self, client: Client, metering: _Metering | None, body: bytes | None) -> None:
        target = f"{self.way.path}?{self.way.query}" if self.way.query else self.way.path
        asked = body if body is not None else (self.body or None)
        with self.around.upstreams.call(self._upstream, self.method, target, self.sent, asked) as read:
            try:
                self._reply(client, metering, read(client.gone))
            except Unreachable as error:
                if self.replying:
                    raise ConnectionResetError from None
                why = self.around.clean(str(error))
                message = f"CodePilot's model gateway cannot reach the {self.way.dialect} API: {why}"
                raise Refused("upstream", message) from None

    def _reply(self, client: Client, metering: _Metering | None, pieces: Iterator[Begun | bytes]) -> None:
        head = next(pieces, None)
        if not isinstance(head, Begun):
            raise ConnectionResetError
        headers = passed_back(head.headers)
        if head.status >= 300:
            said = self._error(pieces)
            if metering is not None:
                metering.refused(head, said)
            client.reply(head.status, headers, said)
            return
        if metering is not None:
            metering.begin("text/event-stream" in head.headers.get("content-type", ""))
        self.replying = True
        client.begin(head.status, {**headers, "transfer-encoding": "chunked"})
        for piece in pieces:
            if not isinstance(piece, bytes) or not piece:
                continue
            client.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if metering is not None and not metering.take(piece):
                last = cut_off(self.way.dialect, _SPENT)
                client.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
                return
        if client.gone():
            raise ConnectionResetError
        if metering is not None:
            metering.whole()
        client.write(b"0\r\n\r\n")

    def _error(self, pieces: Iterator[Begun | bytes]) -> bytes:
        """The provider's error message, without the key that it may quote."""
        body = bytearray()
        for piece in pieces:
            if isinstance(piece, bytes) and len(body) + len(piece) <= MOST_ERROR:
                body += piece
        return self.around.clean(body.decode("utf-8", "replace")).encode()


class _Metering:
    """What one call has used so far."""

    def __init__(self, way: Route, examined: Examined, prices: Prices, call: MeteredCall) -> None:
        self._way = way
        self._asked = examined.estimate.input_tokens
        self._prices = prices
        self._call = call
        self._reader: UsageReader | None = None
        self._looked_at = 0

    def begin(self, streamed: bool) -> None:
        """The provider replies, so the call costs money."""
        self._reader = UsageReader(self._way.api, streamed, self._asked)

    def refused(self, head: Begun, said: bytes) -> None:
        """The provider refused the call. What it says of a quota's reset is kept: the program may not repeat it."""
        found = errors.refused("", errors.Refusal(head.status, head.headers, _decoded(said)), time.time(), str)
        if found.kind is FailureKind.MODEL_QUOTA:
            reset = found.failure.details.get("reset_at")
            self._call.quota_is_back(reset if isinstance(reset, int) else None)

    def take(self, piece: bytes) -> bool:
        """False if the run cannot pay for more of it."""
        assert self._reader is not None
        self._reader.feed(piece)
        output = self._reader.seen.output
        if output - self._looked_at < LOOK_TOKENS:
            return True
        self._looked_at = output
        return self._call.grow(self._used(self._reader))

    def whole(self) -> None:
        if self._reader is not None:
            self._reader.end()

    def end(self) -> None:
        self._call.end(None if self._reader is None else self._used(self._reader))

    def _used(self, reader: UsageReader) -> Usage:
        seen = reader.seen
        return self._prices.priced(seen.usage, seen.written)


def _decoded(said: bytes) -> object:
    """An error's body: an object, or the text that it is."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return said.decode("utf-8", "replace")
    return found[0] if isinstance(found, list) and found else found
