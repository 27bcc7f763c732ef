"""A run's log file: each event once and in order, from any process."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codepilot.core.events import Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.telemetry.loglines import LogLine, LogLines
from codepilot.telemetry.redact import redact

_TAIL_BLOCK = 64 * 1024


class RunLog:
    """The log file of one run. Each event is written once and in order, also after a crash.

    `missing` returns the run's events between two places; with it, events that another process recorded
    (a request to pause, say) are written in their place too.
    """

    def __init__(
        self,
        path: Path,
        redact: Callable[[str], str] = redact,
        missing: Callable[[int, int], Sequence[Event]] | None = None,
    ) -> None:
        self._path = path
        self._missing = missing
        self._formatted = LogLines(redact)
        self._guard = threading.Lock()
        try:
            self._file = _opened(path)
        except OSError as error:
            raise self._fault(error) from error
        self._size = self._last_seq = 0
        if os.fstat(self._file).st_size:
            with self._locked():
                self._last_seq = self._repair()

    @property
    def last_seq(self) -> int:
        """The place of the last event that the log has."""
        return self._last_seq

    def write(self, events: Sequence[Event]) -> None:
        """Add the events that the log does not have yet."""
        with self._guard, self._locked():
            self._formatted.learn(events)
            while True:
                self._look()
                fresh = list(self._whole(event for event in events if event.seq > self._last_seq))
                self._formatted.learn(fresh)
                lines = self._formatted.of(fresh)
                if self._look():
                    break
            if fresh:
                self._append(lines)
                self._last_seq = fresh[-1].seq

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file's lock, if it can be had."""
        locked = _lock(self._file)
        try:
            yield
        finally:
            if locked:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _look(self) -> bool:
        """True if the file is unchanged since our last write; otherwise read what others wrote."""
        if os.fstat(self._file).st_size == self._size:
            return True
        self._last_seq = self._repair()
        return False

    def _whole(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, with those between them that are missing."""
        before = self._last_seq
        for event in events:
            if event.seq > before + 1 and self._missing is not None:
                yield from self._missing(before, event.seq)
            yield event
            before = event.seq

    def catch_up(self, events: Sequence[Event]) -> None:
        """After a crash: `events` are the run's, from the first; those the log lacks are added."""
        with self._guard:
            self._formatted.learn(events)
        self.write(events)

    def close(self) -> None:
        with self._guard:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _append(self, lines: bytes) -> None:
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._truncate(self._size)
            raise self._fault(error) from error
        self._size += len(lines)

    def _repair(self) -> int:
        """Cut off what a crash left behind the last whole line; return that line's place."""
        self._size = end = os.fstat(self._file).st_size
        if end == 0:
            return 0
        tail, start = b"", end
        while start > 0:
            start = max(0, start - _TAIL_BLOCK)
            tail = os.pread(self._file, end - start, start)
            for stop in _line_ends(tail):
                begin = tail.rfind(b"\n", 0, stop) + 1
                line = _parse(tail[begin:stop]) if begin or start == 0 else None
                if line is not None:
                    self._truncate(start + stop + 1)
                    self._recall(line)
                    return line.seq
        self._truncate(0)
        return 0

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._file, size)
        self._size = size

    def _recall(self, line: LogLine) -> None:
        if line.step_id and line.role:
            self._formatted.roles[line.step_id] = line.role

    def _fault(self, error: OSError) -> CodePilotError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            message, kind = f"The disk is full: the log {self._path} cannot be written.", FailureKind.DISK_FULL
        else:
            message = f"The log {self._path} cannot be written: {error.strerror or error}."
            kind = FailureKind.STORE_UNAVAILABLE
        return CodePilotError(kind, message, path=self._path)


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _lock(file: int) -> bool:
    """True if the file could be locked. A frozen holder is waited for only briefly."""
    for wait in (0.001, 0.01, 0.1, 0.5, 0.0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


def _line_ends(tail: bytes) -> Iterable[int]:
    """The ends of the lines of `tail`, last first."""
    stop = tail.rfind(b"\n")
    while stop >= 0:
        yield stop
        stop = tail.rfind(b"\n", 0, stop)


def _parse(text: bytes) -> LogLine | None:
    if text != text.strip():  # JSON allows space around a document, and no line of ours has any
        return None
    try:
        return LogLine.model_validate_json(text)
    except ValueError:
        return None
