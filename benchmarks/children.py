"""Starts processes of durable engines and collects their messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contestants import Failed, last_error
from benchmarks.peers import PeerMissing, interpreter

_ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SEC = 300.0


class Late(Exception):
    """What was waited for did not come in time."""


class Inbox:
    """The messages of one or several processes, by kind."""

    def __init__(self) -> None:
        self._reported: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def put(self, message: dict[str, Any]) -> None:
        with self._news:
            self._reported.append(message)
            self._news.notify_all()

    def take(self, kind: str, count: int = 1, seconds: float = PATIENCE_SEC) -> list[dict[str, Any]]:
        """The next `count` messages of that kind."""
        deadline = time.monotonic() + seconds
        with self._news:
            while len(found := [one for one in self._reported if one["is"] == kind]) < count:
                for one in self._reported:
                    if one["is"] == "ended":
                        raise Failed(one["message"])
                if not self._news.wait(deadline - time.monotonic()):
                    raise Late(f"{len(found)} of {count} × {kind!r} within {seconds:g} s")  # noqa: RUF001
            taken = found[:count]
            self._reported = [one for one in self._reported if not any(one is other for other in taken)]
        return taken


class Child:
    """One running process. `--name` and others of its arguments are what `drivers.lines` knows."""

    def __init__(
        self,
        python: str,
        driver: str,
        arguments: Sequence[str],
        place: Path,
        inbox: Inbox,
    ) -> None:
        self.inbox = inbox
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process runs)
        self._closing = False
        self.process = subprocess.Popen(
            [python, "-m", f"benchmarks.drivers.{driver}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=place,
            env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT}/src"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, **request: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # The inbox says why it ended.

    def kill(self) -> None:
        """At once, as -9 does."""
        self._closing = True
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Let it end; one that takes too long is ended."""
        self._closing = True
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.inbox.put(json.loads(line))
        if not self._closing:
            self.process.wait()
            self._errors.seek(0)
            self.inbox.put({"is": "ended", "message": last_error(self._errors.read().decode(errors="replace"))})


@contextmanager
def children() -> Iterator[list[Child]]:
    """A list whose processes are closed at the end."""
    made: list[Child] = []
    try:
        yield made
    finally:
        for child in made:
            child.close()


def python_for(package: str, peers: Path | None) -> str:
    if not package:
        return sys.executable
    if peers is None:
        raise PeerMissing("peers were left out")
    return os.fspath(interpreter(package, peers))
