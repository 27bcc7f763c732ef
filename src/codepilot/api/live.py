"""Live streams: one thread follows all runs that are watched, and feeds every client from memory.

A client knows the number of its last event. Events are numbered without gaps, so none is missed or sent twice: what the
channel no longer holds is read from the store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codepilot.api.problems import too_many
from codepilot.api.shapes import ChangeOut, event_json
from codepilot.core.events import TERMINAL, Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.telemetry import METRICS, LogLines, now_us

if TYPE_CHECKING:
    from codepilot.engine import CodePilot
    from codepilot.store import RunChange

POLL_SEC = 0.05
AWAY_SEC = 1.0
HEARTBEAT_SEC = 15.0
KEPT = 500
"""Frames that a channel holds, and events that are read at once."""
_BOARD = ""
_LATE_US = 2_000_000
"""A change may be committed so long after the time that it carries."""
FIRST = b"retry: 2000\n\n"
BEAT = b": \n\n"
_DRAINING = b"event: draining\ndata: {}\n\n"

_log = logging.getLogger(__name__)
_open_streams = METRICS.gauge("codepilot_event_streams", "Live streams that are open.")


def frame(number: int, kind: str, data: str) -> bytes:
    """One event of the stream. `data` is one line."""
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode()


@dataclass
class _Channel:
    """The newest frames of a run. Used on the event loop only, but for `seen`, which is the thread's."""

    run_id: str
    users: int = 0
    seen: int | None = None
    """The last event that the thread has published."""
    base: int | None = None
    """The frames begin after this event."""
    state: str = ""
    version: int = 0
    frames: deque[tuple[int, bytes]] = field(default_factory=deque)
    _waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def after(self, number: int) -> list[tuple[int, bytes]] | None:
        """The frames after an event; None if they have to be read."""
        if self.base is None or number < self.base:
            return None
        return [one for one in self.frames if one[0] > number]

    def publish(self, base: int, state: str, frames: list[tuple[int, bytes]]) -> None:
        if self.base is None:
            self.base = base
        self.frames.extend(frames)
        while len(self.frames) > KEPT:
            self.base = self.frames.popleft()[0]
        self.state = state
        self.wake()

    def wake(self) -> None:
        self.version += 1
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait for something new; False if nothing came in time."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiting)
        return True


