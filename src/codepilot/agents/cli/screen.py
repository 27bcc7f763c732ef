"""A terminal's screen: what a program's bytes look like to a person, and the lines that scrolled away.

Redraws, colours, cursor movement and wrapped lines are interpreted by pyte. It is an optional package.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count, islice
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind

ROWS, COLUMNS = 50, 160
_MOST_NEW = 20_000
"""So many lines at most go to the readable log at once."""
_KEPT_LINES, _KEPT_CHARS = 400, 8192
"""So many lines that scrolled away are kept to look at, and so much of the end of each."""
_FLOOD = 32_768
"""Of more output at once than this only the end is drawn; it fills the screen several times."""
_LONG_LINE = 1 << 16
_LONGEST_SEQUENCE = 4200
_TEXT = 100_000
_QUESTIONS = re.compile(rb"\x1b\](1[01]);\?(\x07|\x1b\\)|\x1b\[(?:>0?(c|q)|(18)t|\?(\d+)\$p|(\?6)n)")
_SGR = rb"\x1b\[[0-9;:]*m"
_UNKNOWN = re.compile(
    _SGR  # colours do not matter here
    + rb"|\x1b\][^\x07\x1b\r\n]*(?:\x07|\x1b\\|(?=\x1b[^\\]|[\r\n]))"  # titles and links, also unfinished ones
    + rb"|\x1b[P_X^][^\x07\x1b]*(?:\x07|\x1b\\|(?=\x1b[^\\]))"  # strings of a device or an application
    + rb"|\xc2[\x80-\x9f]"  # controls of eight bits, which nobody means
    + rb"|\x1b\[[<=>][0-9;:]*[ -/]*[@-~]"  # private sequences, for example of keyboard protocols
    + rb"|\x1b\[\?[0-9;]*[ -/]+[@-~]|\x1b\[\?[0-9;]*[nu]",
)
_MODE = re.compile(rb"\x1b\[\?[0-9;]+[hl]|\x1b\[[0-9;]*r")
_PARTIAL = re.compile(rb"(?:\x1b(?:\[[<=>?]?[0-9;:]*[ -/]*|[P_X^\]][^\x07\x1b]{0,4096}\x1b?)?|\xc2)\Z")
_BLANK_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_RUN = re.compile(r"[ -~]+|[^ -~]")


class Screen:
    """Takes the bytes of a program and shows them as text."""

    def __init__(
        self, rows: int = ROWS, columns: int = COLUMNS, answer: Callable[[bytes], None] = lambda data: None
    ) -> None:
        """`answer` gets what a terminal replies to a program's questions, for example where the cursor is."""
        self._screen = _made(rows, columns, answer, self._scrolled, self._cleared)
        self._answer = answer
        self._stream = _stream(self._screen)
        self._pending = b""
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._new: list[str] = []
        self._open = ""
        self._taken = False
        self._shown: deque[str] = deque(maxlen=4 * rows)
        self.scrolled = 0
        """How many lines have scrolled away."""

    def feed(self, data: bytes) -> None:
        """Interpret the next bytes."""
        data = self._pending + data
        if b"\x1b" in data or b"\xc2" in data:
            for question in _QUESTIONS.finditer(data):
                self._reply(question)
            data = _UNKNOWN.sub(b"", data)
        partial = _PARTIAL.search(data, max(0, len(data) - _LONGEST_SEQUENCE))
        cut = partial.start() if partial else len(data)
        data, self._pending = data[:cut], data[cut:]
        if len(data) > _FLOOD:
            data = self._flow(data) if b"\x1b" not in data and self._at_the_end() else _end_of(data)
        self._stream.feed(data)

    def _reply(self, question: re.Match[bytes]) -> None:
        """Answer what pyte does not: colours, the terminal's name and size, and modes, which it does not have."""
        colour, end, device, size, mode, place = question.groups()
        if colour:
            shade = b"ffff" if colour == b"10" else b"0000"
            self._answer(b"\x1b]%b;rgb:%b%b" % (colour, b"/".join([shade] * 3), end))
        elif device:
            self._answer(b"\x1b[>0;0;0c" if device == b"c" else b"\x1bP>|codepilot\x1b\\")
        elif size:
            self._answer(b"\x1b[8;%d;%dt" % (self._screen.lines, self._screen.columns))
        elif mode:
            self._answer(b"\x1b[?%b;0$y" % mode)
        elif place:
            self._answer(b"\x1b[?%d;%dR" % (self._screen.cursor.y + 1, self._screen.cursor.x + 1))

    @property
    def rows(self) -> list[str]:
        """The lines of the screen."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def cursor_row(self) -> int:
        return int(self._screen.cursor.y)

    @property
    def takes_pastes(self) -> bool:
        """True if the program wants pasted text to be marked as such."""
        return (2004 << 5) in self._screen.mode

    def text(self, lines: int = _KEPT_LINES) -> str:
        """The end of what was printed: so many lines that scrolled away, and the screen."""
        before: list[str] = []
        size = 0
        for line in islice(reversed(self._lines), lines):
            size += len(line)
            if size > _TEXT:
                break
            before.insert(0, line)
        if self._open:
            before.append(self._open)
        joined = "\n".join(before)
        shown = self._shown_text()
        if self._open:
            return joined + shown
        return f"{joined}\n{shown}" if joined else shown

    def take_lines(self) -> list[str]:
        """The lines that scrolled away since the last call, for a readable log."""
        new, self._new = self._new, []
        return new

    def take_rest(self) -> list[str]:
        """The same with what is on the screen at the end; nothing when it is asked for again."""
        if self._taken:
            return []
        self._taken = True
        return [*self.take_lines(), *(self._open + self._shown_text()).split("\n")]

    def _shown_text(self) -> str:
        """The lines of the screen; one that was too long for its row goes on in the next."""
        wrapped = self._screen.wrapped
        shown = [line if wrapped(row) else line.rstrip() + "\n" for row, line in enumerate(self._screen.display)]
        return "".join(shown).rstrip("\n")

    def _scrolled(self, line: str, wrapped: bool) -> None:
        """A line left the screen at its top. One that was too long for its row goes on in the next."""
        self.scrolled += 1
        self._open += line if wrapped else line.rstrip()
        if wrapped and len(self._open) < _LONG_LINE:
            return
        self._keep(self._open)
        self._open = ""

    def _keep(self, line: str) -> None:
        self._lines.append(line[-_KEPT_CHARS:])
        if len(self._new) < _MOST_NEW:
            self._new.append(line)

    def _cleared(self, display: Sequence[str]) -> None:
        """Keep what stood on a screen that is cleared, unless it was just kept but for spinners and counters."""
        for line in display:
            key = "".join(filter(str.isalpha, line))
            if key and key not in self._shown:
                self._shown.append(key)
                self._keep(line.rstrip())

    def _at_the_end(self) -> bool:
        """True if new lines only scroll: there is nothing below the cursor, and no region of the screen is fixed."""
        below = self.rows[self.cursor_row + 1 :]
        return not any(below) and self._screen.margins is None

    def _flow(self, data: bytes) -> bytes:
        """Take most of a flood of plain text as lines, without drawing them; the bytes that are left to draw."""
        keep = 2 * self._screen.lines * self._screen.columns
        first, end = data.find(b"\n", 0, keep) + 1, _start_of_line(data, len(data) - keep)
        self._stream.feed(data[:first] + b"\n" * self._screen.lines + b"\r")
        text = data[first:end].decode("utf-8", "replace")
        for line in text.removesuffix("\n").split("\n"):
            self.scrolled += 1
            shown = _BLANK_CONTROLS.sub("", _overwritten(line)).rstrip()
            for start in range(0, len(shown) or 1, _LONG_LINE):
                self._keep(shown[start : start + _LONG_LINE])
        return data[end:]


def _overwritten(line: str) -> str:
    """What a line shows whose parts overwrite each other."""
    shown = ""
    for part in reversed(line.split("\r")):
        shown += part[len(shown) :]
    return shown


def _start_of_line(data: bytes, at: int) -> int:
    """Where a line begins near `at`; in the middle of a long one at a whole character."""
    if newline := data.find(b"\n", at, at + 4096) + 1:
        return newline
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _end_of(data: bytes) -> bytes:
    """The end of what redraws a screen faster than it can be drawn, with the modes that were set before it."""
    cut = len(data) - _FLOOD
    escape = data.find(b"\x1b", cut, cut + 4096)
    cut = escape if escape >= 0 else _start_of_line(data, cut)
    return b"".join(dict.fromkeys(reversed(_MODE.findall(data, 0, cut)))) + data[cut:]


def _pyte() -> Any:
    try:
        import pyte
    except ImportError as error:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            "Programs on a terminal need the package pyte.",
            next_action="Install it: pip install 'codepilot-cli[interactive]'.",
        ) from error
    return pyte


def _stream(screen: Any) -> Any:
    base: Any = _pyte().ByteStream

    class Stream(base):  # type: ignore[misc]
        """pyte's parser, which goes on after a sequence that pyte cannot take."""

        def _send_to_parser(self, data: str) -> bool | None:
            try:
                taken: bool | None = super()._send_to_parser(data)
            except Exception:  # noqa: BLE001 - whatever a program prints must not end the session
                return True
            return taken

    return Stream(screen)


