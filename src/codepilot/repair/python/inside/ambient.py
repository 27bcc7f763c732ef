"""Detects calls that depend on the environment: a test of such a call would hold only here, or only now.

Seen are functions of C that Python code calls, what the interpreter audits, and names of the interpreter's own state in
the project's code. Not seen is what was read while modules were imported, and what C code asks of other C code.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: PTH111

from __future__ import annotations

import functools
import gc
import linecache
import logging
import os
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any

from .coverage import ROOT, relative

ASKING = ("posix", "nt", "time", "_socket", "_locale", "_posixsubprocess", "pwd", "grp", "resource", "select", "_uuid")
"""Modules of C whose functions answer about the machine or the moment."""
PURE = frozenset(["fspath", "_path_normpath", "_path_splitroot", "_path_splitroot_ex", "strerror", "WEXITSTATUS"])
CLOCK = frozenset(["now", "today", "utcnow", "fromtimestamp", "timestamp", "astimezone"])
STARTED = frozenset(["start_new_thread", "start_joinable_thread"])
PYTHON = frozenset(["platform", "locale", "getpass", "tempfile", "sysconfig"])
STATE = frozenset(["version_info", "hexversion", "platform", "argv", "executable", "maxsize", "byteorder"])
AUDITED = ("open", "os.", "socket.", "subprocess.", "glob.", "sqlite3.connect", "builtins.input", "ctypes.dlopen")
EXCUSED = frozenset(module.__file__ for module in (logging, linecache, traceback, warnings))
"""Functions that only report a call and do not affect its result."""
MAX_DEPTH = 200


class World:
    """Notes whether what runs while it watches asks for anything that is not in its arguments."""

    def __init__(self) -> None:
        self.asked = False
        self.on = False
        self.environment = {
            getattr(vars(type(os.environ)).get(name), "__code__", None)
            for name in ("__getitem__", "__iter__", "__len__", "__setitem__", "__delitem__")
        }
        self.random = getattr(random, "_inst", None)
        self.caches = [one for one in gc.get_objects() if type(one) is functools._lru_cache_wrapper]
        sys.addaudithook(self._audited)

    def __enter__(self) -> World:
        for cache in self.caches:
            cache.cache_clear()
        self.asked, self.on = False, True
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self.on = False

    def _event(self, frame: Any, event: str, called: Any) -> None:
        if self.asked:
            return
        if event == "c_call":
            self.asked = self._asks(called) and not excused(frame)
        elif event == "call":
            code = frame.f_code
            self.asked = code in self.environment or self._state(frame) or frame.f_globals.get("__name__") in PYTHON
            self.asked = self.asked and not excused(frame)

    def _asks(self, called: Any) -> bool:
        module, name, owner = (getattr(called, key, None) for key in ("__module__", "__name__", "__self__"))
        if module in ASKING:
            return name not in PURE
        if name in CLOCK:
            return getattr(owner if isinstance(owner, type) else type(owner), "__module__", None) == "datetime"
        return name in STARTED or (owner is not None and owner is self.random)

    def _state(self, frame: Any) -> bool:
        """True if code of the project names what belongs to this interpreter or this place."""
        code = frame.f_code
        if relative(code.co_filename) is None:
            return False
        names, known = code.co_names, frame.f_globals
        if "__file__" in names:
            return True
        here = [name for name in names if name in STATE]
        return any(known.get(name) is getattr(sys, name) for name in here) or (
            bool(here) and any(known.get(name) is sys for name in names)
        )

    def _audited(self, event: str, _: object) -> None:
        if self.on and not self.asked and event.startswith(AUDITED):
            self.asked = not excused(sys._getframe(1))


def excused(frame: Any) -> bool:
    """True if the call is part of an import, a log or a warning."""
    for _ in range(MAX_DEPTH):
        if frame is None:
            return False
        name = frame.f_code.co_filename
        if name in EXCUSED or name.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def move() -> None:
    """Go to another home in another zone, before anything of the project is imported."""
    home = tempfile.mkdtemp()
    os.environ.update(HOME=home, USER="someone", LOGNAME="someone", TZ="Asia/Kathmandu", LANG="C", COLUMNS="43")
    time.tzset()


class Here:
    """The names that only this place has."""

    def __init__(self) -> None:
        places = [ROOT, os.path.expanduser("~"), tempfile.gettempdir(), sys.prefix, sys.base_prefix, *_mentioned()]
        spelled = {spelling.rstrip(os.sep) for place in places for spelling in (place, os.path.realpath(place))}
        self.places = [place for place in spelled if len(place) > 1]
        self.names = [name for name in (os.uname().nodename, *map(os.environ.get, ("USER", "LOGNAME"))) if name]

    def named(self, arguments: str, result: str) -> bool:
        """True if the values, as source, name a place; or the result a host or user that nobody gave it."""
        texts = (arguments, result)
        if any(re.search(re.escape(place) + r"(?![\w.-])", text) for place in self.places for text in texts):
            return True
        return any(
            re.search(r"(?<!\w)" + re.escape(name) + r"(?!\w)", result) and name not in arguments for name in self.names
        )


def _mentioned() -> list[str]:
    return [os.environ[name] for name in ("HOME", "TMPDIR", "TMP", "TEMP", "VIRTUAL_ENV") if os.environ.get(name)]
