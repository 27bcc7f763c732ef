"""The channel on which a test run reports: one JSON line a fact, on what was standard output.

Runs inside the project's own interpreter (Python 3.8 and newer) and uses the standard library alone.
The first line of standard input is the header: the run's nonce and what to run. Afterwards standard input is
empty and standard output is an alias of standard error, so that nothing a test prints meets the frames.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import traceback

TYPE_CHECKING = False
"""As in `typing`, which takes longer to read than all of this."""
if TYPE_CHECKING:
    from typing import Any

MAX_ID = 2000
MAX_MESSAGE = 4000
MAX_TRACE = 12000
_HIGH_FD = 200
FOLDER = os.environ.get("CODEPILOT_FOLDER", "")
"""The project's directory in the repository, from which the runner starts. Ids begin at the repository's top."""


def clip(text: str, limit: int) -> str:
    """Head and tail of a long text, with the number of characters left out."""
    if len(text) <= limit:
        return text
    head = limit // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[-tail:]}"


def short_id(name: str) -> str:
    """A test id of bearable length: very long ones keep their head and a digest of the whole."""
    if len(name) <= MAX_ID:
        return name
    import hashlib  # hardly ever needed, and slow to read

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return name[: MAX_ID - 20] + "..." + digest


def from_top(name: str) -> str:
    """The id of a test, or a file, as seen from the top of the repository."""
    if not FOLDER:
        return name
    path, mark, rest = name.partition("::")
    return os.path.normpath(FOLDER + "/" + path).replace(os.sep, "/") + mark + rest


def from_project(name: str) -> str:
    """The same as the runner knows it. A name that is given as seen from the project stays as it is."""
    if not FOLDER:
        return name
    path, mark, rest = name.partition("::")
    path = os.path.normpath(path)
    if path == FOLDER:
        return "." + mark + rest
    return (path[len(FOLDER) + 1 :] if path.startswith(FOLDER + "/") else path) + mark + rest


def describe(error: BaseException) -> dict[str, Any]:
    """Type and message of an exception, even if its __str__ fails."""
    lines = traceback.format_exception_only(type(error), error)
    text = (lines[-1] if isinstance(error, SyntaxError) else "".join(lines)).strip()
    message = text.partition(": ")[2]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        message += " (" + _from_here(str(error.filename)) + ", line " + str(error.lineno) + ")"
    return {"error_type": type(error).__name__, "message": clip(message, MAX_MESSAGE)}


def _from_here(path: str) -> str:
    """A file of the repository by its path from the top; any other as it is."""
    here = os.path.realpath(".")
    place = os.path.realpath(path)
    return from_top(os.path.relpath(place, here)) if place.startswith(here + os.sep) else path


def missing_module(error: BaseException | None) -> str | None:
    """The module that could not be found, if that is what lies behind the exception."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
            return error.name
        error = error.__cause__ or error.__context__
    return None


class Channel:
    """Writes frames. Each is written at once, so that a crash loses none that was sent."""

    def __init__(self) -> None:
        self.header = _read_header()
        nonce = str(self.header.pop("nonce", ""))
        self._prefix = ("@codepilot:" + nonce + " ").encode("ascii", "replace")
        self._pid = os.getpid()
        self._fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) if nonce else -1
        os.dup2(2, 1)

    def send(self, event: str, **fields: Any) -> None:
        if self._fd < 0 or os.getpid() != self._pid:
            return
        fields["event"] = event
        data = self._prefix + json.dumps(fields, default=str).encode("ascii") + b"\n"
        try:
            self._write(data)
        except OSError:
            self._fd = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                select.select([], [self._fd], [])

    def send_ids(self, event: str, ids: list[str]) -> None:
        """A long list in several frames."""
        for start in range(0, len(ids), 100):
            self.send(event, ids=ids[start : start + 100])


def _read_header() -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(0, 1 << 16)
        if not chunk:
            break
        data += chunk
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        header = json.loads(data.decode("utf-8", "replace") or "{}")
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}
