"""Reads a kernel's replies: bounded, checked, as text that every encoding takes.

Replies can be forged, so reading one costs time and memory in proportion to its length, whatever it holds.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import SkillCall
from codepilot.sandbox.kernel.host_calls import MAX_BYTES, read_calls
from codepilot.sandbox.limits.supervisor import SupervisedProcess
from codepilot.sandbox.spec import Process, Status

_OVERHEAD_BYTES = 1 << 20
_TIMES = 6
"""A line holds both streams, each up to three times as long in JSON; of what is longer the kernel leaves more out."""
_TYPE_CHARS = 200
_TEXT_CHARS = 20_100
_LEFT_OUT_CHARS = 100
_LARGEST = (1 << 31) - 1


class Lost(Exception):
    """The kernel ended, or sent something that is not a reply."""


class CodeError(Contract):
    type: str
    message: str
    traceback: str = ""
    line: int | None = None


class HostCall(Contract):
    """A call that an action waits for: `number` counts the calls of one action."""

    number: int = Field(ge=0)
    function: str
    arguments: JsonObject = {}


class CodeResult(Contract):
    """The result of a code action. The kernel reports all of it but `status`, `limit` and `host_call`."""

    status: Literal[Status, "host_call"]
    host_call: HostCall | None = None
    """Over HTTP, with the status `host_call`: the action waits until `answer_call` brings the answer."""
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: CodeError | None = None
    limit: str | None = None
    exit_code: int | None = None
    duration_ms: float = 0.0
    truncated: bool = False
    kernel_restarted: bool = False
    calls: tuple[SkillCall, ...] = ()


def longest_line(output_bytes: int) -> int:
    """No line of a kernel's that keeps to the protocol is longer."""
    return max(_TIMES * output_bytes, MAX_BYTES) + _OVERHEAD_BYTES


def result_of(
    reply: Mapping[str, Any], status: Literal["timeout", "interrupted"] | None, output_bytes: int
) -> CodeResult:
    """A reply as a result; fields of the wrong type count as absent."""
    error = reply.get("error")
    ok = reply.get("ok") is True and status is None
    return CodeResult(
        status=status or ("ok" if ok else "error"),
        stdout=_text(reply.get("stdout"), output_bytes + _LEFT_OUT_CHARS) or "",
        stderr=_text(reply.get("stderr"), output_bytes + _LEFT_OUT_CHARS) or "",
        value=_text(reply.get("value")),
        error=_error(error) if isinstance(error, dict) else None,
        limit="wall" if status == "timeout" else None,
        exit_code=_number(reply.get("exit_code")),
        truncated=reply.get("truncated") is True,
        calls=read_calls(reply.get("calls"), status),
    )


def _error(error: Mapping[str, Any]) -> CodeError:
    return CodeError(
        type=_text(error.get("type"), _TYPE_CHARS) or "Exception",
        message=_text(error.get("message")) or "",
        traceback=_text(error.get("traceback")) or "",
        line=_number(error.get("line")),
    )


def _text(value: object, most: int = _TEXT_CHARS) -> str | None:
    """A text that can be passed on: JSON may hold halves of characters, which no encoding takes."""
    return value[:most].encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST else None


class OutputFiles:
    """The files behind the standard streams of one process; empty where there are none."""

    def __init__(self, process: Process, limit: int) -> None:
        pid = process.pid if isinstance(process, SupervisedProcess) else None
        self._limit = limit
        self._lock = threading.Lock()
        self._last: tuple[str, str] | None = None
        self._files = [None if pid is None else _behind(pid, fd) for fd in (1, 2)]

    def texts(self) -> tuple[str, str]:
        """The head and tail of standard output and error, read from the files and not from the kernel."""
        with self._lock:
            return self._last or self._read()

    def close(self) -> None:
        """Close the files; `texts` still returns their last content."""
        with self._lock:
            self._last = self._last or self._read()
            files, self._files = self._files, [None, None]
        for file in files:
            if file is not None:
                os.close(file)

    def _read(self) -> tuple[str, str]:
        stdout, stderr = (b"" if file is None else _ends(file, self._limit) for file in self._files)
        return stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")


def _behind(pid: int, fd: int) -> int | None:
    """Open the file behind a descriptor of a process.

    A file with a name is not the kernel's. It could be one that code inside can name but not read.
    """
    with contextlib.suppress(OSError):
        file = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_uid == os.geteuid():
            return file
        os.close(file)
    return None


def _ends(file: int, limit: int) -> bytes:
    size = os.fstat(file).st_size
    if size <= limit:
        return os.pread(file, size, 0)
    half = limit // 2
    return b"%s\n[... %d bytes left out ...]\n%s" % (
        os.pread(file, half, 0),
        size - 2 * half,
        os.pread(file, half, size - half),
    )
