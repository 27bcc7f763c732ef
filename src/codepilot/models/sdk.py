"""The base of models behind an official SDK: lazy import, one client, retries, prices, redacted errors."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from codepilot.core.contract import JsonObject
from codepilot.core.events import Usage
from codepilot.core.failures import FailureKind
from codepilot.core.run import UNCHARGED
from codepilot.models.connection import LOOK_SEC, Connection
from codepilot.models.errors import SHOWN, ModelFailure, Refusal, refused, sdk_missing
from codepilot.models.prices import Prices, estimated
from codepilot.models.protocol import (
    Message,
    OnText,
    Reply,
    Stopped,
    Tool,
    cancelled,
    ignore_text,
    never,
    without_tools,
)

CONNECT_SEC = 10.0
SMALLER = 0.8
"""The share of a request that was refused as too long which the next one may have at most."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    messages: Sequence[Message]
    temperature: float
    max_tokens: int
    tools: Sequence[Tool]


class SdkModel(ABC):
    """A provider's model. A subclass adds only the wire format."""

    package: str
    models_path: str = "/models"
    """The path of the server's list of models."""
    writes_cache: bool = False
    """True if the provider charges for writing its cache."""

    def __init__(self, name: str, prices: Prices, connection: Connection) -> None:
        self.name = name
        self.prices = prices
        self.connection = connection
        self.lacks: set[str] = set()
        """The parameters that the provider does not accept with this model."""
        self._refused_at: int | None = None
        """The size of context that a refusal taught."""

    @property
    def context_tokens(self) -> int | None:
        known = self._listed_context if self._listed_context is not None else self.served_context()
        sizes = [size for size in (known, self._refused_at) if size is not None]
        return min(sizes, default=None)

    @cached_property
    def _listed_context(self) -> int | None:
        return self.prices.context_tokens

    def served_context(self) -> int | None:
        """The size of context that the server itself names, if it does."""
        return None

    def reply(
        self,
        messages: Sequence[Message],
        *,
        temperature: float,
        max_tokens: int,
        tools: Sequence[Tool] = (),
        on_text: OnText = ignore_text,
        stopped: Stopped = never,
    ) -> Reply:
        fenced = bool(tools) and all(tool.fenced for tool in tools)
        asked = Asked(messages, temperature, max_tokens, tools)
        if fenced:
            asked = Asked(without_tools(messages, tools), temperature, max_tokens, ())
        try:
            return self.connection.retry.ask(self.name, lambda: self._once(asked, on_text, stopped), stopped)
        except ModelFailure as failure:
            if failure.kind is FailureKind.CONTEXT_EXCEEDED:
                self._learn(failure, self.estimate(messages, max_tokens, tools).tokens)
            raise

    def _learn(self, failure: ModelFailure, estimated_tokens: int) -> None:
        """Remember the limit that a refusal names, and that the estimate of this request was over it."""
        limit, most = failure.failure.details.get("limit"), int(estimated_tokens * SMALLER)
        self._refused_at = min(limit, most) if isinstance(limit, int) else most

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        return estimated(messages, max_tokens, tools, self._at_most)

    def _at_most(self, usage: Usage) -> Usage:
        """The most expensive case: nothing cached, or everything written to the cache."""
        return self.prices.priced(usage, usage.input_tokens if self.writes_cache else 0)

    @abstractmethod
    async def _stream(self, asked: Asked) -> Any:
        """Send the request. Returns the SDK's stream once the provider begins to reply."""

    @abstractmethod
    async def _read(self, stream: Any, asked: Asked, on_text: OnText) -> Reply:
        """The whole reply. `on_text` receives the text as it streams."""

    @abstractmethod
    def _make_client(self, sdk: Any) -> Any: ...

    def _lacking(self, failure: ModelFailure, asked: Asked) -> str | None:
        """The parameter to leave out so that the provider may accept the request."""
        about_temperature = "temperature" in f"{failure.failure.details.get('text')}"
        return "temperature" if failure.failure.details.get("status") == 400 and about_temperature else None

    def _once(self, asked: Asked, on_text: OnText, stopped: Stopped) -> Reply:
        left_out: set[str] = set()
        while True:
            try:
                return call(self.name, lambda put: self._ask(asked, put), on_text=on_text, stopped=stopped)
            except ModelFailure as failure:
                lacking = self._lacking(failure, asked)
                if lacking is None or lacking in self.lacks | left_out:
                    raise
                self.lacks.add(lacking)
                left_out.add(lacking)

    async def _ask(self, asked: Asked, on_text: OnText) -> Reply:
        begun = False
        try:
            stream = await self._stream(asked)
            begun = True
            async with stream:
                return await self._read(stream, asked, on_text)
        except ModelFailure:
            raise
        except Exception as error:
            failure = self._failure(error, begun)
            if failure is None:
                raise
            raise failure from None  # the SDK's error holds the request and its key

    def _failure(self, error: Exception, begun: bool) -> ModelFailure | None:
        sdk = self.sdk
        if isinstance(error, sdk.APIStatusError):
            refusal = Refusal(error.status_code, dict(error.response.headers), error.body)
            return self._refused(refusal)
        if isinstance(error, sdk.APITimeoutError) or type(error).__name__.endswith("Timeout"):
            return self._timed_out(error)
        if begun and (isinstance(error, sdk.APIConnectionError) or _of_transport(error)):
            return self.bad_reply("its reply was cut off")
        if isinstance(error, sdk.APIConnectionError):
            return self._unreachable(f"{error.__cause__ or error}")
        if isinstance(error, sdk.APIError):
            return self._refused(Refusal(200, {}, error.body))
        if isinstance(error, (ValueError, KeyError, TypeError, AttributeError)) and begun:
            return self.bad_reply("its reply does not fit its API")
        return None

    def _refused(self, refusal: Refusal) -> ModelFailure:
        return refused(self.name, refusal, self.connection.retry.now(), self.connection.clean)

    def _timed_out(self, error: Exception) -> ModelFailure:
        """A failed connection is retried; a model that was silent for so long would be again."""
        if type(error.__cause__ or error).__name__ == "ConnectTimeout":
            return self._unreachable(f"no connection within {CONNECT_SEC:g} s")
        seconds = self.connection.timeout_sec
        return ModelFailure(FailureKind.MODEL_TIMEOUT, f"{self.name} sent nothing for {seconds:g} s.")

    def _unreachable(self, why: str) -> ModelFailure:
        """The failure of a call that did not reach the server: it costs nothing."""
        url = self.connection.clean(str(self.client.base_url)).rstrip("/")
        look = f"curl {url}{self.models_path}"
        return ModelFailure(
            FailureKind.MODEL_UNREACHABLE,
            f"{self.name} cannot be reached at {url}: {self.connection.clean(why)[:SHOWN].rstrip('.')}.",
            next_action=f"Check that the server runs and answers `{look}`, then run `codepilot resume`.",
            again=True,
            **{UNCHARGED: True},
        )

    def bad_reply(self, what: str) -> ModelFailure:
        return ModelFailure(
            FailureKind.MODEL_BAD_REPLY, f"{self.name} gave no usable reply: {self.connection.clean(what)}.", again=True
        )

    def arguments(self, tool: str, text: str) -> JsonObject:
        """A call's arguments from the JSON they were streamed as."""
        try:
            value = json.loads(text or "{}")
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise self.bad_reply(f"the arguments of its call of {tool[:50]!r} are not a JSON object")
        return value

    @cached_property
    def sdk(self) -> Any:
        return load_sdk(self.package)

    @cached_property
    def client(self) -> Any:
        """One client for all calls, so that connections are reused. It is closed with the model."""
        made = self._make_client(self.sdk)
        weakref.finalize(self, _close_later, made).atexit = False
        return made

    def client_options(self, sdk: Any) -> dict[str, Any]:
        return {
            "max_retries": 0,
            "timeout": sdk.Timeout(self.connection.timeout_sec, connect=CONNECT_SEC),
            **({"base_url": self.connection.url} if self.connection.url else {}),
        }


