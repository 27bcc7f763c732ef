"""What changed functions do where nothing tests them: in a process that knows no test runner, at another time.

The process is made before a test runner is loaded, and loads the changed modules when it is asked for results.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: PTH102, PTH118, PTH208, PTH211

from __future__ import annotations

import datetime
import importlib
import json
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import types
from typing import Any

from .behaviour import called, copied, described, timed
from .coverage import ROOT, relative
from .suites import FOLDER, Overlay

ANSWER_SEC = 6.0
LATER_SEC = 30 * 365 * 86400.0
"""How far ahead the clocks of such a process are."""
RUNNERS = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist", "execnet", "unittest", "doctest", "nose", "conftest"}
    | {"codepilot_inside", "codepilot_options", "codepilot_unittest", "sitecustomize", "pytest_cov", "pytest_mock"}
)
TESTED = re.compile(r"PYT|CODEPILOT|UNITTEST|TOX|NOX|CI$|GITHUB_|COV_|COVERAGE")
"""The beginnings of variables by which code would know that it is tested."""
OF_TESTS = re.compile(r"\.git|tests?$|testing$|specs?$|test_|conftest|.*_test\.|pytest|tox\.|noxfile|setup\.cfg")
"""Files and directories by which code would know the same."""
FUNCTION_SEC = 0.4
ALL_SEC = 2.0


class NoRunners:
    """Finds no module of a test runner, whatever is installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in RUNNERS:
            raise ModuleNotFoundError("there is no module named " + name, name=name)


class Outside:
    """A process without a test runner. `texts` stand in for files of the tree."""

    def __init__(self, texts: dict[str, str]) -> None:
        question, answer = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(question[1])
                os.close(answer[0])
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                with os.fdopen(question[0], "rb") as inward:
                    asked = pickle.load(inward)
                signal.alarm(int(ANSWER_SEC))
                with os.fdopen(answer[1], "wb") as outward:
                    outward.write(json.dumps(_answer(asked, texts)).encode())
            finally:
                os._exit(0)
        os.close(question[0])
        os.close(answer[1])
        self.inward, self.outward = answer[0], question[1]

    def ask(self, modules: list[str], calls: list[tuple[Any, list[bytes]]]) -> list[Any] | None:
        """How each function ends on each of its pickled inputs.

        None if the modules cannot be loaded there; empty if there was no answer.
        """
        with os.fdopen(self.outward, "wb") as pipe:
            pickle.dump({"path": list(sys.path), "modules": modules, "calls": calls}, pipe)
        pieces, until = [], time.monotonic() + ANSWER_SEC
        while select.select([self.inward], [], [], max(0.0, until - time.monotonic()))[0]:
            piece = os.read(self.inward, 1 << 16)
            if not piece:
                break
            pieces.append(piece)
        self.close()
        try:
            found: list[Any] | None = json.loads(b"".join(pieces))
        except ValueError:
            return []
        return found

    def close(self) -> None:
        os.close(self.inward)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _answer(asked: dict[str, Any], texts: dict[str, str]) -> list[Any] | None:
    _forget_runners()
    _move_clocks()
    elsewhere = _without_tests()
    inside = ROOT + os.sep
    moved = (elsewhere + path[len(ROOT) :] if (path + os.sep).startswith(inside) else path for path in asked["path"])
    sys.path[:] = filter(os.path.exists, moved)
    os.chdir(os.path.join(elsewhere, FOLDER))
    overlay = Overlay()
    for path, text in texts.items():
        overlay.put(path, text.encode())
    try:
        known = functions_of({name: importlib.import_module(name) for name in asked["modules"]})
    except BaseException:  # noqa: BLE001 - whatever the project's modules raise when they are loaded
        return None
    return all_ends(known, asked["calls"])


def all_ends(known: dict[Any, Any], calls: list[tuple[Any, list[bytes]]]) -> list[Any]:
    """How each function ends on each of its pickled inputs; None where that cannot be tried, or in time."""
    until = time.process_time() + ALL_SEC
    return [[_end(known.get(key), held, until) for held in inputs] for key, inputs in calls]


