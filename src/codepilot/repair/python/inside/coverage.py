"""Traces tests: the lines of the project that they reach, and their access to what they may not touch.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: PTH108, PTH109, PTH118, PTH120

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
import threading
from typing import Any

ROOT = os.path.realpath(os.getcwd())
MAX_EVENTS = 300000
MAX_ENTRIES = 300
MAX_CALLS = 50000
MAX_ROUNDS = 20000
WRITES = (
    *("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.mkdir", "os.link", "os.symlink"),
    *("os.utime", "os.mknod", "os.mkfifo", "sqlite3.connect"),
)
IN_MEMORY = (":memory:", "")
OUTSIDE = (sys.prefix + os.sep, sys.base_prefix + os.sep)
if ROOT.startswith(OUTSIDE):
    OUTSIDE = ("\0", "\0")


_KNOWN: dict[str, str | None] = {}


def relative(filename: str) -> str | None:
    """The path below the root, or None for files outside it and for installed packages."""
    if filename not in _KNOWN:
        path = os.path.realpath(filename)
        inside = path.startswith(ROOT + os.sep) and path.endswith(".py")
        inside = inside and "site-packages" not in path and not path.startswith(OUTSIDE)
        _KNOWN[filename] = os.path.relpath(path, ROOT).replace(os.sep, "/") if inside else None
    return _KNOWN[filename]


class Branch:
    """A place in a function's code from which there are several branches, and those that were gone."""

    def __init__(self, code: Any, path: str, at: int) -> None:
        self.code = code
        """Kept, so that nothing else gets its number meanwhile."""
        self.path = path
        self.line = line_of(code, at)
        self.ends: set[int] = set()
        self.rounds = 0


class Lines:
    """Line coverage of the project; with `calls` the functions that are entered; with `branches` pairs of lines too."""

    def __init__(self, calls: bool = False, branches: bool = False) -> None:
        self.calls = calls
        self.found: dict[str, set[Any]] = {}
        self.branches: dict[str, set[tuple[int, int]]] | None = {} if branches else None
        """Pairs of lines, the second run right after the first in one call of a function; or only where it watched."""
        self.watched: dict[tuple[int, int], Branch] = {}
        self.left = MAX_EVENTS
        self.entries: dict[Any, int] = {}
        self.monitoring: Any = getattr(sys, "monitoring", None)
        self.tool: int | None = None

    def __enter__(self) -> Lines:
        if self.monitoring is not None:
            self.tool = next((t for t in (4, 3, 2) if self.monitoring.get_tool(t) is None), None)
        if self.tool is not None:
            events = self.monitoring.events
            wanted = events.PY_START if self.calls else events.LINE
            self.monitoring.use_tool_id(self.tool, "codepilot")
            self.monitoring.register_callback(self.tool, wanted, self._monitored)
            for branch in () if self.branches is None else branch_events(events):
                self.monitoring.register_callback(self.tool, branch, self._branched)
                wanted |= branch
            self.monitoring.restart_events()
            self.monitoring.set_events(self.tool, wanted)
        else:
            threading.settrace(self._traced)
            sys.settrace(self._traced)
        return self

    def __exit__(self, *_: object) -> None:
        if self.tool is not None:
            self.monitoring.set_events(self.tool, 0)
            self.monitoring.free_tool_id(self.tool)
        else:
            sys.settrace(None)
            threading.settrace(None)

    def _monitored(self, code: Any, line: int) -> Any:
        path = relative(code.co_filename)
        if path is not None:
            self.found.setdefault(path, set()).add((code.co_firstlineno, code.co_name) if self.calls else line)
        return self.monitoring.DISABLE

    def _branched(self, code: Any, at: int, to: int) -> Any:
        """A branch is watched until two of its branches were seen, or one of them very often."""
        branch = self.watched.get((id(code), at))
        if branch is None:
            path = relative(code.co_filename)
            if path is None:
                return self.monitoring.DISABLE
            branch = self.watched[id(code), at] = Branch(code, path, at)
        branch.rounds += 1
        if to not in branch.ends and self.branches is not None:
            branch.ends.add(to)
            self.branches.setdefault(branch.path, set()).add((branch.line, line_of(code, to)))
        return self.monitoring.DISABLE if len(branch.ends) > 1 or branch.rounds > MAX_ROUNDS else None

    def _traced(self, frame: Any, event: str, _: object) -> Any:
        path = relative(frame.f_code.co_filename)
        if path is None:
            return None
        lines = self.found.setdefault(path, set())
        branches = set() if self.branches is None else self.branches.setdefault(path, set())
        last = frame.f_lineno
        if self.calls:
            lines.add((frame.f_code.co_firstlineno, frame.f_code.co_name))
            return None

        # A function that was entered often has shown its lines; watching on would only cost time.
        self.entries[frame.f_code] = entered = self.entries.get(frame.f_code, 0) + 1
        if entered > MAX_ENTRIES:
            if entered > MAX_CALLS:
                sys.settrace(None)
            return None

        def line(frame: Any, event: str, _: object) -> Any:
            nonlocal last
            if event == "line":
                now = frame.f_lineno
                lines.add(now)
                branches.add((last, now))
                last = now
                self.left -= 1
                if self.left < 0:
                    sys.settrace(None)
                    return None
            return line

        return line if self.left > 0 else None


