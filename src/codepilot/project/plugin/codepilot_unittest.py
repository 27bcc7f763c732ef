"""Runs a unittest suite and reports it as frames: `python -m codepilot_unittest` from the project's root.

Needs Python 3.8 or newer and the standard library alone. Test ids are those that `python -m unittest` takes.
It is started for every run of a suite: modules that take long to read (`pathlib`, `tempfile`, `typing`) are left out.
"""

from __future__ import annotations

import faulthandler
import fnmatch
import importlib
import importlib.util
import os
import sys
import time
import traceback
import unittest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from codepilot.project.plugin import codepilot_django as django
    from codepilot.project.plugin import codepilot_frames as frames
else:
    import codepilot_django as django
    import codepilot_frames as frames

TESTISH = ("test", "tests", "testing", "unittests", "unit_tests")
PRUNED = ("node_modules", "build", "dist", "site-packages", "__pycache__", "venv", "env", "fixtures", "testdata")


class Module:
    """A file of tests, its name for import, and the directory that must be importable for it."""

    def __init__(self, path: str) -> None:
        self.path = path
        folder, base = os.path.split(path)
        parts = [part for part in folder.split("/") if part]
        self.top = "."
        if parts and parts[0] == "src":
            self.top, parts = "src", parts[1:]
        stem = base[:-3]
        if all(part.isidentifier() for part in parts):
            self.name = ".".join([*parts, stem])
        else:
            self.top, self.name = folder or ".", stem

    def load(self) -> Any:
        for folder in (os.path.dirname(self.path), self.top):
            absolute = os.getcwd() if folder in ("", ".") else os.path.join(os.getcwd(), folder)
            if absolute not in sys.path:
                sys.path.insert(1, absolute)
        module = importlib.import_module(self.name)
        if _same(getattr(module, "__file__", None), self.path):
            return module
        spec = importlib.util.spec_from_file_location(self.name, self.path)
        if spec is None or spec.loader is None:
            raise ImportError("cannot load " + self.path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.name] = module
        spec.loader.exec_module(module)
        return module


def _same(one: str | None, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


def find_modules() -> list[Module]:
    """The modules that `unittest discover` finds from the root, and from test directories without `__init__.py`."""
    found: list[Module] = []
    for folder, names, files in os.walk("."):
        inner = folder[2:] + "/" if folder != "." else ""
        names[:] = sorted(name for name in names if _enters(inner + name))
        for name in sorted(files):
            if fnmatch.fnmatch(name, "test*.py") and name[:-3].isidentifier():
                found.append(Module(inner + name))
    return found


def _enters(folder: str) -> bool:
    parts = folder.split("/")
    if parts[-1].startswith(".") or parts[-1] in PRUNED or os.path.exists(folder + "/pyvenv.cfg"):
        return False
    package = os.path.exists(folder + "/__init__.py")
    return package or folder == "src" or any(part in TESTISH for part in parts)


def dotted(name: str) -> str:
    """`tests/test_x.py::TestY::test_z` as unittest names it."""
    path, _, rest = frames.from_project(name).partition("::")
    if path.endswith(".py"):
        path = Module(os.path.relpath(path, ".").replace(os.sep, "/")).name
    elif "/" in path:
        path = os.path.relpath(path, ".").replace("/", ".")
    return ".".join([path, *rest.split("::")]) if rest else path


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(outer + ".")


class Plan:
    """Selects the modules to load and the tests to keep for the requested names."""

    def __init__(self, asked: list[str], modules: list[Module]) -> None:
        self.names = {name: dotted(name) for name in asked}
        self.found: dict[str, list[str]] = {name: [] for name in asked}
        self.modules = modules
        for name, wanted in self.names.items():
            if any(self._touches(module, wanted) for module in modules):
                continue
            alias = [m.name + wanted[len(m.name.rpartition(".")[2]) :] for m in modules if _ends(m, wanted)]
            if len(alias) == 1:
                self.names[name] = alias[0]
            else:
                modules.extend(_by_file(wanted))

    @staticmethod
    def _touches(module: Module, wanted: str) -> bool:
        return _within(wanted, module.name) or _within(module.name, wanted)

    def loads(self) -> list[Module]:
        if not self.names:
            return self.modules
        return [m for m in self.modules if any(self._touches(m, wanted) for wanted in self.names.values())]

    def keeps(self, test_id: str) -> bool:
        kept = not self.names
        for name, wanted in self.names.items():
            if _within(test_id, wanted):
                self.found[name].append(test_id)
                kept = True
        return kept

    def absent(self, broken: list[str]) -> list[str]:
        return [
            name
            for name, wanted in self.names.items()
            if not self.found[name] and not any(_within(wanted, b) or _within(b, wanted) for b in broken)
        ]


def _ends(module: Module, wanted: str) -> bool:
    return _within(wanted, module.name.rpartition(".")[2])


def _by_file(wanted: str) -> list[Module]:
    parts = wanted.split(".")
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end]) + ".py"
        if os.path.isfile(path):
            return [Module(path)]
    return []


def _nameless_file() -> int:
    try:
        return os.open(os.environ.get("TMPDIR", "/tmp"), os.O_RDWR | os.O_TMPFILE, 0o600)
    except OSError:  # not every file system has such files
        import tempfile

        return os.dup(tempfile.TemporaryFile().fileno())


