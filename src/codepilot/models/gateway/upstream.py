"""The provider behind the gateway: its address and key, and one call to it whose reply comes in pieces.

Calls run on the event loop of all model calls, so that one that hangs can be dropped at any moment.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codepilot.core.model_settings import KnownModel
from codepilot.models.gateway.endpoint import Dialect
from codepilot.models.prices import Prices
from codepilot.models.sdk import CONNECT_SEC, loop

if TYPE_CHECKING:
    import httpx2

WAITING_PIECES = 64
"""How many pieces of a reply wait for a client that reads slowly; then the provider waits too."""
LOOK_SEC = 0.1
_PASSED_ON = ("content-type", "accept", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
_PASSED_BACK = ("content-type", "retry-after", "retry-after-ms", "request-id", "x-request-id", "x-should-retry", "date")
_LIMIT_HEADERS = ("anthropic-ratelimit-", "x-ratelimit-", "x-codex-")
_PROVIDERS: Mapping[Dialect, str] = {"anthropic": "anthropic", "openai": "openai", "gemini": "google"}


@dataclass(frozen=True)
class Upstream:
    """A provider as this machine reaches it."""

    dialect: Dialect
    base_url: str
    key: str = field(repr=False)
    known: Mapping[str, KnownModel] = field(default_factory=dict)
    """What the settings say of models."""

    def headers(self, sent: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request: few of those that were sent, and the key."""
        kept = {name: value for name, value in sent.items() if name in _PASSED_ON}
        kept["accept-encoding"] = "identity"
        if self.dialect == "anthropic":
            return {"anthropic-version": "2023-06-01", **kept, "x-api-key": self.key}
        if self.dialect == "gemini":
            return {**kept, "x-goog-api-key": self.key}
        return {**kept, "authorization": f"Bearer {self.key}"}

    def prices(self, model: str) -> Prices:
        known = self.known.get(model)
        provider = _PROVIDERS[self.dialect]
        return Prices(model, provider=provider) if known is None else Prices(model, provider=provider, known=known)


def passed_back(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a reply that its client gets."""
    return {name: value for name, value in headers.items() if name in _PASSED_BACK or name.startswith(_LIMIT_HEADERS)}


class Unreachable(Exception):
    """The provider could not be reached, or broke off before it replied."""


@dataclass(frozen=True)
class Begun:
    """The head of a reply."""

    status: int
    headers: Mapping[str, str]


class Upstreams:
    """The clients of all providers, for one gateway."""

    def __init__(self, upstreams: Mapping[Dialect, Upstream], timeout_sec: float) -> None:
        self.by_dialect = upstreams
        self._timeout_sec = timeout_sec
        self._client: httpx2.AsyncClient | None = None

    @contextmanager
    def call(
        self, upstream: Upstream, method: str, target: str, sent: Mapping[str, str], body: bytes | None
    ) -> Iterator[Callable[[Callable[[], bool]], Iterator[Begun | bytes]]]:
        """One call. Inside the block, `pieces(stopped)` yields the head and then the body; leaving drops the call."""
        pieces: queue.SimpleQueue[Begun | bytes | None] = queue.SimpleQueue()
        asking = self._ask(method, upstream.base_url + target, upstream.headers(sent), body, pieces)
        future: Future[None] = asyncio.run_coroutine_threadsafe(asking, loop())
        future.add_done_callback(lambda _: pieces.put(None))

        def read(stopped: Callable[[], bool]) -> Iterator[Begun | bytes]:
            while not stopped():
                try:
                    piece = pieces.get(timeout=LOOK_SEC)
                except queue.Empty:
                    continue
                if piece is None:
                    _raise(future)
                    return
                yield piece

        try:
            yield read
        finally:
            future.cancel()

    def close(self) -> None:
        if self._client is not None:
            with suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(self._client.aclose(), loop())

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        pieces: queue.SimpleQueue[Begun | bytes | None],
    ) -> None:
        async with self._connected().stream(method, url, headers=dict(headers), content=body) as response:
            pieces.put(Begun(response.status_code, {name.lower(): text for name, text in response.headers.items()}))
            async for piece in response.aiter_bytes():
                while pieces.qsize() >= WAITING_PIECES:
                    await asyncio.sleep(LOOK_SEC / 10)
                pieces.put(piece)

    def _connected(self) -> Any:
        """Made on the loop, which all calls share."""
        if self._client is None:
            import httpx2

            timeout = httpx2.Timeout(self._timeout_sec, connect=CONNECT_SEC)
            self._client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False)
        return self._client


def _raise(future: Future[None]) -> None:
    """Raise what ended the call, if it was not its end."""
    if future.cancelled():
        raise Unreachable("it was dropped")
    error = future.exception()
    if error is None:
        return
    if type(error).__module__.partition(".")[0] in ("httpx2", "httpcore2", "h11"):
        raise Unreachable(f"{type(error).__name__}: {error}".rstrip(": ")) from None
    raise error
