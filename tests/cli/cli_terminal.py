"""A command on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from cli_kit import Command


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, codepilot: Command, *arguments: str, **environ: str) -> None:
        self._master, slave = pty.openpty()
        given = {**codepilot.environ, **environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(
            codepilot.argv(*arguments), stdin=slave, stdout=slave, stderr=slave, env=given, start_new_session=True
        )
        os.close(slave)
        self.text, self._seen = "", 0

    def until(self, text: str, seconds: float = 60.0) -> None:
        """Read until the screen says it after what was waited for before."""
        deadline = time.monotonic() + seconds
        while (found := self.text.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, self.text
            if select.select([self._master], [], [], 0.2)[0]:
                self.text += os.read(self._master, 65536).decode("utf-8", "replace")
        self._seen = found + len(text)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def kill(self) -> None:
        """Kill it as no process can prepare for."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def ended(self) -> int:
        try:
            return self.process.wait(60)
        finally:
            os.close(self._master)
