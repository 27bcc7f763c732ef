"""The pytest plugin that reports a run as frames. Loaded with `-p codepilot_plugin`; pytest 6 and newer."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codepilot.project.plugin import codepilot_frames as frames
else:
    import codepilot_frames as frames

CHANNEL = frames.Channel()
CACHE = Path(tempfile.gettempdir(), f"codepilot-cache-{os.getpid()}")
os.environ["CODEPILOT_CACHE"] = str(CACHE)

CALM: dict[str, Any] = {
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "cov_source": [],
    "randomly_reorganize": False,
    "randomly_seed": 0,
    "random_order_bucket": "none",
    "reruns": 0,
    "stepwise": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "usepdb": False,
    "xmlpath": None,
    "htmlpath": None,
}
"""Options of the project's that would split, reorder, repeat, cut short or litter the run."""


class Selection:
    """The tests asked for, matched by file, class, function or exact id, and what each one stood for."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = {_normal(name): name for name in asked}
        self.found: dict[str, list[str]] = {name: [] for name in asked}
        self.broken: list[str] = []

    def absent_files(self) -> list[str]:
        return [name for normal, name in self.asked.items() if not Path(normal.split("::")[0]).exists()]

    def takes(self, nodeid: str) -> bool:
        taken = False
        for part in _parts(nodeid):
            name = self.asked.get(part)
            if name is not None:
                self.found[name].append(_id(nodeid))
                taken = True
        return taken

    def absent(self) -> list[str]:
        """Requested names that match nothing, although all files that could hold them were collected."""
        return [
            name
            for normal, name in self.asked.items()
            if not self.found[name] and not any(_related(normal, broken) for broken in self.broken)
        ]


def _id(nodeid: str) -> str:
    return frames.short_id(frames.from_top(nodeid))


def _normal(name: str) -> str:
    path, mark, rest = frames.from_project(name).partition("::")
    path = os.path.normpath(path)
    if path.startswith(os.sep):
        path = os.path.relpath(os.path.realpath(path), os.path.realpath("."))
    return path.replace(os.sep, "/") + mark + rest


def _parts(nodeid: str) -> Iterator[str]:
    """The id itself and everything that contains it: function, class, file, directories."""
    yield nodeid
    path, _, rest = nodeid.partition("::")
    base, bracket, _ = rest.partition("[")
    if bracket:
        yield path + "::" + base
    while "::" in base:
        base = base.rpartition("::")[0]
        yield path + "::" + base
    if rest:
        yield path
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
    yield "."


def _related(asked: str, broken: str) -> bool:
    return broken in _parts(asked) or asked in _parts(broken)


SELECTION = Selection([str(name) for name in CHANNEL.header.get("tests", [])])
CHANNEL.send("start", runner="pytest", version=pytest.__version__)
CHANNEL.send_ids("missing", SELECTION.absent_files())


def _calm(options: Any) -> None:
    for name, value in CALM.items():
        if hasattr(options, name):
            setattr(options, name, value)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> Iterator[None]:
    _calm(early_config.known_args_namespace)
    outcome: Any = yield
    if outcome.excinfo is not None:
        _send_failure("startup", outcome.excinfo[1])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Iterator[None]:
    _calm(config.option)
    yield


def _send_failure(event: str, error: BaseException, **fields: Any) -> None:
    """A failure outside any test. Conftest and collection errors are reported by their cause."""
    wrapped = getattr(error, "cause", None)
    if not isinstance(wrapped, BaseException):
        info = getattr(error, "excinfo", None)
        wrapped = info[1] if isinstance(info, tuple) and len(info) == 3 else None
    if wrapped is None and type(error).__name__ == "CollectError":
        wrapped = error.__cause__
    source = wrapped if isinstance(wrapped, BaseException) else error
    fields.update(frames.describe(source), missing_module=frames.missing_module(source))
    CHANNEL.send(event, **fields)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: Any) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    call = report.__dict__.get("call")
    if report.failed and call is not None and call.excinfo is not None:
        report.codepilot_error = call.excinfo.value


def pytest_collectreport(report: Any) -> None:
    if not report.failed:
        return
    SELECTION.broken.append(report.nodeid)
    text = frames.clip(str(report.longreprtext), frames.MAX_TRACE)
    error = getattr(report, "codepilot_error", None) or RuntimeError(text)
    _send_failure("collect_error", error, id=_id(report.nodeid or "."), traceback=text)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> Iterator[None]:
    yield
    if not SELECTION.asked:
        return
    kept = [item for item in items if SELECTION.takes(item.nodeid)]
    absent = SELECTION.absent()
    CHANNEL.send_ids("missing", absent)
    if absent:
        kept = []
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


def pytest_collection_finish(session: Any) -> None:
    CHANNEL.send_ids("collected", [_id(item.nodeid) for item in session.items])
    for asked, ids in SELECTION.found.items():
        CHANNEL.send("resolved", asked=asked, ids=ids[:1000])


def pytest_runtest_logstart(nodeid: str) -> None:
    CHANNEL.send("run", id=_id(nodeid))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: Any) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed and call.excinfo is not None:
        report.codepilot_error = frames.describe(call.excinfo.value)


def pytest_runtest_logreport(report: Any) -> None:
    subtest = hasattr(report, "context")
    if report.outcome != "failed" and (subtest or (report.outcome == "passed" and report.when != "call")):
        return
    fields = {"error_type": "", "message": "", "traceback": ""}
    if report.outcome == "failed":
        fields["error_type"] = "Failed"
        fields["message"] = frames.clip(str(report.longreprtext), frames.MAX_MESSAGE)
        fields.update(getattr(report, "codepilot_error", {}))
        fields["traceback"] = _traceback(report)
    elif report.outcome == "skipped":
        fields["message"] = frames.clip(_reason(report), frames.MAX_MESSAGE)
    CHANNEL.send(
        "test",
        id=_id(report.nodeid),
        outcome=report.outcome,
        phase=report.when,
        xfail=hasattr(report, "wasxfail"),
        duration=report.duration,
        **fields,
    )


def _traceback(report: Any) -> str:
    text = str(report.longreprtext)
    for title, content in report.sections:
        text += f"\n----- {title} -----\n{frames.clip(content, 3000)}"
    return frames.clip(text, frames.MAX_TRACE)


def _reason(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return "expected to fail: " + str(report.wasxfail)
    if isinstance(report.longrepr, tuple) and len(report.longrepr) == 3:
        return str(report.longrepr[2])
    return str(report.longreprtext)


def pytest_internalerror(excrepr: Any, excinfo: Any) -> None:
    _send_failure("internal", excinfo.value, traceback=frames.clip(str(excrepr), frames.MAX_TRACE))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(exitstatus: Any) -> None:
    CHANNEL.send("end", exit_code=int(exitstatus))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    shutil.rmtree(CACHE, ignore_errors=True)
