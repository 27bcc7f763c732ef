"""The channel to the host; compiles and calls single functions and tests, and reports how they ended.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations
import __future__

import json
import os
import types
from collections.abc import Callable
from typing import Any

from .coverage import relative

MAX_FRAMES = 40


class Channel:
    """The host's two pipes, moved out of the way of everything else that runs here."""

    def __init__(self) -> None:
        self.inward = os.fdopen(os.dup(0), "rb")
        self.outward = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)

    def read(self) -> Any:
        line = self.inward.readline()
        return json.loads(line) if line else None

    def send(self, **message: Any) -> None:
        self.outward.write(json.dumps(message).encode() + b"\n")
        self.outward.flush()


def call(quick: Callable[[], object]) -> tuple[str, BaseException | None]:
    try:
        quick()
    except Exception as error:  # noqa: BLE001 - whatever a test raises is its end
        return "failed", error
    return "passed", None


def reach(error: BaseException | None) -> dict[str, Any]:
    """The exception's name, and the lines of the test's own file that it passed through."""
    place = error.__traceback__ if error is not None else None
    lines, file = [], None
    while place is not None:
        path = relative(place.tb_frame.f_code.co_filename)
        if path is not None and path == (file or path):
            file = path
            lines.append(place.tb_lineno)
        place = place.tb_next
    return {"kind": type(error).__name__, "lines": lines[:3]}


def failure(error: BaseException | None) -> dict[str, Any]:
    """The exception's name and message, and the places of the project it passed through."""
    frames, place = [], error.__traceback__ if error is not None else None
    while place is not None:
        path = relative(place.tb_frame.f_code.co_filename)
        if path is not None:
            frames.append([path, place.tb_lineno])
        place = place.tb_next
    try:
        message = str(error)[:500] if error is not None else ""
    except Exception:  # noqa: BLE001 - an exception of the project's may fail even at this
        message = ""
    kind = type(error).__name__ if error is not None else ""
    return {"exception": kind, "message": message, "frames": frames[-MAX_FRAMES:]}


def compile_text(text: str, unit: dict[str, Any], filename: str) -> Any:
    """The code of the unit's function in this text, with the line numbers it has in its file."""
    flags = 0
    for name in unit["future"]:
        flags |= getattr(__future__, name).compiler_flag
    code: Any = compile(text, filename, "exec", flags=flags, dont_inherit=True)
    for part in unit["qualname"].split("."):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == part)
    return _moved(code, unit["shift"])


def _moved(code: Any, lines: int) -> Any:
    """The same code further down: all line numbers in it are relative to its first."""
    inner = tuple(_moved(one, lines) if isinstance(one, types.CodeType) else one for one in code.co_consts)
    return code.replace(co_firstlineno=code.co_firstlineno + lines, co_consts=inner)
