"""What a process of a durable engine is asked and tells: JSON lines over the standard pipes.

Standard library only: peers' interpreters import it. Times are of the clock that all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

STEPS = 8
"""How many steps a run has."""


class Talk:
    """The way back to who asks. What a library prints is no reply."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(1), "w")
        self._guard = threading.Lock()
        os.dup2(2, 1)

    def say(self, what: str, **more: Any) -> None:
        with self._guard:
            self._replies.write(json.dumps({"is": what, **more}) + "\n")
            self._replies.flush()


@dataclass(frozen=True)
class Role:
    """What this process is for. One that holds stays in the first step it starts until it is killed.

    One that dwells stays in it until the engine itself puts an end to that.
    """

    url: str
    works: bool
    concurrency: int
    tells_starts: bool
    holds: bool
    dwells: bool
    name: str

    def started(self, talk: Talk) -> None:
        """To be called where a run's first step begins."""
        at = time.monotonic()
        if self.tells_starts:
            talk.say("started", at=at)
        if self.holds:
            time.sleep(3600)

    def finished(self, talk: Talk) -> None:
        """To be called when a run's last step is done."""
        talk.say("finished", at=time.monotonic())


class Engine(Protocol):
    def enqueue(self) -> None:
        """Put one run into the queue; it is there to stay when this returns."""
        ...

    def work(self) -> None:
        """Begin to work on runs, and return."""
        ...

    def stop(self) -> None: ...


@runtime_checkable
class Controlled(Engine, Protocol):
    def control(self, what: str) -> dict[str, float]:
        """Ask for a cancel or a pause of the run that was enqueued last; when it was on record, and what followed."""
        ...


def serve(make: Callable[[Role, Talk], Engine], version: str) -> None:
    """Answer requests until one says stop or the pipe closes."""
    role, talk = _role(), Talk()
    engine = make(role, talk)
    talk.say("ready", version=version)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "enqueue":
            for _ in range(request["count"]):
                asked = time.monotonic()
                engine.enqueue()
                if role.tells_starts:
                    talk.say("enqueued", asked=asked, at=time.monotonic())
            talk.say("all enqueued")
        elif request["do"] == "work":
            engine.work()
            talk.say("working")
        elif isinstance(engine, Controlled) and request["do"] in ("cancel", "pause"):
            asked = time.monotonic()
            talk.say(request["do"], asked=asked, **engine.control(request["do"]))
        else:
            break
    engine.stop()
    talk.say("stopped")


def _role() -> Role:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--works", action="store_true")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--tells-starts", action="store_true")
    parser.add_argument("--holds", action="store_true")
    parser.add_argument("--dwells", action="store_true")
    parser.add_argument("--name", default="one")
    return Role(**vars(parser.parse_args()))
