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
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

MAX_REQUEST = 1 << 17


def run(
    arguments: Sequence[str], environ: Mapping[str, str], cwd: Path | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` with captured output would."""
    told, tell = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, os.fdopen(told, "rb") as ended:
        request = json.dumps([list(arguments), dict(environ), str(cwd or Path.cwd())]).encode()
        try:
            socket.send_fds(_started(), [request], [out.fileno(), err.fileno(), tell])
        finally:
            os.close(tell)
        if not select.select([ended], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired(arguments, seconds)
        code = int(ended.read())
        texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    return subprocess.CompletedProcess(list(arguments), code, *texts)


@cache
def _started() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [sys.executable, __file__, str(theirs.fileno())]
    process = subprocess.Popen(command, env=kept, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(asked: socket.socket) -> None:
    """Returns in the process of a command alone."""
    while True:
        request, files, _, _ = socket.recv_fds(asked, MAX_REQUEST, 3)
        if not request:
            sys.exit()
        if os.fork() == 0:
            if (command := os.fork()) == 0:
                asked.close()
                return _become(*json.loads(request), files)
            code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            os.write(files[2], str(code).encode())
            os._exit(0)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(arguments: list[str], environ: dict[str, str], cwd: str, files: list[int]) -> None:
    out, err, tell = files
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in (out, err, tell):
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["codepilot", *arguments]


def _main(asked: socket.socket) -> None:
    import codepilot.cli

    for module in pkgutil.iter_modules(codepilot.cli.__path__, "codepilot.cli."):
        if not module.ispkg:
            importlib.import_module(module.name)
    for name in ("codepilot.engine", "codepilot.store.store", "sqlalchemy.dialects.sqlite.pysqlite"):
        importlib.import_module(name)
    assert threading.active_count() == 1, "of a process with threads a fork has only one"
    gc.collect()
    gc.freeze()
    _serve(asked)
    codepilot.cli.main()


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
