"""smolagents: its local Python executor, an interpreter of the syntax tree in the calling process."""

from __future__ import annotations

import time
from importlib.metadata import version

from benchmarks.drivers.loop import ACTIONS, serve

_started = time.perf_counter()

from smolagents.local_python_executor import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    InterpreterError,
    LocalPythonExecutor,
)

_IMPORTED_MS = (time.perf_counter() - _started) * 1000


class Smolagents:
    def __init__(self) -> None:
        self._executor = LocalPythonExecutor([])
        self._executor.send_tools({})

    def act(self, name: str) -> str:
        try:
            return str(self._executor(ACTIONS[name]).logs)
        except InterpreterError as error:
            return str(error)

    def stop(self) -> None:
        pass


if __name__ == "__main__":
    serve(Smolagents, _IMPORTED_MS, version("smolagents"))
