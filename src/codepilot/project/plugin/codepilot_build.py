"""The shared part of build tools' drivers: starts the tool, reads its output and reports each test as frames.

Runs in the sandbox, on Python 3.8 and newer, with the standard library alone.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from codepilot.project.plugin import codepilot_frames as frames

    Matches = Callable[[str], bool]
else:
    import codepilot_frames as frames

POLL_SEC = 0.25
LINE_BYTES = 1 << 16
MAX_WARNINGS = 500
NO_TESTS = 5
"""The exit code of a runner that found nothing to run."""


class TestReporter:
    """Reports one run as it goes: each requested test once its result is known."""

    def __init__(self, runner: str, meaning: Callable[[str], Matches]) -> None:
        self._channel = frames.Channel()
        asked = [str(name) for name in self._channel.header.get("tests", [])]
        self._meant = {name: meaning(name) for name in asked}
        self._found: dict[str, list[str]] = {name: [] for name in asked}
        self._seen: set[str] = set()
        self._warned = 0
        self._red = self._red_unrequested = False
        self.troubled = False
        self._channel.send("start", runner=runner)

    @property
    def asked(self) -> list[str]:
        return list(self._meant)

    @property
    def silent(self) -> bool:
        """True until the first test is reported."""
        return not self._seen

    def running(self, test: str) -> None:
        self._channel.send("run", id=frames.short_id(test))

    def test(self, test: str, outcome: str, **more: Any) -> None:
        """A test's end: passed, failed, error or skipped."""
        test = frames.short_id(test)
        red = outcome in ("failed", "error")
        if self._meant and not self._asked_for(test):
            self.unrequested(red)
            return
        self._red = self._red or red
        if test not in self._seen:
            self._seen.add(test)
            self._channel.send("collected", ids=[test])
        phase = "setup" if outcome == "error" else "call"
        result = "failed" if outcome == "error" else outcome
        self._channel.send("test", id=test, outcome=result, phase=phase, **_bounded(more))

    def _asked_for(self, test: str) -> bool:
        names = [name for name, matches in self._meant.items() if matches(test)]
        for name in names:
            if test not in self._seen:
                self._found[name].append(test)
        return bool(names)

    def unrequested(self, red: bool = True) -> None:
        """A test that was not requested ran as well; its failure may explain the tool's exit code."""
        self._red_unrequested = self._red_unrequested or red

    def unloadable(self, place: str, **more: Any) -> None:
        """A file that could not be compiled or loaded, reported for any request."""
        self.troubled = True
        self._channel.send("collect_error", id=frames.short_id(place), **_bounded(more))

    def warning(self, text: str) -> None:
        if self._warned < MAX_WARNINGS:
            self._warned += 1
            self._channel.send("warning", text=frames.clip(text, 500))

    def cannot_start(self, error_type: str, message: str, missing: str = "") -> None:
        self.troubled = True
        self._channel.send(
            "startup", **_bounded({"error_type": error_type, "message": message}), missing_module=missing
        )

    def end(self, code: int) -> int:
        """Report the end of the run. Returns the exit code."""
        for name, tests in self._found.items():
            self._channel.send("resolved", asked=name, ids=tests[:1000])
        if not self.troubled:
            self._channel.send_ids("missing", [name for name, tests in self._found.items() if not tests])
        if code == 0 and not self._seen and not self._meant:
            code = NO_TESTS
        if self._red_unrequested and not self._red and not self.troubled:
            code = 0
        self._channel.send("end", exit_code=code)
        return code


def _bounded(more: Mapping[str, Any]) -> dict[str, Any]:
    limits = {"message": frames.MAX_MESSAGE, "traceback": frames.MAX_TRACE, "error_type": 200}
    return {key: frames.clip(str(value), limits[key]) if key in limits else value for key, value in more.items()}


def follow(
    argv: Sequence[str],
    on_line: Callable[[str], None] = lambda line: None,
    poll: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run a tool to its end; its output goes to the log and each line to `on_line`; `poll` is called meanwhile."""
    process = subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    rest = b""
    looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ended = closed = False
        while not closed:
            ready = selector.select(0 if ended else POLL_SEC)
            chunk = os.read(process.stdout.fileno(), LINE_BYTES) if ready else b""
            closed = (bool(ready) and not chunk) or (ended and not ready)
            rest = _split(rest + chunk, on_line)
            if chunk:
                os.write(2, chunk)
            ended = ended or process.poll() is not None  # what it started may hold its output open
            if time.monotonic() - looked > POLL_SEC:
                poll()
                looked = time.monotonic()
    code = process.wait()
    poll()
    return code if code >= 0 else 128 - code


def _split(data: bytes, on_line: Callable[[str], None]) -> bytes:
    *lines, rest = data.split(b"\n")
    for line in lines:
        on_line(line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r"))
    return rest[-LINE_BYTES:]


def relative(path: str) -> str:
    """A path as ids have it: from the repository's top, with forward slashes."""
    root = os.path.realpath(".")
    return frames.from_top(os.path.relpath(os.path.realpath(path), root).replace(os.sep, "/"))


def folders_with(names: Iterable[str], pruned: Iterable[str], most: int = 500) -> list[Path]:
    """Directories that hold a file of one of these names, outermost first."""
    wanted, skipped = set(names), {*pruned, ".git", "node_modules"}
    found: list[Path] = []
    for folder, inner, files in os.walk("."):
        inner[:] = sorted(name for name in inner if name not in skipped and not name.startswith("."))
        if wanted & set(files):
            found.append(Path(folder))
        if len(found) >= most:
            break
    return found
