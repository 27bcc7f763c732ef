"""Runs code actions inside the sandbox. One file, standard library only: it travels as it is.

Speaks JSON lines over copies of its standard pipes, so that nothing an action prints can be taken for a reply.
Requests: {"id", "op": "run"|"define", "source", "limit"}. Replies: {"id", "ok", "stdout", "stderr", "truncated",
"value", "error", "exit_code", "calls", "duration_ms"}. While an action runs it may ask the host: {"call", "skill",
"arguments"}, answered by {"call", "value"} or {"call", "error"}; and a refused call is reported at once, {"note"}, as
the kernel may not live to reply. The host trusts none of it; it only shows it.

Skills find the kernel as the module `codepilot_kernel`: `note` records a call, `ask` calls the host.
"""

# ruff: noqa: PTH108, PTH109  (see below: pathlib is not imported)
from __future__ import annotations

import ast
import contextlib
import faulthandler
import fcntl
import io
import json
import linecache
import os
import signal
import sys
import time
import traceback
import types
from _thread import allocate_lock, get_ident

TYPE_CHECKING = False  # importing typing, pathlib and tempfile would take a third of the start
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_VALUE_CHARS = 20_000
_TRACEBACK_CHARS = 20_000
_TYPE_CHARS = 200
_CALLS = 1_000
_SOURCES = 200
"""Of how many actions the source is kept, for tracebacks through functions that they defined."""
_VIOLATIONS = 100
_ASKED_BYTES = 16 << 20
_SKILLS = "<skills"
"""The prefix of the file names of skills, whose frames are left out of tracebacks."""


class _Capture:
    """A file behind one standard stream; what an action and its children wrote to it since the last reset."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        name = f"{os.environ.get('TMPDIR', '/tmp')}/.capture-{os.getpid()}-{fd}"
        self._file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.unlink(name)
        self.reset()

    def reset(self) -> None:
        os.ftruncate(self._file, 0)
        os.dup2(self._file, self._fd, inheritable=True)

    def text(self, limit: int) -> tuple[str, bool]:
        """Head and tail of what was written, and whether a middle was left out; more where JSON is much longer."""
        found = self._ends(limit)
        if len(found[0]) > limit // 2 and len(json.dumps(found[0])) > 3 * limit:
            return self._ends(limit // 2)
        return found

    def _ends(self, limit: int) -> tuple[str, bool]:
        size = os.fstat(self._file).st_size
        if size <= limit:
            return os.pread(self._file, size, 0).decode("utf-8", "replace"), False
        half = limit // 2
        head, tail = os.pread(self._file, half, 0), os.pread(self._file, half, size - half)
        gap = f"\n[... {size - 2 * half} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace"), True


class _Kernel:
    def __init__(self) -> None:
        self._main_pid = os.getpid()
        self._main_thread = get_ident()
        self._requests = _Lines(_private_copy(0))
        self._replies = _private_copy(1)
        faulthandler.enable(_private_copy(2))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._captures = (_Capture(1), _Capture(2))
        self._running = False
        self._speaking = False
        self._put_off = False
        self._channel = allocate_lock()
        self._writing = allocate_lock()
        self._asked = 0
        self._early: list[bytes] = []  # requests that came while a thread of an earlier action waited for an answer
        self._calls: list[list[Any]] = []
        self._count = 0
        self._main = types.ModuleType("__main__")
        self._namespace: dict[str, Any] = self._main.__dict__
        self._namespace["__builtins__"] = __builtins__
        self._namespace["exit"] = self._namespace["quit"] = sys.exit
        self._namespace["help"] = _help
        sys.modules["__main__"] = self._main
        door = types.ModuleType("codepilot_kernel")
        door.__dict__.update(note=self.note, ask=self.ask)
        sys.modules[door.__name__] = door
        signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, number: int, frame: object) -> None:
        if self._speaking:
            self._put_off = True
        elif self._running:
            raise KeyboardInterrupt

    def serve(self) -> None:
        self._say({"id": 0, "ready": True, "python": list(sys.version_info[:3])})
        while True:
            with self._channel:
                line = self._early.pop(0) if self._early else self._requests.next()
            if not line:
                return
            request = json.loads(line)
            if "call" not in request:
                self._say(self._answer(request))

    def _say(self, message: dict[str, Any]) -> None:
        if os.getpid() != self._main_pid:
            os._exit(0)
        self._write(json.dumps(message).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        data = memoryview(line)
        with self._writing:
            while data:
                data = data[os.write(self._replies, data) :]

    def note(self, skill: str, status: str, seconds: float, message: str = "", *failed: str) -> None:
        """A skill was called; `failed` has its arguments and its exit. Calls beyond the bound are dropped;
        violations have a separate bound."""
        room = _CALLS if status != "policy_violation" else _CALLS + _VIOLATIONS
        if len(self._calls) >= room:
            return
        row = [skill, status, round(seconds * 1000, 3), message[:500], *failed]
        self._calls.append(row)
        if status == "policy_violation" and os.getpid() == self._main_pid:
            with self._uninterrupted():
                self._write(json.dumps({"note": row}).encode() + b"\n")

    def ask(self, skill: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The host's answer to a call: {"value"} or {"error": {"kind", "message"}}."""
        if os.getpid() != self._main_pid:
            return _no("tool_failed", "this process was forked off; only the kernel itself can ask the host")
        try:
            encoded = json.dumps(arguments)
        except (TypeError, ValueError, RecursionError) as error:
            return _no("tool_invalid_args", f"arguments of {skill} must be plain data: {error}")
        if len(encoded) > _ASKED_BYTES:
            return _no("tool_invalid_args", f"arguments of {skill} are larger than {_ASKED_BYTES >> 20} MiB")
        with self._channel:
            self._asked += 1
            number = self._asked
            with self._uninterrupted():
                self._write(f'{{"call": {number}, "skill": {json.dumps(skill)}, "arguments": {encoded}}}\n'.encode())
                return self._reply(number)

    @contextlib.contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """An interrupt waits: half a line must not be lost. The host answers at the deadline at the latest."""
        if get_ident() != self._main_thread:
            yield
            return
        self._speaking = True
        try:
            yield
        finally:
            self._speaking = False
        if self._put_off:
            self._put_off = False
            raise KeyboardInterrupt

    def _reply(self, number: int) -> dict[str, Any]:
        while True:
            line = self._requests.next()
            if not line:
                os._exit(0)
            answer: dict[str, Any] = json.loads(line)
            if answer.get("call") == number:
                return answer
            if "call" not in answer:
                self._early.append(line)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        for number, capture in enumerate(self._captures, start=1):
            capture.reset()
            setattr(sys, ("stdout", "stderr")[number - 1], _stream(number))
        started = time.perf_counter()
        self._put_off = False
        outcome = self._execute(request)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        texts = [capture.text(request["limit"]) for capture in self._captures]
        calls, self._calls = self._calls, []
        return {
            "id": request["id"],
            **outcome,
            "stdout": texts[0][0],
            "stderr": texts[1][0],
            "truncated": texts[0][1] or texts[1][1],
            "calls": calls,
            "duration_ms": (time.perf_counter() - started) * 1000,
        }

    def _execute(self, request: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        name = f"<action {self._count}>" if request["op"] == "run" else "<skills>"
        source: str = request["source"]
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        linecache.cache.pop(f"<action {self._count - _SOURCES}>", None)
        self._running = True
        try:
            return {"ok": True, "value": self._run(source, name)}
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            return {"ok": code == 0, "exit_code": code, "error": None if code == 0 else _describe(error, name)}
        except BaseException as error:  # noqa: BLE001  (whatever an action raises is its result)
            return {"ok": False, "error": _describe(error, name)}
        finally:
            self._running = False

    def _run(self, source: str, name: str) -> str | None:
        """Execute the statements; the value of a last expression is what is returned."""
        tree = ast.parse(source, name)
        last: ast.expr | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = tree.body.pop().value  # type: ignore[attr-defined]
        exec(compile(tree, name, "exec"), self._namespace)
        if last is None:
            return None
        value = eval(compile(ast.Expression(last), name, "eval"), self._namespace)
        return None if value is None else _short(repr(value), _VALUE_CHARS)


class _Lines:
    """Lines from a file descriptor. Interrupts lose no bytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        self._searched = 0

    def next(self) -> bytes:
        """A line, or nothing at the end."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            chunk = os.read(self._fd, 1 << 16)
            if not chunk:
                return b""
            self._buffer += chunk


def _help(*request: object) -> None:
    """The interpreter's `help`, which is missing without `site`."""
    import pydoc

    pydoc.help(*request)


def _no(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}}


