"""The project's tests, collected once and run one by one, under pytest or unittest.

Runs inside the sandbox; standard library and the project's own runner alone, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.machinery
import inspect
import os
import pathlib
import sys
import traceback
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .coverage import ROOT

FOLDER = os.environ.get("CODEPILOT_FOLDER", "")
"""The project's directory in the repository. Test ids begin at the repository's top, those of pytest at the project."""

CALM: dict[str, Any] = {
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "cov_source": [],
    "no_cov": True,
    "randomly_reorganize": False,
    "random_order_bucket": "none",
    "reruns": 0,
    "stepwise": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "usepdb": False,
    "xmlpath": None,
    "htmlpath": None,
    "maxfail": 0,
}
"""Options of the project's that would split, reorder, repeat, cut short or litter the run."""


HARMLESS = ("_pytest.", "pytest_timeout", "_hypothesis_pytestplugin", "xdist.", "pytest_cov.", "pytest_metadata")
"""Plugins whose hooks around a test only report, measure or limit it."""
UNPLAIN = ("xfail", "filterwarnings")
"""Marks that change how a test's outcome is reported."""
AROUND = ("pytest_runtest_protocol", "pytest_runtest_makereport", "pytest_runtest_logreport")


class Overlay:
    """Contents that stand in for files of the project whenever those are imported; the rest is compiled once."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.codes: dict[str, tuple[Any, Any]] = {}
        """The content and code of files that were loaded before."""

    def remember(self, paths: Sequence[str]) -> None:
        """Compile what every child would compile for itself."""
        for filename in (f"{ROOT}/{path}" for path in paths):
            try:
                stamp = _stamp(filename)
                self.codes[filename] = stamp, compile(pathlib.Path(filename).read_bytes(), filename, "exec", 0, True)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                continue  # importing it raises the error

    def put(self, path: str, data: bytes) -> None:
        loader: Any = importlib.machinery.SourceFileLoader
        if not self.files:
            plain = loader.get_code

            def get_code(this: Any, fullname: str) -> Any:
                filename = this.get_filename(fullname)
                found = self.files.get(os.path.realpath(filename))
                if found is not None:
                    return compile(found, filename, "exec", dont_inherit=True)
                stamp, code = self.codes.get(filename, (None, None))
                return code if code is not None and stamp == _stamp(filename) else plain(this, fullname)

            loader.get_code = get_code
        self.files[f"{ROOT}/{path}"] = data


def _stamp(filename: str) -> tuple[int, int, int]:
    status = os.stat(filename)  # noqa: PTH116 - as the importer names it
    return status.st_size, status.st_mtime_ns, status.st_ino


def _from_top(nodeid: str) -> str:
    path, mark, rest = nodeid.partition("::")
    return os.path.normpath(f"{FOLDER}/{path}") + mark + rest if FOLDER else nodeid


def _from_project(name: str) -> str:
    return name[len(FOLDER) + 1 :] if FOLDER and name.startswith(FOLDER + "/") else name


class PytestSuite:
    """A pytest session held open before its first test; also the plugin that holds it."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.broken: list[str] = []
        self.session: Any = None
        self.plain = False
        self.filters: tuple[list[str], list[str]] = ([], [])
        """The warning filters of the project and its command line."""
        self.results_key: Any = None
        """The key under which `tmp_path` looks for a test's report."""
        self.outcomes: list[str] = []
        self.error: BaseException | None = None
        self.names: dict[str, dict[str, Any]] = {}
        """The names that the examples of a docstring use. Running them empties that dictionary."""

    def open(self, tests: Sequence[str], then: Callable[[], None], whole: bool = False) -> None:
        """Collect the tests, or with `whole` everything in their files, and call `then` before any is run."""
        import pytest

        self.then, self.whole = then, whole
        self.wanted = set(tests)
        self.places = list(dict.fromkeys(_from_project(name).partition("::")[0] for name in tests))
        fixed = ["-s", "--rootdir=.", "--continue-on-collection-errors", "--tb=native", "--assert=plain"]
        for unneeded in ("cacheprovider", "unraisableexception", "threadexception", "faulthandler"):
            fixed += ["-p", "no:" + unneeded]
        hooks: Any = type(self)
        hooks.pytest_runtestloop = pytest.hookimpl(tryfirst=True)(hooks._loop)
        hooks.pytest_cmdline_main = pytest.hookimpl(tryfirst=True)(hooks._main)
        hooks.pytest_load_initial_conftests = pytest.hookimpl(tryfirst=True)(hooks._early)
        pytest.main([*fixed, *self.places], plugins=[self, importlib.import_module("codepilot_options")])

    def _early(self, early_config: Any) -> None:
        self._calm(early_config.known_args_namespace)

    def _main(self, config: Any) -> None:
        self._calm(config.option)
        # The project's own options may name more, which would be collected for nothing.
        config.args = self.places

    @staticmethod
    def _calm(options: Any) -> None:
        for name, value in CALM.items():
            if hasattr(options, name):
                setattr(options, name, value)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.broken.append(str(report.longrepr)[-2000:])

    def _loop(self, session: Any) -> bool:
        self.session = session
        named = {_from_top(item.nodeid): item for item in session.items}
        self.items = {name: item for name, item in named.items() if self.whole or name in self.wanted}
        for item in self.items.values():
            item.repr_failure = lambda *_, **__: "failed"
        self.names = {name: dict(item.dtest.globs) for name, item in self.items.items() if hasattr(item, "dtest")}
        self.plain = self._may_be_plain(session.config)
        self.then()
        return True

    def _may_be_plain(self, config: Any) -> bool:
        """True if the test's outcome depends only on the test and its fixtures."""
        self.filters = config.getini("filterwarnings"), config.option.pythonwarnings or []
        if any(self.filters) and not hasattr(importlib.import_module("_pytest.config"), "apply_warning_filters"):
            return False
        plugins = [impl.plugin for name in AROUND for impl in getattr(config.hook, name).get_hookimpls()]
        names = [getattr(plugin, "__name__", type(plugin).__module__) + "." for plugin in plugins if plugin is not self]
        plain = all(name.startswith(HARMLESS) for name in names)
        self.results_key = getattr(config.pluginmanager.get_plugin("tmpdir"), "tmppath_result_key", None)
        logs = config.pluginmanager.get_plugin("logging-plugin")
        listens = config.getini("log_level") or config.getini("log_cli") or config.option.log_level
        listens = listens or any("caplog" in getattr(item, "fixturenames", ()) for item in self.items.values())
        if plain and logs and not listens:
            config.pluginmanager.unregister(logs)
        return plain

    def quick(self, name: str) -> Callable[[], object] | None:
        """The test as a plain call, if nothing but its function decides its outcome; else None."""
        item = self.items[name]
        info, spec = getattr(item, "_fixtureinfo", None), getattr(item, "callspec", None)
        if type(item).__name__ != "Function" or info is None or inspect.iscoroutinefunction(item.obj):
            return None
        if inspect.isgeneratorfunction(item.obj) or any(mark.name != "parametrize" for mark in item.iter_markers()):
            return None
        values = {**getattr(spec, "funcargs", {}), **getattr(spec, "params", {})}
        for wanted in info.names_closure:
            makers = [getattr(maker, "func", None) for maker in info.name2fixturedefs.get(wanted) or ()]
            direct = all(getattr(maker, "__name__", "") == "get_direct_param_fixture_func" for maker in makers)
            if wanted not in values or not direct:
                return None
        values = {wanted: values[wanted] for wanted in info.argnames}
        owner = getattr(item.obj, "__self__", None)
        if owner is None:
            return functools.partial(item.obj, **values)
        return lambda: getattr(type(owner)(), item.obj.__name__)(**copy.deepcopy(values))

    def private(self, folder: str) -> None:
        """Temporary directories of tests go below `folder`."""
        factory = getattr(self.session.config, "_tmp_path_factory", None)
        if factory is not None:
            factory._basetemp = pathlib.Path(folder)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is not None and self.error is None:
            self.error = call.excinfo.value

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.outcomes.append(report.outcome)

    def run(self, name: str, following: str | None = None, thorough: bool = True) -> tuple[str, BaseException | None]:
        """One test as its runner runs it; what it shares with the `following` one is kept.

        Unless it must be `thorough`, nothing is reported, where that changes nothing.
        """
        item = self.items[name]
        if name in self.names:
            item.dtest.globs.update(self.names[name])
        if not thorough and self.plain and not any(mark.name in UNPLAIN for mark in item.iter_markers()):
            return self._run_plain(item, self.items.get(following or ""))
        self.outcomes, self.error = [], None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following or ""))
        for outcome in ("failed", "skipped"):
            if outcome in self.outcomes:
                return outcome, self.error
        return "passed", None

    def within(self, name: str, action: Callable[[], None]) -> None:
        """Call `action` in the place of a test's function, with all that the runner puts around it."""
        item = self.items[name]
        function, item.obj = item.obj, lambda *_, **__: action()
        try:
            self.run(name)
        finally:
            item.obj = function

    def _run_plain(self, item: Any, following: Any) -> tuple[str, BaseException | None]:
        """Set up, call, tear down: all that the runner does but its reports."""
        if hasattr(item, "_request") and not item._request:
            item._initrequest()
        if self.results_key is not None:
            item.stash[self.results_key] = {}
        error: BaseException | None = None
        with self._filtered() if any(self.filters) else contextlib.nullcontext():
            try:
                item.ihook.pytest_runtest_setup(item=item)
                item.ihook.pytest_runtest_call(item=item)
            except BaseException as raised:  # noqa: BLE001 - as the runner does
                error = raised
            try:
                item.ihook.pytest_runtest_teardown(item=item, nextitem=following)
            except BaseException as raised:  # noqa: BLE001 - as the runner does
                error = error or raised
            finally:
                if hasattr(item, "_request"):
                    item._request, item.funcargs = False, None
        # Where test cases of unittest leave what they raised.
        left = item.__dict__.pop("_excinfo", None)
        error = error or (left[0].value if left else None)
        if error is None:
            return "passed", None
        return ("skipped" if type(error).__name__ in ("Skipped", "SkipTest") else "failed"), error

    @contextlib.contextmanager
    def _filtered(self) -> Iterator[None]:
        """Show, ignore or raise warnings as the runner does."""
        with warnings.catch_warnings(record=True):
            if not sys.warnoptions:
                warnings.filterwarnings("always", category=DeprecationWarning)
                warnings.filterwarnings("always", category=PendingDeprecationWarning)
            importlib.import_module("_pytest.config").apply_warning_filters(*self.filters)
            yield