def _end(function: Any, held: bytes, until: float) -> Any:
    if function is None or time.process_time() > until:
        return None
    try:
        return list(ends(function, [pickle.loads(held)])[0])
    except Exception:  # noqa: BLE001 - values that cannot be made here
        return None


def _without_tests() -> str:
    """A folder that shows the tree without its tests, as a checkout of git."""
    top = tempfile.mkdtemp()
    _link(ROOT, top, [part for part in FOLDER.split("/") if part])
    os.mkdir(os.path.join(top, ".git"))
    return top


def _link(source: str, target: str, inner: list[str]) -> None:
    for name in os.listdir(source):
        if inner and name == inner[0]:
            os.mkdir(os.path.join(target, name))
            _link(os.path.join(source, name), os.path.join(target, name), inner[1:])
        elif not OF_TESTS.match(name):
            os.symlink(os.path.join(source, name), os.path.join(target, name))


def _forget_runners() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in RUNNERS]:
        del sys.modules[name]
    sys.meta_path.insert(0, NoRunners())
    sys.argv[:] = [""]
    for name in [name for name in os.environ if TESTED.match(name)]:
        del os.environ[name]


class _Alike(type):
    """Types that stand for one of `datetime`: its values are theirs."""

    real: Any

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.real)


def _move_clocks() -> None:
    """Set all clocks ahead, so that what depends on the date differs."""
    ahead = datetime.timedelta(seconds=LATER_SEC)
    clock, gmtime, localtime, strftime, ctime = time.time, time.gmtime, time.localtime, time.strftime, time.ctime

    def now() -> float:
        return clock() + LATER_SEC

    def moment(seconds: float | None) -> float:
        return now() if seconds is None else seconds

    named: dict[str, Any] = {
        "time": now,
        "time_ns": lambda: int(now() * 1e9),
        "gmtime": lambda seconds=None: gmtime(moment(seconds)),
        "localtime": lambda seconds=None: localtime(moment(seconds)),
        "ctime": lambda seconds=None: ctime(moment(seconds)),
        "strftime": lambda form, at=None: strftime(form, localtime(now()) if at is None else at),
    }
    vars(time).update(named)
    day, moments = datetime.date, datetime.datetime
    _stand_in("date", day, today=lambda: day.today() + ahead)
    later = {"today": lambda: moments.now() + ahead, "utcnow": lambda: moments.now() + ahead}
    _stand_in("datetime", moments, now=lambda tz=None: moments.now(tz) + ahead, **later)


def _stand_in(name: str, real: type, **methods: Any) -> None:
    members = {method: staticmethod(function) for method, function in methods.items()}
    setattr(datetime, name, _Alike(name, (real,), {"__module__": "datetime", "real": real, **members}))


# Functions ------------------------------------------------------------------------------------------


def ends(function: Any, inputs: list[tuple[Any, ...]]) -> list[tuple[str, str, str]]:
    """How the function ends on each input, with what, and what is left of its arguments; fewer if it is slow."""
    found: list[tuple[str, str, str]] = []
    until = time.process_time() + FUNCTION_SEC
    for values in inputs:
        if found and time.process_time() > until:
            return found
        given = tuple(copied(value) for value in values)
        ended, value = timed(lambda given=given: called(function, given), lambda: None)  # type: ignore[misc]
        try:
            found.append((ended, described(value), described(given) if ended == "returned" else ""))
        except Exception as error:  # noqa: BLE001 - a result that cannot be shown is known by its error
            found.append((ended, type(error).__name__, ""))
    return found


def functions_of(modules: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """The functions and methods that modules define, by path and qualified name."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in modules.items():
        path = relative(getattr(module, "__file__", None) or "") or ""
        waiting, known = [module], set()
        while waiting:
            for thing in list(vars(waiting.pop()).values()):
                thing = getattr(thing, "__func__", getattr(thing, "fget", thing))
                while hasattr(thing, "__wrapped__") and not isinstance(thing, type):
                    thing = thing.__wrapped__
                if getattr(thing, "__module__", None) != name or id(thing) in known:
                    continue
                known.add(id(thing))
                if isinstance(thing, types.FunctionType):
                    found[path, thing.__qualname__] = thing
                elif isinstance(thing, type):
                    waiting.append(thing)
    return found
