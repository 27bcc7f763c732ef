"""A disk as slow as one likes: processes that are told so wait before every sync.

What shares a sync pays where a sync is what a commit costs; on a disk that needs a tenth of a millisecond hardly
anything is left to share. A library that is loaded before all others waits, then lets the disk do its part.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers import PeerMissing

SYNC_SEC = 0.00135
"""Brings bare inserts to 600 or 700 a second: the disk that the goals were set on gave 661."""

_SOURCE = """\
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_first(void) { struct timespec pause = {0, NANOSECONDS}; nanosleep(&pause, 0); }
int fdatasync(int file) { wait_first(); return syscall(SYS_fdatasync, file); }
int fsync(int file) { wait_first(); return syscall(SYS_fsync, file); }
"""
_PROBE = "import os, sys, time; t = time.perf_counter(); os.fsync(os.open('.', 0)); print(time.perf_counter() - t)"


def slow_syncs(directory: Path) -> dict[str, str]:
    """What to add to the environment of processes whose syncs are to be slow. Raises PeerMissing if it is of no use."""
    source, library = directory / "slow_sync.c", directory / "slow_sync.so"
    source.write_text(_SOURCE.replace("NANOSECONDS", str(int(SYNC_SEC * 1e9))))
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", os.fspath(library), os.fspath(source)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerMissing("a slow disk needs a C compiler (`cc`)") from error
    slow = {"LD_PRELOAD": os.fspath(library)}
    probe = [sys.executable, "-c", _PROBE]
    took = subprocess.run(probe, cwd=directory, env={**os.environ, **slow}, check=True, capture_output=True, timeout=60)
    if float(took.stdout) < SYNC_SEC:
        raise PeerMissing("libraries cannot be loaded from the directory for temporary files")
    return slow
