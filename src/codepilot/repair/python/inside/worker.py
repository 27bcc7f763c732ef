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

from .angelic_search import synthesise
from .baseline_traces import Tracing
from .calling import Channel
from .coverage import ROOT, Lines, relative
from .evidence import examine
from .trials import Trying
from .worker_state import WorkerState

MAX_MODULES = 3000


class Worker:
    def __init__(self, state: WorkerState) -> None:
        self.state = state
        self.trying = Trying(state)

    def start(self) -> None:
        state, suite = self.state, self.state.suite
        for path, data in state.header["overlay"].items():
            state.overlay.put(path, base64.b64decode(data))
        if state.cold:
            for name in state.header["modules"]:
                _preload(name)
            state.overlay.remember(state.header["files"])
            self._serve()
        calls, collected = Lines(calls=True), []

        def ready() -> None:
            calls.__exit__()
            collected.append(True)
            state.import_time = calls.found
            state.index()
            functions = {path: [one for one in found if one[1] != "<module>"] for path, found in calls.found.items()}
            lines = {path: sorted(line for line, _ in found) for path, found in functions.items() if found}
            self._serve(modules=_foreign_modules(), import_time=lines)

        calls.__enter__()
        try:
            suite.open(state.header["tests"], ready, state.header["whole"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever keeps tests from loading is reported
            suite.broken.append("".join(traceback.format_exception_only(type(error), error)))
        if not collected:
            state.channel.send(ready=False, errors=suite.broken[:5])

    def _serve(self, **facts: Any) -> None:
        state = self.state
        gc.collect()
        gc.freeze()
        state.channel.send(ready=True, tests=list(state.suite.items), errors=state.suite.broken[:5], **facts)
        stamps = self._stamps()
        while True:
            message, learned = state.channel.read(), {}
            if message is None:
                os._exit(0)
            if message["op"] == "trace":
                Tracing(state, set(message["alone"]), time.monotonic() + message["seconds"]).run(message["tests"])
                stamps = {path: stamps[path] for path in self._stamps() if path in stamps}
                learned = {"learned": state.learned()}
            elif message["op"] == "examine":
                examine(state, message)
            elif message["op"] == "synthesise":
                synthesise(state, message)
            else:
                self.trying.attempt(message)
            state.channel.send(done=True, damaged=self._stamps() != stamps, **learned)

    def _stamps(self) -> dict[str, Any]:
        """What the loaded files of the project look like on disk: none of this may change while candidates run.

        Those that the tests themselves write are left out.
        """
        stamps: dict[str, Any] = {}
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            name = relative(path) if path else None
            if path and name is not None and f"{ROOT}/{name}" not in self.state.guard.written:
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
        Worker(WorkerState(channel, header)).start()
