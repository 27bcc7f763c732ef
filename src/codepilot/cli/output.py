"""The one way to print: every character that could control a terminal is shown as an escape."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

_ESCAPED = "backslashreplace"
_quiet = [False]
_verbose = [0]
PIPE_COLUMNS = 100_000
"""Wide enough that nothing is cut or wrapped in a pipe or a file."""


def be_quiet(wanted: bool) -> None:
    """True if commands print results only."""
    _quiet[0] = wanted


def quiet() -> bool:
    return _quiet[0]


def be_verbose(level: int) -> None:
    """How much is logged to standard error: 0 is nothing."""
    _verbose[0] = level


def verbose() -> int:
    return _verbose[0]


def plain(text: str) -> str:
    """One line that cannot drive the terminal: control characters are shown, not sent."""
    return "".join(char if char.isprintable() else shown(char) for char in text)


def plain_lines(text: str) -> str:
    """The same for several lines; tabs stay."""
    return "\n".join("\t".join(plain(part) for part in line.split("\t")) for line in text.split("\n"))


def shown(char: str) -> str:
    return " " if char in "\n\t" else repr(char)[1:-1]


class Unwritable(OSError):
    """The output could not be written. A pipe whose reader is gone stays a `BrokenPipeError`."""


class _Out(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unwritable(error.errno, error.strerror) from error


class SafeStream(io.TextIOWrapper):
    """A standard stream that escapes control characters. Only our own console may write them, by `write_styled`."""

    def write(self, text: str, /) -> int:
        super().write(plain_lines(text))
        return len(text)

    def write_styled(self, text: str) -> int:
        return super().write(text)


def prepare() -> None:
    """Replace both standard streams by safe ones; a closed stream swallows everything."""
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout = _safe(sys.stdout, _Out) if sys.stdout is not None else nowhere
    sys.stderr = _safe(sys.stderr, io.FileIO) if sys.stderr is not None else nowhere


def _safe(stream: TextIO, raw: type[io.FileIO]) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, SafeStream):
        return stream
    file = raw(stream.fileno(), "wb", closefd=False)
    return SafeStream(
        file if stream.write_through else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=_ESCAPED,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def say(text: str, *, err: bool = False) -> None:
    """Print a line of text for a person; control characters in it are escaped."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{plain_lines(text)}\n")
    stream.flush()


def show_prompt(text: str, *, err: bool = False) -> None:
    """Print text for a person, and stay on its last line."""
    stream = sys.stderr if err else sys.stdout
    stream.write(plain_lines(text))
    stream.flush()


def console(*, err: bool = False) -> Console:
    """The console for tables, colours and live views; it escapes untrusted text as `say` does."""
    from codepilot.cli.safe_console import SafeConsole

    stream = sys.stderr if err else sys.stdout
    return SafeConsole(stderr=err, width=None if stream.isatty() else PIPE_COLUMNS)


def print_json(text: str) -> None:
    """A line of JSON: UTF-8 whatever the terminal says, with control characters as JSON escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8", errors=_ESCAPED)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
        text = text.replace("\x7f", "\\u007f")
    sys.stdout.write(f"{text}\n")


def give_up(stream: TextIO) -> None:
    """Send the stream to nowhere: what is still buffered would only fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