class LiveRuns:
    def __init__(self, pilot: CodePilot, most: int) -> None:
        self._pilot = pilot
        self._most = most
        self._streams = 0
        self._of_user: Counter[str] = Counter()
        self._channels: dict[str, _Channel] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._work = threading.Event()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run_events(self, run_id: str, after: int, lines: LogLines | None = None) -> AsyncGenerator[bytes]:
        """The events of a run after number `after`, as they are recorded, until it has ended; as lines of its log with
        `lines`.
        """
        with self._following(run_id) as channel:
            yield FIRST
            while not self._closed:
                version = channel.version
                frames = channel.after(after) if lines is None else None
                if frames is None:
                    frames = await asyncio.to_thread(self._page, run_id, after, lines)
                for number, data in frames:
                    after = number
                    yield data
                if frames:
                    continue
                if channel.state in TERMINAL and channel.base is not None and after >= self._last(channel):
                    yield f"event: end\ndata: {json.dumps({'state': channel.state})}\n\n".encode()
                    return
                if channel.version == version and not await channel.wait(HEARTBEAT_SEC):
                    yield BEAT
            yield _DRAINING

    async def changes(self, since: int | None) -> AsyncGenerator[bytes]:
        """Which runs changed, as they do: of a run that changes often, not every state in between."""
        with self._following(_BOARD) as channel:
            yield FIRST
            number = self._last(channel) if channel.base is not None else 0
            if since is not None:
                for one in await asyncio.to_thread(self._pilot.changes, (), since):
                    yield _change_frame(one)
            while not self._closed:
                version = channel.version
                number = max(number, channel.base or 0)
                for number, data in channel.after(number) or []:  # noqa: B007, B020 - the place to go on from
                    yield data
                if channel.version == version and not await channel.wait(HEARTBEAT_SEC):
                    yield BEAT
            yield _DRAINING

    def refuse_if_full(self, user: str) -> None:
        """One user leaves a quarter of the streams to the others."""
        if self._streams >= self._most:
            raise too_many(f"{self._most} live streams are open already.", 5, status=503)
        if self._of_user[user] >= max(1, self._most * 3 // 4):
            raise too_many(f"{user} has {self._of_user[user]} live streams open already.", 5)

    @contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """A stream of this user is open."""
        self._of_user[user] += 1
        try:
            yield
        finally:
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def close(self) -> None:
        """End all streams; clients come back when the service does. Called on the event loop."""
        self._closed = True
        self._work.set()
        for channel in self._channels.values():
            channel.wake()

    @staticmethod
    def _last(channel: _Channel) -> int:
        return channel.frames[-1][0] if channel.frames else channel.base or 0

    @contextmanager
    def _following(self, run_id: str) -> Iterator[_Channel]:
        self._loop = asyncio.get_running_loop()
        with self._lock:
            channel = self._channels.setdefault(run_id, _Channel(run_id))
            channel.users += 1
        self._streams += 1
        _open_streams.set(self._streams)
        self._work.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="live", daemon=True)
            self._thread.start()
        try:
            yield channel
        finally:
            self._streams -= 1
            _open_streams.set(self._streams)
            with self._lock:
                channel.users -= 1
                if not channel.users:
                    self._channels.pop(run_id, None)
                if not self._channels:
                    self._work.clear()

    def log_of(self, run_id: str) -> LogLines:
        """What formats the log of a run; it knows the steps so far."""
        lines = LogLines(self._pilot.settings.redact)
        lines.learn(self._pilot.events(run_id))
        return lines

    def _page(self, run_id: str, after: int, lines: LogLines | None = None) -> list[tuple[int, bytes]]:
        events = self._pilot.events(run_id, after, KEPT)
        if lines is None:
            return [(event.seq, self._event_frame(event)) for event in events]
        lines.learn(events)
        return [(event.seq, frame(event.seq, "line", lines.of([event]).decode().rstrip())) for event in events]

    def _event_frame(self, event: Event) -> bytes:
        return frame(event.seq, event.type, event_json(event, self._pilot.settings.redact))

    # the thread

    def _follow(self) -> None:
        seen: dict[str, int] = {}
        cursor, counter = now_us(), 0
        while True:
            if not self._work.is_set():
                cursor = 0
            self._work.wait()
            if self._closed:
                return
            cursor = cursor or now_us()
            with self._lock:
                channels = dict(self._channels)
            board = channels.pop(_BOARD, None)
            try:
                for change in self._pilot.changes(list(channels)) if channels else ():
                    self._advance_readable(channels[change.run_id], change)
                if board is not None:
                    found = [
                        one
                        for one in self._pilot.changes(since=cursor - _LATE_US)
                        if seen.get(one.run_id) != one.last_seq
                    ]
                    seen = {**seen, **{one.run_id: one.last_seq for one in found}}
                    frames = [(counter + place, _change_frame(one)) for place, one in enumerate(found, 1)]
                    if frames or board.seen is None:
                        self._publish(board, counter, "", frames)
                        counter += len(frames)
                        board.seen = counter
                    cursor = max([cursor, *(one.updated_at for one in found)])
            except CodePilotError as error:
                _log.warning("the store does not answer: %s", error)
                self._idle(AWAY_SEC)
            self._idle(POLL_SEC)

    def _idle(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _advance_readable(self, channel: _Channel, change: RunChange) -> None:
        """A run whose events cannot be read ends nobody else's stream."""
        try:
            self._advance(channel, change)
        except CodePilotError as error:
            if error.kind is FailureKind.STORE_UNAVAILABLE:
                raise
            _log.warning("the events of %s cannot be read: %s", change.run_id, error)
            channel.seen = change.last_seq

    def _advance(self, channel: _Channel, change: RunChange) -> None:
        if channel.seen is None:
            channel.seen = change.last_seq
            self._publish(channel, change.last_seq, str(change.state), [])
        elif change.last_seq > channel.seen:
            base = channel.seen
            frames = self._page(channel.run_id, base)
            if frames:
                channel.seen = frames[-1][0]
                state = str(change.state) if channel.seen >= change.last_seq else ""
                self._publish(channel, base, state, frames)

    def _publish(self, channel: _Channel, base: int, state: str, frames: list[tuple[int, bytes]]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(channel.publish, base, state, frames)


def _change_frame(change: RunChange) -> bytes:
    shown = ChangeOut(
        run_id=change.run_id, status=str(change.state), updated_at=change.updated_at, last_seq=change.last_seq
    )
    return frame(change.updated_at, "run", shown.model_dump_json(by_alias=True))