def branch_events(events: Any) -> tuple[int, ...]:
    """From Python 3.14 on there is one for each way."""
    if hasattr(events, "BRANCH_LEFT"):
        return (events.BRANCH_LEFT, events.BRANCH_RIGHT)
    return (events.BRANCH,)


def line_of(code: Any, offset: int) -> int:
    return next((line or 0 for start, end, line in code.co_lines() if start <= offset < end), 0)


class Turns:
    """One child at a time: what it holds is free again when it ends, in whatever way."""

    def __init__(self) -> None:
        chosen = tempfile.tempdir
        self.file, path = tempfile.mkstemp()
        os.unlink(path)
        tempfile.tempdir = chosen  # the project may still choose another
        self.held = False

    def take(self) -> None:
        if not self.held:
            self._do(fcntl.LOCK_EX)
            self.held = True

    def leave(self) -> None:
        if self.held:
            self._do(fcntl.LOCK_UN)
            self.held = False

    def _do(self, what: int) -> None:
        with contextlib.suppress(OSError):  # a test that closes all files goes without
            fcntl.lockf(self.file, what)


class Guard:
    """Keeps candidates from spoiling the tree or killing the worker by accident. The sandbox is the wall, not this."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        """Folders of the tree that the tests write into, and files of code that they write."""
        self.shared = False
        """True if a test has used something that two tests at once would share."""
        self.turns = Turns()
        """The lock for using it."""
        self.forked = False
        self.strict = False
        self.parent = os.getpid()
        self.on = False

    def arm(self, strict: bool) -> None:
        self.strict, self.on = strict, True
        sys.addaudithook(self._hook)

    def learn(self, written: list[str], shared: bool, forked: bool) -> None:
        """The trace from a child in which the tests ran unchanged."""
        self.written.update(written)
        self.shared, self.forked = self.shared or shared, self.forked or forked

    def _hook(self, event: str, args: Any) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = (*args, None, None)[:3]
            writes = (isinstance(mode, str) and any(c in mode for c in "wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            )
            if writes:
                self._write(path)
        elif event in WRITES or event.startswith("shutil."):
            for path in args[:2]:
                self._write(path)
        elif event == "socket.bind":
            self._share()
        elif event == "os.fork" and self.strict and not self.forked:
            raise PermissionError("candidates may not fork")
        elif event == "os.fork":
            self.forked = True
        elif event in ("os.kill", "os.killpg") and self.strict and args[0] in (self.parent, 0, 1, -1):
            raise PermissionError("candidates may not signal the worker")

    def _write(self, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)) or os.fsdecode(path) in IN_MEMORY:
            return
        path = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        folder, inside = os.path.dirname(path), path == ROOT or path.startswith(ROOT + os.sep)
        if (os.sep + "__pycache__" + os.sep) not in path and not path.startswith((str(tempfile.tempdir), "/dev/")):
            self._share()
        if not self.strict:
            if inside:
                self.written.update((folder, path) if path.endswith(".py") else (folder,))
        elif inside and (folder not in self.written or path == ROOT):
            raise PermissionError("candidates may not change the project's tree")
        elif inside and path.endswith(".py") and path not in self.written:
            raise PermissionError("candidates may not change the project's code")

    def _share(self) -> None:
        self.shared = True
        if self.strict:
            self.turns.take()
