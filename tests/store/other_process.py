"""Another process with the same store, which can be killed, stopped and talked to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from codepilot.store import Home

HERE = Path(__file__).parent
PREAMBLE = """
import os, sys, threading, time
from pathlib import Path
from codepilot.core.events import EventType, Requested
from codepilot.store import *
from codepilot.store import Store
from codepilot.store.queue import Lease
from sample_runs import *
home = Home(Path(sys.argv.pop(1)))
place = sys.argv.pop(1)
"""
OPENED = "store = Store.open(place, locks=home.locks)\n"


def python(program: str, place: str, home: Home, *args: object, opened: str = OPENED) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, "-c", PREAMBLE + opened + program, str(home.path), place, *map(str, args)]
    return subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def received(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