class UnittestSuite:
    """Test cases loaded once and run one by one."""

    def __init__(self) -> None:
        self.items: dict[str, Any] = {}
        self.broken: list[str] = []

    def open(self, tests: Sequence[str], then: Callable[[], None], whole: bool = False) -> None:
        finder: Any = importlib.import_module("codepilot_unittest")
        finder.django.prepare()
        plan = finder.Plan(list(tests), finder.find_modules())
        wanted, loader = set(tests), unittest.TestLoader()
        for module in plan.loads():
            try:
                found = list(finder.flatten(loader.loadTestsFromModule(module.load())))
            except (Exception, SystemExit):  # noqa: BLE001 - whatever a test module raises is a fact to report
                self.broken.append(traceback.format_exc()[-2000:])
                continue
            self.items.update({test.id(): test for test in found if whole or test.id() in wanted})
        then()

    def quick(self, name: str) -> Callable[[], object] | None:
        return None

    def private(self, folder: str) -> None:
        """unittest has no directory of its own."""

    def run(self, name: str, following: str | None = None, thorough: bool = True) -> tuple[str, BaseException | None]:
        result = OneResult()
        unittest.TestSuite([copy.copy(self.items[name])]).run(result)
        return result.outcome, result.error

    def within(self, name: str, action: Callable[[], None]) -> None:
        case = copy.copy(self.items[name])
        setattr(case, case._testMethodName, action)
        case.run(OneResult())


class OneResult(unittest.TestResult):
    """How a single test ended."""

    outcome = "passed"
    error: BaseException | None = None

    def _bad(self, error: Any) -> None:
        self.outcome = "failed"
        self.error = self.error or error[1]

    def addError(self, test: Any, error: Any) -> None:  # noqa: N802
        self._bad(error)

    def addFailure(self, test: Any, error: Any) -> None:  # noqa: N802
        self._bad(error)

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:  # noqa: N802
        if error is not None:
            self._bad(error)

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
        self.outcome = "failed"

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        self.outcome = "skipped" if self.outcome == "passed" else self.outcome

    def addExpectedFailure(self, test: Any, error: Any) -> None:  # noqa: N802
        self.outcome = "skipped"
