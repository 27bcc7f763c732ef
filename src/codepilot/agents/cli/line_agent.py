"""A program that speaks JSON lines over its pipes; its dialect is a `Conversation`, which is pure."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from codepilot.agents.cli.failures import crashed
from codepilot.agents.cli.parsing import mapping, whole
from codepilot.agents.cli.protocol import (
    Acknowledged,
    AgentEvent,
    AgentMessage,
    Delivery,
    Failed,
    Feature,
    Finished,
    Text,
    TurnEnded,
)
from codepilot.core.contract import JsonObject
from codepilot.core.failures import FailureKind
from codepilot.sandbox import Process, ProcessEnded, ProtocolError, parse_object, send_all

MOST_LINE = 16 << 20
"""The longest line that is read."""
MOST_WAITING = 32 << 20
"""How many bytes of events wait to be read before the program has to wait itself."""
MOST_NOISE = 2_000
"""How much of what is not JSON is kept, to explain a crash."""
SEND_SEC = 10.0
"""How long the program may take to read what it is sent."""
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
END_SEC = 5.0
"""How long a program that closed its output may take to end."""


@dataclass(frozen=True)
class Send:
    """The dialect answers by itself."""

    line: JsonObject


@dataclass(frozen=True)
class Answered:
    """The program took a message in."""

    key: str
    response: str = ""


Read: TypeAlias = AgentEvent | Send | Answered


@dataclass(frozen=True)
class Outgoing:
    """A message in the program's dialect; `key` is what its acknowledgement names, empty if none will come."""

    lines: tuple[JsonObject, ...]
    key: str = ""


class Conversation(Protocol):
    """The state of both sides. Its methods are never called at the same time."""

    session_id: str | None

    @property
    def busy(self) -> bool:
        """True while the program has not ended what it was asked."""

    def open(self) -> Sequence[JsonObject]:
        """The first lines to send."""

    def read(self, line: JsonObject) -> Iterable[Read]: ...

    def answer(self, permission_id: str, allow: bool, message: str) -> Sequence[JsonObject]: ...

    def encode(self, message: AgentMessage) -> Outgoing | None:
        """None if the dialect has no words for it."""

    def interrupt(self) -> Sequence[JsonObject]: ...

    def explain(self, words: str) -> FailureKind | None:
        """The failure that the last words of a program mean that ended without a terminal event."""


class LineAgent:
    """A running program. One thread reads it, so that handshakes and acknowledgements wait for nobody."""

    def __init__(self, name: str, process: Process, conversation: Conversation, features: frozenset[Feature]) -> None:
        self.features = features
        self._name = name
        self._process = process
        self._conversation = conversation
        self._talk = threading.Lock()
        """Guards the conversation, and that lines are sent in its order."""
        self._changed = threading.Condition()
        self._events: deque[tuple[AgentEvent, int]] = deque()
        self._waiting = 0
        self._awaited: dict[str, str | None] = {}
        self._over = False
        self._closed = False
        self._noise = ""
        threading.Thread(target=self._read, name=f"{name}-reader", daemon=True).start()
        with self._talk:
            self._write(self._conversation.open())

    @property
    def session_id(self) -> str | None:
        return self._conversation.session_id

    def events(self, idle_sec: float = 1.0) -> Iterator[AgentEvent | None]:
        ended, text = False, ""
        while True:
            event = self._next(idle_sec)
            if isinstance(event, Text) and event.final:
                text = event.text
            ended = ended or isinstance(event, TurnEnded)
            yield event
            if isinstance(event, Finished | Failed):
                return
            if ended and not self._more():
                yield Finished(text)
                return

    def answer(self, permission_id: str, allow: bool, message: str = "") -> None:
        with self._talk:
            self._write(self._conversation.answer(permission_id, allow, message))

    def send(self, message: AgentMessage, wait_sec: float = 0.0) -> Delivery:
        with self._talk:
            outgoing = self._conversation.encode(message)
            if outgoing is None:
                return Delivery(delivered=False)
            key = outgoing.key if message.requires_acknowledgment and wait_sec > 0 else ""
            if key:
                self._awaited[key] = None
            delivered = self._write(outgoing.lines)
        if not key:
            return Delivery(delivered)
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not delivered or self._awaited[key] is not None or self._over or self._closed, wait_sec
            )
            response = self._awaited.pop(key)
        return Delivery(delivered, acknowledged=response is not None, response=response or "")

    def interrupt(self) -> None:
        with self._talk:
            self._write(self._conversation.interrupt())

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._process.kill()

    def _more(self) -> bool:
        """True if the program has more to do or to report than the turn that ended."""
        with self._talk:
            if self._conversation.busy:
                return True
        with self._changed:
            return bool(self._events)

    def _next(self, idle_sec: float) -> AgentEvent | None:
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._over, idle_sec)
            if self._events:
                event, size = self._events.popleft()
                self._waiting -= size
                self._changed.notify_all()
                return event
            if not self._over:
                return None
        return self._ended()

    def _ended(self) -> AgentEvent:
        """The failure of a program that ended without a terminal event."""
        code = self._process.wait(END_SEC)
        words = "\n".join(part for part in (self._noise, self._process.stderr_tail().decode(errors="replace")) if part)
        with self._talk:
            kind = self._conversation.explain(words)
        return Failed(crashed(self._name, code, self._process.limit, words, kind))

    def _read(self) -> None:
        try:
            while line := self._process.stdout.readline(MOST_LINE + 1):
                if len(line) > MOST_LINE:
                    self._noise = f"It sent a line of more than {MOST_LINE} bytes."
                    break
                self._take(line)
        except (OSError, ValueError):
            pass  # the stream was closed while it was read, or says nothing that can be used
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _take(self, line: bytes) -> None:
        try:
            parsed = parse_object(line)
        except ProtocolError:
            self._noise = (self._noise + line.decode(errors="replace"))[-MOST_NOISE:]
            return
        with self._talk:
            try:
                events = list(self._conversation.read(dict(mapping(whole(parsed))) if _HALF.search(line) else parsed))
            except Exception as error:
                self._noise = f"It sent a message that cannot be used: {type(error).__name__}."
                raise ValueError(self._noise) from error
            self._write([one.line for one in events if isinstance(one, Send)])
        with self._changed:
            for one in events:
                if isinstance(one, Send):
                    continue
                if isinstance(one, Answered):
                    if one.key in self._awaited:
                        self._awaited[one.key] = one.response
                    one = Acknowledged(one.response)
                self._events.append((one, len(line)))
                self._waiting += len(line)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting < MOST_WAITING or self._awaited or self._closed)

    def _write(self, lines: Sequence[JsonObject]) -> bool:
        """False if the program does not read; its end is reported as an event."""
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        try:
            send_all(self._process.stdin, data, time.monotonic() + SEND_SEC)
        except (ProcessEnded, TimeoutError):
            return False
        return True
