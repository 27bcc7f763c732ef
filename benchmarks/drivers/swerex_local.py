"""SWE-ReX: its local deployment, which is a bash session behind a pseudo-terminal.

It has no Python session of its own, so that three uses of it are measured: its own language (`bash`), a Python per
action (`python`), and a Python prompt kept open in the session through its interactive commands (`prompt`).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
import time
from importlib.metadata import version
from typing import Any

from benchmarks.drivers.loop import ACTIONS, Measured, base_python, serve

_started = time.perf_counter()

from swerex.deployment.local import LocalDeployment  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from swerex.runtime.abstract import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    BashAction,
    CreateBashSessionRequest,
)

_IMPORTED_MS = (time.perf_counter() - _started) * 1000
_PROMPT = ">>> "
_BASH = {
    "assign": "x=1",
    "loop": "total=0; for i in {1..100000}; do total=$((total + i)); done",
    "print": f"for line in {{1..100}}; do echo {'x' * 99}; done",
    "raise": "echo ValueError >&2; false",
}


class Session:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._deployment = LocalDeployment()
        self._loop.run_until_complete(self._deployment.start())
        self._loop.run_until_complete(self._deployment.runtime.create_session(CreateBashSessionRequest()))

    def ask(self, command: str, **fields: Any) -> str:
        action = BashAction(command=command, check="silent", **fields)
        return str(self._loop.run_until_complete(self._deployment.runtime.run_in_session(action)).output)

    def stop(self) -> None:
        self._loop.run_until_complete(self._deployment.stop())
        self._loop.close()


class Bash(Session):
    def act(self, name: str) -> str:
        return self.ask(_BASH[name])


class FreshPython(Session):
    def act(self, name: str) -> str:
        return self.ask(shlex.join([*base_python(), "-c", ACTIONS[name]]))


class PythonPrompt(Session):
    """Every action is sent as one line, since a prompt takes blocks differently."""

    def __init__(self) -> None:
        super().__init__()
        self._say(shlex.join([*base_python(), "-q", "-i"]))

    def _say(self, line: str) -> str:
        return self.ask(line, is_interactive_command=True, expect=[_PROMPT])

    def act(self, name: str) -> str:
        source = ACTIONS[name]
        return self._say(f"exec({source!r})" if "\n" in source else source)


_USES: dict[str, type[Bash] | type[FreshPython] | type[PythonPrompt]] = {
    "bash": Bash,
    "python": FreshPython,
    "prompt": PythonPrompt,
}


def main() -> None:
    logging.disable(logging.CRITICAL)
    use = _USES[sys.argv[1]]

    def make() -> Measured:
        return use()

    serve(make, _IMPORTED_MS, version("swe-rex"))


if __name__ == "__main__":
    main()