def _made(
    rows: int,
    columns: int,
    answer: Callable[[bytes], None],
    scrolled: Callable[[str, bool], None],
    cleared: Callable[[Sequence[str]], None],
) -> Any:
    base: Any = _pyte().Screen
    wraps, inserts = 7 << 5, 4
    cells: dict[str, Any] = {}

    class Kept(base):  # type: ignore[misc]
        """pyte's screen, which reports the lines that it loses, and knows which go on in the next row."""

        drawing = False

        @property
        def display(self) -> list[str]:
            return [self.row(number) for number in range(self.lines)]

        def row(self, number: int) -> str:
            line = self.buffer[number]
            return "".join(line[column].data for column in range(self.columns)) if line else " " * self.columns

        def wrapped(self, row: int) -> bool:
            return bool(getattr(self.buffer[row], "wrapped", False))

        def draw(self, data: str) -> None:
            """ASCII goes into its cells at once, anything else one by one: pyte stops at what has no width."""
            self.drawing = True
            simple = wraps in self.mode and inserts not in self.mode
            try:
                for part in _RUN.findall(data):
                    if simple and " " <= part[0] <= "~":
                        self.put(part)
                    else:
                        for character in part:
                            super().draw(character)
            finally:
                self.drawing = False

        def put(self, text: str) -> None:
            while text:
                if self.cursor.x >= self.columns:
                    self.carriage_return()
                    self.linefeed()
                at = self.cursor.x
                part, text = text[: self.columns - at], text[self.columns - at :]
                self.buffer[self.cursor.y].update(zip(count(at), map(cells.__getitem__, part), strict=False))
                self.cursor.x += len(part)

        def linefeed(self) -> None:
            self.buffer[self.cursor.y].wrapped = self.drawing
            super().linefeed()

        def index(self) -> None:
            top, bottom = self.margins or (0, self.lines - 1)
            if self.cursor.y == bottom and top == 0:
                scrolled(self.row(0), self.wrapped(0))
            super().index()

        def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
            if how in (2, 3):
                cleared(self.display)
            super().erase_in_display(how, *args, **kwargs)

        def write_process_input(self, data: str) -> None:
            answer(data.encode())

    screen = Kept(columns, rows)
    cells.update({chr(code): screen.default_char._replace(data=chr(code)) for code in range(32, 127)})
    return screen