def load_sdk(package: str) -> Any:
    """Import the provider's SDK on first use."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise sdk_missing(package) from error


def _of_transport(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2", "h11")


def _close_later(client: Any) -> None:
    with suppress(RuntimeError):
        asyncio.run_coroutine_threadsafe(client.close(), loop())


T = TypeVar("T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The event loop by process id: a fork has no thread that runs its parent's."""


def call(
    model: str,
    asking: Callable[[OnText], Coroutine[Any, Any, T]],
    *,
    on_text: OnText = lambda piece: None,
    stopped: Stopped,
) -> T:
    """Run `asking` on the loop and return its result. `on_text` is called in the caller's thread."""
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    ended = threading.Event()

    async def ask() -> T:
        try:
            return await asking(pieces.put)
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(ask(), loop())
    future.add_done_callback(lambda _: pieces.put(None))
    look_at = 0.0
    try:
        while True:
            if time.monotonic() >= look_at:
                if stopped():
                    raise cancelled(model)
                look_at = time.monotonic() + LOOK_SEC
            try:
                piece = pieces.get(timeout=LOOK_SEC)
            except queue.Empty:
                continue
            if piece is None:
                return future.result()
            on_text(piece)
    finally:
        future.cancel()
        # This thread's garbage collector must not collect what is still being closed.
        ended.wait(LOOK_SEC)


def loop() -> asyncio.AbstractEventLoop:
    """The loop that runs the calls. The first call starts it."""
    with _lock:
        if os.getpid() not in _loops:
            made = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, name="model calls", daemon=True).start()
            _loops[os.getpid()] = made
        return _loops[os.getpid()]
