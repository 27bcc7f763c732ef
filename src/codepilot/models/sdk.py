"""What models behind an official SDK share: lazy import, one client, retries, prices, and errors without secrets."""

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
from codepilot.models.connection import LOOK_SEC, Connection
from codepilot.models.errors import SHOWN, ModelFailure, Refusal, refused, sdk_missing
from codepilot.models.prices import Prices, estimated
from codepilot.models.protocol import Message, OnText, Reply, Stopped, Tool, cancelled, ignore_text, never

CONNECT_SEC = 10.0


@dataclass(frozen=True)
class Asked:
    """One question, as the protocol puts it."""

    messages: Sequence[Message]
    temperature: float
    max_tokens: int
    tools: Sequence[Tool]


class SdkModel(ABC):
    """A model of a provider. Subclasses know its wire format, and nothing else."""

    package: str
    writes_cache: bool = False
    """Whether the provider charges more for what it keeps for the next turn."""

    def __init__(self, name: str, prices: Prices, connection: Connection) -> None:
        self.name = name
        self.prices = prices
        self.connection = connection
        self.lacks: set[str] = set()
        """What the provider was found not to accept with this model."""

    @cached_property
    def context_tokens(self) -> int | None:
        return self.prices.context_tokens

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
        asked = Asked(messages, temperature, max_tokens, tools)
        return self.connection.retry.ask(self.name, lambda: self._once(asked, on_text, stopped), stopped)

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        return estimated(messages, max_tokens, tools, self._at_most)

    def _at_most(self, usage: Usage) -> Usage:
        """Nothing is cached yet; where that is dearer, all of it will be."""
        return self.prices.priced(usage, usage.input_tokens if self.writes_cache else 0)

    @abstractmethod
    async def _stream(self, asked: Asked) -> Any:
        """Send the question; returns the SDK's stream once the provider begins to answer."""

    @abstractmethod
    async def _read(self, stream: Any, asked: Asked, on_text: OnText) -> Reply:
        """The whole reply, heard while it comes."""

    @abstractmethod
    def _make_client(self, sdk: Any) -> Any: ...

    def _lacking(self, failure: ModelFailure, asked: Asked) -> str | None:
        """What to leave out so that the provider may accept the question after all."""
        about_temperature = "temperature" in f"{failure.failure.details.get('said')}"
        return "temperature" if failure.failure.details.get("status") == 400 and about_temperature else None

    def _once(self, asked: Asked, on_text: OnText, stopped: Stopped) -> Reply:
        left_out: set[str] = set()
        while True:
            try:
                return call(self.name, lambda heard: self._ask(asked, heard), on_text=on_text, stopped=stopped)
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
            told = self._told(error, begun)
            if told is None:
                raise
            raise told from None  # the SDK's own error knows the request, and with it the key

    def _told(self, error: Exception, begun: bool) -> ModelFailure | None:
        sdk = self.sdk
        if isinstance(error, sdk.APIStatusError):
            refusal = Refusal(error.status_code, dict(error.response.headers), error.body)
            return self._refused(refusal)
        if isinstance(error, sdk.APITimeoutError) or type(error).__name__.endswith("Timeout"):
            return self._timed_out(error)
        if begun and (isinstance(error, sdk.APIConnectionError) or _of_transport(error)):
            return self.bad_reply("its reply was cut off")
        if isinstance(error, sdk.APIConnectionError):
            why = self.connection.clean(f"{error.__cause__ or error}")[:SHOWN]
            return ModelFailure(
                FailureKind.MODEL_OVERLOADED,
                f"{self.name} cannot be reached: {why}",
                next_action="Check the network and the address of the model, then `codepilot resume`.",
                again=True,
            )
        if isinstance(error, sdk.APIError):
            return self._refused(Refusal(200, {}, error.body))
        if isinstance(error, (ValueError, KeyError, TypeError, AttributeError)) and begun:
            return self.bad_reply("its reply is not what its API promises")
        return None

    def _refused(self, refusal: Refusal) -> ModelFailure:
        return refused(self.name, refusal, self.connection.retry.now(), self.connection.clean)

    def _timed_out(self, error: Exception) -> ModelFailure:
        """Nobody there is worth another try; a model that thinks for so long would think again."""
        connecting = type(error.__cause__ or error).__name__ == "ConnectTimeout"
        seconds = CONNECT_SEC if connecting else self.connection.timeout_sec
        return ModelFailure(
            FailureKind.MODEL_TIMEOUT,
            f"{self.name} {'could not be connected to' if connecting else 'said nothing'} for {seconds:g} s.",
            again=connecting,
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
        """One for all calls, so that connections are kept; it is closed when the model is gone."""
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
    """The provider's SDK, which is imported no sooner than it is needed."""
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
"""The one loop of this process, by its id: a fork has no thread to run its parent's."""


def call(
    model: str,
    asking: Callable[[OnText], Coroutine[Any, Any, T]],
    *,
    on_text: OnText = lambda piece: None,
    stopped: Stopped,
) -> T:
    """What `asking` returns. The pieces it passes on are heard in the caller's thread."""
    heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    ended = threading.Event()

    async def ask() -> T:
        try:
            return await asking(heard.put)
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(ask(), loop())
    future.add_done_callback(lambda _: heard.put(None))
    look_at = 0.0
    try:
        while True:
            if time.monotonic() >= look_at:
                if stopped():
                    raise cancelled(model)
                look_at = time.monotonic() + LOOK_SEC
            try:
                piece = heard.get(timeout=LOOK_SEC)
            except queue.Empty:
                continue
            if piece is None:
                return future.result()
            on_text(piece)
    finally:
        future.cancel()
        # What is still being closed must not be collected by this thread's garbage collector.
        ended.wait(LOOK_SEC)


def loop() -> asyncio.AbstractEventLoop:
    """The loop that calls run on; it is started with the first."""
    with _lock:
        if os.getpid() not in _loops:
            made = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, name="model calls", daemon=True).start()
            _loops[os.getpid()] = made
        return _loops[os.getpid()]
