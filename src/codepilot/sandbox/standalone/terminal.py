"""Gives a command a terminal inside the sandbox. One file, standard library only.

`terminal.py SIZES ROWS COLUMNS COMMAND...` makes a terminal of the sandbox's own, starts the command as the leader of
its session, carries bytes between the terminal and our standard streams, and ends as the command ends. Lines of
`ROWS COLUMNS` on the descriptor SIZES resize it. An interrupt goes to whatever is in the foreground.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_CHUNK = 1 << 16
_CANONICAL_FLAGS = 3


class _Relay:
    """Carries bytes both ways, a chunk ahead at most, until the command has ended and its output is passed on."""

    def __init__(self, terminal: int, sizes: int, command: int) -> None:
        self._terminal = terminal
        self._sizes: int | None = sizes
        self._command = os.pidfd_open(command)
        self._typed = self._shown = self._size = b""
        self._input: int | None = 0
        self._output: int | None = 1
        self._over = False
        """True once the terminal gives nothing more."""
        self._command_ended = False
        for fd in (0, 1, terminal, sizes):
            os.set_blocking(fd, False)

    def run(self) -> None:
        while not (self._over and not self._shown):
            waiting = select.poll()
            looking = not self._shown
            self._expect(waiting)
            ready = dict(waiting.poll(0 if self._command_ended and not self._shown else None))
            if self._sizes in ready:
                self._resize()
            if self._output in ready:
                self._show()
            if self._input in ready:
                self._type()
            event = ready.get(self._terminal, 0)
            if event & select.POLLOUT:
                self._enter()
            if event & ~select.POLLOUT and not self._shown and not self._over:
                self._look()
            elif self._command_ended and looking:
                self._over = True  # what it left behind may hold the terminal open
            self._command_ended = self._command_ended or self._command in ready

    def _expect(self, waiting: select.poll) -> None:
        if not self._command_ended:
            waiting.register(self._command, select.POLLIN)
        if self._sizes is not None:
            waiting.register(self._sizes, select.POLLIN)
        if self._input is not None and not self._typed:
            waiting.register(self._input, select.POLLIN)
        if self._output is not None and self._shown:
            waiting.register(self._output, select.POLLOUT)
        wanted = (0 if self._shown or self._over else select.POLLIN) | (select.POLLOUT if self._typed else 0)
        if wanted:
            waiting.register(self._terminal, wanted)

    def _look(self) -> None:
        try:
            self._shown = os.read(self._terminal, _CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._shown = b""
        self._over = not self._shown
        if self._output is None:
            self._shown = b""

    def _show(self) -> None:
        assert self._output is not None
        try:
            self._shown = self._shown[os.write(self._output, self._shown) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads any more
            self._output, self._shown = None, b""

    def _type(self) -> None:
        assert self._input is not None
        try:
            self._typed = os.read(self._input, _CHUNK)
        except BlockingIOError:
            return
        if not self._typed:
            self._input = None
            self._typed = _end_of_input(self._terminal)

    def _enter(self) -> None:
        try:
            self._typed = self._typed[os.write(self._terminal, self._typed) :]
        except BlockingIOError:
            return
        except OSError:
            self._typed = b""

    def _resize(self) -> None:
        assert self._sizes is not None
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self._sizes, _CHUNK)
            if not chunk:
                self._sizes = None
        *lines, self._size = (self._size + chunk).split(b"\n")
        if lines:
            rows, columns = map(int, lines[-1].split())
            _set_size(self._terminal, rows, columns)


def _end_of_input(terminal: int) -> bytes:
    """What a person would type to end the input of a program that reads lines; nothing for another."""
    attributes = termios.tcgetattr(terminal)
    return bytes(attributes[6][termios.VEOF]) if attributes[_CANONICAL_FLAGS] & termios.ICANON else b""


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _environment() -> dict[bytes, bytes]:
    """The environment as it was given: the interpreter may have changed it for itself."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  (pathlib would take longer than all of this)
        return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)


def _become(command: list[str], terminal: int, errors: int) -> NoReturn:
    """Turn into the command, with the terminal as its standard streams and its controlling terminal."""
    try:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(terminal, fd)
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], command, _environment())
    except OSError as error:
        os.write(errors, f"{command[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def main() -> None:
    sizes, rows, columns = map(int, sys.argv[1:4])
    os.set_inheritable(sizes, False)
    terminal, inside = os.openpty()
    _set_size(terminal, rows, columns)
    errors = os.dup(2)
    child = os.fork()
    if child == 0:
        _become(sys.argv[4:], inside, errors)

    def interrupt(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            os.killpg(os.tcgetpgrp(terminal), signal.SIGINT)

    signal.signal(signal.SIGINT, interrupt)
    _Relay(terminal, sizes, child).run()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
