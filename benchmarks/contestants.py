"""The contestants, and the protocol with the process in which each runs."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import PeerMissing, interpreter
from codepilot.sandbox import probe

_ROOT = Path(__file__).resolve().parent.parent
_REPLY_SEC = 300.0


@dataclass(frozen=True)
class Contestant:
    """One way of running an action. `package` is the peer it needs, `level` the sandbox level."""

    name: str
    isolated: str
    state: str
    driver: str
    arguments: tuple[str, ...] = ()
    package: str = ""
    level: str = ""


_NAMESPACES = "yes: namespaces, seccomp, limits"
_LANDLOCK = "yes: Landlock, seccomp, limits"
_RUN = "codepilot_run"
_BWRAP = "bubblewrap"

KERNEL = Contestant("CodePilot kernel", _NAMESPACES, "kept", _RUN, ("kernel", _BWRAP), level=_BWRAP)
EXECUTOR = Contestant("CodePilot executor", _NAMESPACES, "kept", _RUN, ("executor", _BWRAP), level=_BWRAP)
CONTESTANTS = (
    KERNEL,
    Contestant("CodePilot kernel at Landlock", _LANDLOCK, "kept", _RUN, ("kernel", "landlock"), level="landlock"),
    EXECUTOR,
    Contestant("CodePilot executor over HTTP", _NAMESPACES, "kept", _RUN, ("http", _BWRAP), level=_BWRAP),
    Contestant("CodePilot command, fresh Python", _NAMESPACES, "lost", _RUN, ("fresh", _BWRAP), level=_BWRAP),
    Contestant("bwrap + fresh Python", "partly: namespaces", "lost", "fresh_bwrap", level=_BWRAP),
    Contestant("smolagents local", "no", "kept", "smolagents_local", package="smolagents"),
    Contestant("SWE-ReX local, Python prompt", "no", "kept", "swerex_local", ("prompt",), package="swe-rex"),
    Contestant("SWE-ReX local, fresh Python", "no", "lost", "swerex_local", ("python",), package="swe-rex"),
    Contestant("SWE-ReX local, bash", "no", "kept", "swerex_local", ("bash",), package="swe-rex"),
)


class Failed(Exception):
    """A contestant that did not answer, and its error."""


class Driver:
    """A running measured process."""

    def __init__(self, contestant: Contestant, peers: Path | None) -> None:
        python = _python(contestant, peers)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process runs)
        self._home = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.drivers.{contestant.driver}", *contestant.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=self._home.name,
            env={**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT}/src"},
        )
        try:
            hello = self._reply()
        except Failed:
            self.close()
            raise
        self.imported_ms: float = hello["imported_ms"]
        self.version: str = hello["version"]

    def start(self) -> float:
        """Milliseconds from nothing to the first answer; the one that ran before is stopped first."""
        return float(self._ask(do="start")["times"][0])

    def times(self, action: str, count: int, seconds: float) -> list[float]:
        times: list[float] = self._ask(do="time", action=action, count=count, seconds=seconds)["times"]
        return times

    def memory(self, count: int) -> dict[str, int]:
        memory: dict[str, int] = self._ask(do="memory", count=count)["memory"]
        return memory

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._home.cleanup()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # The next line says why it ended.
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _REPLY_SEC)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            raise Failed(last_error(self._errors.read().decode(errors="replace")))
        reply: dict[str, Any] = json.loads(line)
        return reply


def last_error(message: str) -> str:
    """The line of a traceback that names the exception; its message may go on for many more."""
    lines = message.strip().splitlines() or ["it did not answer"]
    named = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Failed|TIMEOUT|EOF)\b", line)]
    return (named or lines)[-1][:200]


def _python(contestant: Contestant, peers: Path | None) -> str:
    if contestant.level:
        report = next(report for report in probe() if report.level == contestant.level)
        if not report.available:
            raise PeerMissing(f"{contestant.level} does not work here: {report.reason}")
    if not contestant.package:
        return sys.executable
    if peers is None:
        raise PeerMissing("peers were left out")
    return os.fspath(interpreter(contestant.package, peers))