class Output:
    """Output of tests, kept out of the log and attached to failures."""

    def __init__(self) -> None:
        self._log = os.dup(2)
        self._file = _nameless_file()
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)
        faulthandler.enable(file=self._log)

    def log(self, line: str) -> None:
        os.write(self._log, (line + "\n").encode("utf-8", "backslashreplace"))

    def clear(self) -> None:
        self._flush()
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)

    def tail(self, size: int = 3000) -> str:
        self._flush()
        end = os.fstat(self._file).st_size
        data = os.pread(self._file, size, max(0, end - size))
        return data.decode("utf-8", "replace")

    def release(self) -> None:
        self._flush()
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    @staticmethod
    def _flush() -> None:
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None and not stream.closed:
                stream.flush()


class Result(unittest.TestResult):
    """Sends every test's end as it happens."""

    def __init__(self, channel: frames.Channel, output: Output, collected: list[str]) -> None:
        super().__init__()
        self._channel = channel
        self._output = output
        self._collected = collected
        self._started = time.perf_counter()

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self._output.clear()
        self._started = time.perf_counter()
        self._channel.send("run", id=frames.short_id(test.id()))

    def _send(self, test: Any, outcome: str, phase: str = "call", xfail: bool = False, **fields: Any) -> None:
        ids = self._ids(test.id())
        for test_id in ids:
            self._output.log(f"{test_id} ... {outcome}")
            self._channel.send(
                "test",
                id=frames.short_id(test_id),
                outcome=outcome,
                phase=phase,
                xfail=xfail,
                duration=time.perf_counter() - self._started,
                **fields,
            )

    def _ids(self, test_id: str) -> list[str]:
        """A fixture of a class or module speaks for every test in it."""
        for fixture in ("setUpClass (", "setUpModule ("):
            if test_id.startswith(fixture):
                owner = test_id[len(fixture) : -1]
                return [name for name in self._collected if _within(name, owner)] or [owner]
        for fixture in ("tearDownClass (", "tearDownModule ("):
            if test_id.startswith(fixture):
                return [test_id[len(fixture) : -1]]
        return [test_id]

    def _red(self, test: Any, err: Any, phase: str, title: str = "") -> None:
        error = err[1]
        text = "".join(traceback.format_exception(err[0], error, err[2]))
        printed = self._output.tail()
        if printed:
            text += "\n----- captured output -----\n" + printed
        fields: dict[str, Any] = frames.describe(error)
        if title:
            fields["message"] = title + " " + fields["message"]
        self._output.log(text)
        self._send(test, "failed", phase, traceback=frames.clip(text, frames.MAX_TRACE), **fields)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        self._send(test, "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._red(test, err, "call")

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self._red(test, err, "call" if isinstance(test, unittest.TestCase) else "setup")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._red(test, err, "call", title=subtest.id()[len(test.id()) :].strip())

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._send(test, "skipped", message=frames.clip(str(reason), frames.MAX_MESSAGE))

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addExpectedFailure(test, err)
        self._send(test, "skipped", xfail=True, message="expected to fail")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addUnexpectedSuccess(test)
        self._send(test, "failed", error_type="UnexpectedSuccess", message="expected to fail, but passed")


def flatten(suite: Any) -> Iterator[Any]:
    if isinstance(suite, unittest.TestSuite):
        for part in suite:
            yield from flatten(part)
    else:
        yield suite


class Session:
    """Collect, run, report."""

    def __init__(self, channel: frames.Channel, output: Output) -> None:
        self._channel = channel
        self._output = output
        self._broken: list[str] = []
        self._skipped: list[str] = []

    def run(self) -> int:
        asked = [str(name) for name in self._channel.header.get("tests", [])]
        django.prepare()
        plan = Plan(asked, find_modules())
        tests = self._collect(plan)
        absent = plan.absent(self._broken + self._skipped)
        self._channel.send_ids("missing", absent)
        if absent:
            return 4
        collected = list(tests)
        self._channel.send_ids("collected", [frames.short_id(name) for name in collected])
        for name, ids in plan.found.items():
            self._channel.send("resolved", asked=name, ids=[frames.short_id(one) for one in ids[:1000]])
        result = Result(self._channel, self._output, collected)
        unittest.TestSuite(tests.values()).run(result)
        if self._broken or not result.wasSuccessful():
            return 1
        return 0 if collected or self._skipped else 5

    def _collect(self, plan: Plan) -> dict[str, Any]:
        loader = unittest.TestLoader()
        tests: dict[str, Any] = {}
        for module in plan.loads():
            for test in self._load(loader, module):
                if plan.keeps(test.id()):
                    tests.setdefault(test.id(), test)
        return tests

    def _load(self, loader: unittest.TestLoader, module: Module) -> list[Any]:
        try:
            loaded = list(flatten(loader.loadTestsFromModule(module.load())))
        except unittest.SkipTest as skip:
            self._skip(module, str(skip))
            return []
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of the module's is a fact to report
            self._break(module, error)
            return []
        return loaded

    def _skip(self, module: Module, reason: str) -> None:
        self._output.log(module.name + " ... skipped")
        self._skipped.append(module.name)
        self._channel.send("test", id=module.name, outcome="skipped", phase="setup", message=reason[:1000])

    def _break(self, module: Module, error: BaseException) -> None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._output.log(module.path + " could not be loaded\n" + text)
        self._broken.append(module.name)
        self._channel.send(
            "collect_error",
            id=module.name,
            traceback=frames.clip(text, frames.MAX_TRACE),
            missing_module=frames.missing_module(error),
            **frames.describe(error),
        )


def main() -> int:
    channel = frames.Channel()
    channel.send("start", runner="unittest", version=".".join(map(str, sys.version_info[:3])))
    output = Output()
    try:
        code = Session(channel, output).run()
    finally:
        output.release()
    channel.send("end", exit_code=code)
    return code


if __name__ == "__main__":
    sys.exit(main())
