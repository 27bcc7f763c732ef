"""Measures which lines of the program the tests run. Loaded with `-p codepilot_cover`; standard library only.

At the end it writes `{"run": n, "lines": n}` to the file that `CODEPILOT_COVERAGE` names. It is evidence, not a gate.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

ROOT = str(Path.cwd()) + os.sep
MAX_FILES = 500
RUN: dict[str, set[int]] = {}
_OURS: dict[str, bool] = {}


def _is_ours(filename: str) -> bool:
    known = _OURS.get(filename)
    if known is None:
        known = _OURS[filename] = filename.startswith(ROOT) and is_product(filename[len(ROOT) :])
    return known


def is_product(path: str) -> bool:
    """True for the program's own files; tests, caches and installed packages do not count."""
    parts = path.split("/")
    if any(part.startswith(".") or part in ("tests", "test", "site-packages", "__pycache__") for part in parts[:-1]):
        return False
    return not (parts[-1].startswith("test_") or parts[-1].endswith("_test.py") or parts[-1] == "conftest.py")


def _global_trace(frame: Any, event: str, arg: Any) -> Any:
    if not _is_ours(frame.f_code.co_filename):
        return None
    lines = RUN.setdefault(frame.f_code.co_filename, set())
    lines.add(frame.f_lineno)

    def local(inner: Any, kind: str, given: Any) -> Any:
        if kind == "line":
            lines.add(inner.f_lineno)
        return local

    return local


def start() -> None:
    """Watch lines by `sys.monitoring` where there is one, else by tracing."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        threading.settrace(_global_trace)
        sys.settrace(_global_trace)
        return

    def on_line(code: CodeType, line: int) -> Any:
        if _is_ours(code.co_filename):
            RUN.setdefault(code.co_filename, set()).add(line)
        return monitoring.DISABLE

    monitoring.use_tool_id(monitoring.COVERAGE_ID, "codepilot")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, on_line)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)


def _lines(code: CodeType) -> Iterator[int]:
    """The lines of a file that hold code."""
    found = (line for _, _, line in code.co_lines() if line)
    yield from found
    for inner in code.co_consts:
        if hasattr(inner, "co_lines"):
            yield from _lines(inner)


def measure() -> dict[str, int]:
    """Compare what ran with what could have run, over all files of the program."""
    run = lines = seen = 0
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if not name.startswith(".") and name not in ("node_modules", "venv")]
        for name in files:
            path = os.path.join(folder, name)  # noqa: PTH118 - as cheap as it can be
            if not name.endswith(".py") or not is_product(path[len(ROOT) :]) or seen >= MAX_FILES:
                continue
            seen += 1
            try:
                whole = set(_lines(compile(Path(path).read_bytes(), path, "exec")))
            except (SyntaxError, ValueError, OSError, RecursionError, AttributeError):
                continue
            lines += len(whole)
            run += len(whole & RUN.get(path, set()))
    return {"run": run, "lines": lines}


def pytest_unconfigure(config: Any) -> None:
    target = os.environ.get("CODEPILOT_COVERAGE")
    if target:
        sys.settrace(None)
        Path(target).write_text(json.dumps(measure()), encoding="utf-8")


if os.environ.get("CODEPILOT_COVERAGE"):
    start()