def _private_copy(fd: int) -> int:
    """A copy that programs started by an action do not inherit."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


def _stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit // 2] + " [...] " + text[-limit // 2 :]


def _describe(error: BaseException, name: str) -> dict[str, Any]:
    """Type, message, the agent's own line, and a traceback that begins in the agent's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    line = None
    frame = trace
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == name:
            line = frame.tb_lineno
        frame = frame.tb_next
    if isinstance(error, SyntaxError) and error.filename == name:
        line = error.lineno
    try:
        message = str(error)
        trimmed = traceback.TracebackException(type(error), error, trace)
        _hide(trimmed)
        text = "".join(trimmed.format())
    except Exception as broken:  # noqa: BLE001  (an exception may well fail to describe itself)
        message, text = f"(no message: {type(broken).__name__})", ""
    return {
        "type": _short(type(error).__name__, _TYPE_CHARS),
        "message": _short(message, _VALUE_CHARS),
        "traceback": _short(text, _TRACEBACK_CHARS),
        "line": line,
    }


def _hide(root: traceback.TracebackException) -> None:
    """Leave the kernel's and the skills' own frames out, here and in what led to it."""
    seen: set[int] = set()
    rest: list[traceback.TracebackException | None] = [root]
    while rest:
        one = rest.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = [at for at in one.stack if at.filename != __file__ and not at.filename.startswith(_SKILLS)]
        one.stack = traceback.StackSummary.from_list(kept)
        rest += [one.__cause__, one.__context__]


def main() -> None:
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)
    sys.path[0:1] = [os.getcwd()]
    sys.argv = [""]
    _Kernel().serve()


if __name__ == "__main__":
    main()
