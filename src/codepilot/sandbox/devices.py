"""The host's devices as a sandbox that root starts may see them: usable, but not to be changed.

bubblewrap shows the host's own /dev/null and its like, and code that root confines still owns them, so it could take
them from everybody. On a read-only mount a device can be read and written, but its mode, owner and times cannot be
changed. bubblewrap makes such a mount only of what lies on one already, so the thread that starts it gets a view of its
own in which they do. Others than root own no device, and may not make mounts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

_NAMES = ("null", "zero", "full", "random", "urandom", "tty")
_NEW_MOUNTS = 0x20000
_READ_ONLY, _NO_SUID, _NO_EXEC, _REMOUNT, _BIND, _WITH_BELOW, _FOLLOWING = 1, 2, 8, 32, 4096, 16384, 1 << 19


def protect() -> None:
    """Give the calling thread, and what it starts, a view in which devices lie on mounts that are read-only."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0:
        return
    with contextlib.suppress(OSError):
        _mount(libc, None, "/", _FOLLOWING | _WITH_BELOW)
        for name in _NAMES:
            path = f"/dev/{name}"
            with contextlib.suppress(FileNotFoundError):
                _mount(libc, path, path, _BIND)
                _mount(libc, None, path, _BIND | _REMOUNT | _READ_ONLY | _NO_SUID | _NO_EXEC)


def _mount(libc: ctypes.CDLL, source: str | None, target: str, flags: int) -> None:
    told = os.fsencode(source) if source is not None else None
    if libc.mount(told, os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
