"""Standard output: no encoding makes it fail, and where nothing can be written to it, that is told as what it is."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ESCAPED = "backslashreplace"


class Unwritable(OSError):
    """What was to be printed could not be. A pipe whose reader is gone stays a `BrokenPipeError`."""


class _Out(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unwritable(error.errno, error.strerror) from error


def prepare() -> None:
    """Let standard output show as escapes what its encoding lacks, as standard error does; a stream that was closed
    swallows everything.
    """
    told = sys.stdout
    if sys.stdout is None or sys.stderr is None:
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if isinstance(told, io.TextIOWrapper):
        raw = _Out(told.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            raw if told.write_through else io.BufferedWriter(raw),
            encoding=told.encoding,
            errors=_ESCAPED,
            line_buffering=told.line_buffering,
            write_through=told.write_through,
        )


def print_json(text: str) -> None:
    """A line of JSON, which is UTF-8 whatever the terminal says."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8", errors=_ESCAPED)
    sys.stdout.write(f"{text}\n")


def give_up(stream: TextIO) -> None:
    """Nothing can be written any more: what is still held back would only fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
