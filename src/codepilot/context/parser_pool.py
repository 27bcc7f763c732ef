"""Parser processes. A file that crashes its parser affects no other file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import IO, NamedTuple, cast

from codepilot.context import parsing
from codepilot.context.symbols import Unreadable, check
from codepilot.core.failures import CodePilotError, FailureKind

BASE_SEC, SEC_PER_BYTE = 0.2, 1.5e-6
"""The processor time for one file; a usual one takes a thousandth of this."""
MAX_ANSWER = 16 << 20
MANY = 60
"""From this many files on, a second process is started."""
_WAITING = 32


class Job(NamedTuple):
    """One file to parse, and the bytes of it."""

    key: str
    language: str
    source: bytes


Answers = dict[str, bytes]


def parse_all(
    jobs: Iterable[Job], languages: Iterable[str], expected: int, deadline: float
) -> tuple[Answers, set[str], set[str]]:
    """Payloads by key, the keys of files that no parser survived, and of those that were not come to in time.

    `languages` are those of the jobs; `deadline` is on the monotonic clock. The jobs are asked for one by one, in the
    caller's thread.
    """
    answers: Answers = {}
    fatal: set[str] = set()
    late: set[str] = set()
    errors: list[BaseException] = []
    queue: Queue[Job | None] = Queue(_WAITING)
    spoken = ",".join(sorted(languages))

    def work() -> None:
        with _Child.kept(spoken) as child:
            while (job := queue.get()) is not None:
                if errors or time.monotonic() > deadline:
                    late.add(job.key)
                    continue
                try:
                    answer = child.parse(job)
                except Exception as error:  # noqa: BLE001  (the caller raises it; the queue must be emptied meanwhile)
                    errors.append(error)
                    continue
                if answer is None:
                    fatal.add(job.key)
                else:
                    answers[job.key] = answer

    count = min(2, os.cpu_count() or 1) if expected >= MANY else 1
    threads = [threading.Thread(target=work, name="codepilot-parser", daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for job in jobs:
            queue.put(job)
    finally:
        for _ in threads:
            queue.put(None)
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return answers, fatal, late


class _Child:
    """One parser process, started when there is something to parse and again after a file has ended it."""

    def __init__(self, languages: str) -> None:
        self._languages = languages
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def kept(cls, languages: str) -> Iterator[_Child]:
        child = cls(languages)
        try:
            yield child
        finally:
            child.end()

    def parse(self, job: Job) -> bytes | None:
        """The payload for a file; None if the process died of it or answered nonsense."""
        process = self._process = self._process or _start(self._languages)
        stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        seconds = BASE_SEC + len(job.source) * SEC_PER_BYTE
        try:
            stdin.write(parsing.REQUEST.pack(job.language.encode(), seconds, len(job.source)))
            stdin.write(job.source)
            stdin.flush()
            header = stdout.read(parsing.ANSWER.size)
            length = parsing.ANSWER.unpack(header)[0] if len(header) == parsing.ANSWER.size else MAX_ANSWER + 1
            payload = stdout.read(length) if length <= MAX_ANSWER else b""
            check(payload)
        except (BrokenPipeError, Unreadable):
            self.end()
            return None
        return payload

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start(languages: str) -> subprocess.Popen[bytes]:
    """A parser that ignores environment and site directories, and imports from this process's path."""
    argv = [sys.executable, "-I", "-S", "-X", "utf8", os.fspath(Path(parsing.__file__)), languages, *sys.path]
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env={}, cwd="/")
    if cast("IO[bytes]", process.stdout).read(len(parsing.READY)) != parsing.READY:
        process.kill()
        _, errors = process.communicate()
        reason = (errors.decode("utf-8", "replace").strip() or "it died")[-500:]
        raise CodePilotError(
            FailureKind.TOOL_MISSING,
            f"The parser of sources cannot be started: {reason}",
            "Install CodePilot again with all that it requires.",
        )
    return process
