"""Runs inside the sandbox, on the project's own Python (3.8 or newer) and the standard library alone.

It imports the project and its tests once, then tries candidates in forked children: a function's code is swapped
in place (`warm`), or the whole project is loaded anew with one file replaced (`cold`). It speaks JSON lines over
copies of its first standard streams, so nothing that tests print can reach the channel. What it says is evidence
to be proved again elsewhere, never a verdict.
"""

from __future__ import annotations

import base64
import gc
import os
import sys
import time
import traceback
from typing import Any

from .angelic_search import compose
from .baseline_traces import Tracing
from .calling import Channel
from .coverage import ROOT, Lines, relative
from .evidence import weigh
from .trials import Trying
from .worker_state import Ground

MAX_MODULES = 3000


class Worker:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.trying = Trying(ground)

    def start(self) -> None:
        ground, suite = self.ground, self.ground.suite
        for path, data in ground.header["overlay"].items():
            ground.overlay.put(path, base64.b64decode(data))
        if ground.cold:
            for name in ground.header["modules"]:
                _preload(name)
            ground.overlay.remember(ground.header["files"])
            self._serve()
        calls, collected = Lines(calls=True), []

        def ready() -> None:
            calls.__exit__()
            collected.append(True)
            ground.entered = calls.found
            ground.index()
            entered = {path: sorted(line for line, _ in places) for path, places in calls.found.items()}
            self._serve(modules=_foreign_modules(), entered=entered)

        calls.__enter__()
        try:
            suite.open(ground.header["tests"], ready, ground.header["whole"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever keeps tests from loading is reported
            suite.broken.append("".join(traceback.format_exception_only(type(error), error)))
        if not collected:
            ground.channel.send(ready=False, errors=suite.broken[:5])

    def _serve(self, **facts: Any) -> None:
        ground = self.ground
        gc.collect()
        gc.freeze()
        ground.channel.send(ready=True, tests=list(ground.suite.items), errors=ground.suite.broken[:5], **facts)
        stamps = self._stamps()
        while True:
            message, learned = ground.channel.read(), {}
            if message is None:
                os._exit(0)
            if message["op"] == "trace":
                Tracing(ground, set(message["alone"]), time.monotonic() + message["seconds"]).run(message["tests"])
                stamps = {path: stamps[path] for path in self._stamps() if path in stamps}
                learned = {"learned": ground.learned()}
            elif message["op"] == "weigh":
                weigh(ground, message)
            elif message["op"] == "compose":
                compose(ground, message)
            else:
                self.trying.attempt(message)
            ground.channel.send(done=True, damaged=self._stamps() != stamps, **learned)

    def _stamps(self) -> dict[str, Any]:
        """What the loaded files of the project look like on disk: none of this may change while candidates run.

        Those that the tests themselves write are left out.
        """
        stamps: dict[str, Any] = {}
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            name = relative(path) if path else None
            if path and name is not None and f"{ROOT}/{name}" not in self.ground.guard.written:
                try:
                    status = os.stat(path)  # noqa: PTH116 - as the importer names it
                except OSError:
                    stamps[path] = None
                else:
                    stamps[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
        return stamps


def _preload(name: str) -> None:
    try:
        __import__(name)
    except (Exception, SystemExit):  # noqa: BLE001 - only a head start; the real import will say what is wrong
        return


def _foreign_modules() -> list[str]:
    """Loaded modules that are not the project's own."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and relative(file) is None and "codepilot" not in name:
            found.append(name)
    return found[:MAX_MODULES]


def main() -> None:
    channel = Channel()
    header = channel.read()
    if header is not None:
        Worker(Ground(channel, header)).start()
