"""Who is told that a workspace holds too much, when several trees write to it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from codepilot.sandbox import Held
from codepilot.sandbox.usage import DiskWatch

LIMIT = 32 << 20
WRITER = """
import os, sys
for line in sys.stdin:
    name, size = line.split()
    with open(name, "wb") as file:
        file.write(os.urandom(int(size)))
    print(flush=True)
"""


class Writer:
    """A process that writes on request, and the watch on it."""

    def __init__(self, place: Path, held: Held) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-c", WRITER), cwd=place, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._watch = DiskWatch([place], LIMIT, held)

    def write(self, name: str, size: int) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(name, size, file=self._process.stdin, flush=True)
        self._process.stdout.readline()

    def note(self) -> None:
        self._watch.note(self._process.pid)

    def exceeded(self) -> bool:
        return self._watch.exceeded(self._process.pid)

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def writers(tmp_path):
    held = Held(time.time() - 1)
    found = [Writer(tmp_path, held), Writer(tmp_path, held)]
    yield found
    for writer in found:
        writer.end()


def test_who_wrote_while_there_was_room_is_not_to_blame_for_who_writes_later(writers):
    first, second = writers
    first.write("one", 20_000_000)
    first.note()
    second.write("two", 25_000_000)
    assert second.exceeded()
    assert not first.exceeded()
    first.write("three", 1_000_000)
    assert first.exceeded()


def test_who_wrote_at_the_same_time_is_to_blame_too(writers):
    first, second = writers
    first.write("one", 20_000_000)
    second.write("two", 25_000_000)
    assert second.exceeded()
    assert first.exceeded()
