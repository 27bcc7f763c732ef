"""`codepilot` from a process that has read all it needs and forks for each command.

Every command is a process of its own with its own environment, directory and streams, as users have it; only reading
the libraries, which is most of the price of a short command, is done once for all tests of a test process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

MAX_REQUEST = 1 << 17


class Started:
    """A command that was started, with as much of `subprocess.Popen` as tests use. Its streams are text."""

    def __init__(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        cwd: Path | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
        start_new_session: bool = False,
        script: Path | None = None,
    ) -> None:
        """Streams for which no file is given are pipes. A script of the tests may take the command's place."""
        self.args, self.returncode = [str(script or "codepilot"), *arguments], None
        request = [self.args, dict(environ), str(cwd or Path.cwd()), start_new_session]
        with contextlib.ExitStack() as theirs:
            self.stdout, out = (None, stdout.fileno()) if stdout else _pipe(theirs)
            self.stderr, err = (None, stderr.fileno()) if stderr else _pipe(theirs)
            reported, tell = _pipe(theirs)
            socket.send_fds(_ready(), [json.dumps(request).encode()], [out, err, tell])
        self._reported = reported
        self.pid = int(reported.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reported], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._reported], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._ended()
        assert self.returncode is not None
        return self.returncode

    def _ended(self) -> None:
        self.returncode: int | None = int(self._reported.readline())
        self._reported.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        deadline, texts = time.monotonic() + (timeout or 600.0), {}

        def take(stream: IO[str]) -> None:
            with stream:
                texts[stream] = stream.read()

        streams = [self.stdout, self.stderr]
        readers = [threading.Thread(target=take, args=[stream], daemon=True) for stream in streams if stream]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(max(0.0, deadline - time.monotonic()))
        out, err = (texts[stream] if stream else "" for stream in streams)
        return out, err


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path | None = None,
    seconds: float = 300.0,
    script: Path | None = None,
) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = Started(arguments, environ, cwd, out, err, script=script).wait(seconds)
        for file in (out, err):
            file.seek(0)
        return code, out.read().decode(), err.read().decode()


def without_plugins(config: Path) -> Path:
    """A user's configuration in which pytest leaves the plugins alone that its interpreter has: ours has many."""
    (config / "codepilot").mkdir(parents=True, exist_ok=True)
    settings = '[project.env]\nPYTEST_DISABLE_PLUGIN_AUTOLOAD = "1"\n'
    (config / "codepilot" / "codepilot.toml").write_text(settings, encoding="utf-8")
    return config


def _pipe(theirs: contextlib.ExitStack) -> tuple[IO[str], int]:
    ours, end = os.pipe()
    theirs.callback(os.close, end)
    return os.fdopen(ours, encoding="utf-8"), end


@cache
def _ready() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
    command = [sys.executable, __file__, str(theirs.fileno())]
    process = subprocess.Popen(command, env=kept, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# The process itself ---------------------------------------------------------------------------------


def _serve(asked: socket.socket) -> None:
    """Returns in the process of a command alone; another one waits for it and tells how it ended."""
    while True:
        request, files, _, _ = socket.recv_fds(asked, MAX_REQUEST, 3)
        if not request:
            sys.exit()
        if os.fork() == 0:
            asked.close()
            if (command := os.fork()) == 0:
                return _become(*json.loads(request), files)
            os.write(files[2], b"%d\n" % command)
            for file in files[:2]:
                os.close(file)
            code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            os.write(files[2], b"%d\n" % code)
            os._exit(0)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(arguments: list[str], environ: dict[str, str], cwd: str, own_session: bool, files: list[int]) -> None:
    out, err, tell = files
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in (out, err, tell):
        os.close(file)
    if own_session:
        os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = arguments


def _main(asked: socket.socket) -> None:
    import codepilot.cli

    for module in pkgutil.iter_modules(codepilot.cli.__path__, "codepilot.cli."):
        if not module.ispkg:
            importlib.import_module(module.name)
    for name in (
        "codepilot.engine",
        "codepilot.store.store",
        "sqlalchemy.dialects.sqlite.pysqlite",
        "codepilot.executor.service",
    ):
        importlib.import_module(name)
    assert threading.active_count() == 1, "of a process with threads a fork has only one"
    gc.collect()
    gc.freeze()
    _serve(asked)
    if sys.argv[0] == "codepilot":
        codepilot.cli.main()
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
