"""Starts a command inside the sandbox with ways to services of the host. One file, standard library only.

`bridge.py PROXY LINKS COMMAND...` listens on the sandbox's own loopback, at each port of LINKS (`PORT=SOCKET,...`),
leaves behind a process that carries every connection to its Unix socket, and becomes the command: same process, pipes,
signals and exit code. PROXY is the port of the one that is a proxy, or 0. The sandbox's PID namespace ends with the
command, and the carrier with it. Nothing here decides what may be reached; the host does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` and `socket` would double the start
import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_CHUNK = 1 << 16
_CONNECTIONS = 64
"""How many connections each port may have at a time; further ones wait."""
_BACKLOG = 128


class _Flow:
    """One direction of a connection: what was read and not yet written, at most a chunk."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.held = b""
        self.ended = False

    def read(self) -> None:
        self.held = self.source.recv(_CHUNK)
        self.ended = not self.held
        self.write()

    def write(self) -> None:
        import socket

        if self.held:
            try:
                self.held = self.held[self.sink.send(self.held) :]
            except BlockingIOError:
                return
        elif self.ended:
            self.sink.shutdown(socket.SHUT_WR)


class _Link:
    """A port, the socket that it leads to, and how many connections are open."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self.listener = listener
        self.path = path
        self.open = 0


class _Carrier:
    """Carries bytes between the listeners' connections and their Unix sockets, in one thread."""

    def __init__(self, links: list[_Link]) -> None:
        self._links = {link.listener.fileno(): link for link in links}
        self._flows: dict[int, tuple[_Flow, _Flow, _Link]] = {}  # by the fd that is read: (out of it, into it, of)

    def serve(self) -> None:
        import select

        while True:
            poll = select.poll()
            for fd, link in self._links.items():
                if link.open < _CONNECTIONS:
                    poll.register(fd, select.POLLIN)
            for fd, (away, into, _) in self._flows.items():
                readable = select.POLLIN if not away.held and not away.ended else 0
                writable = select.POLLOUT if into.held else 0
                if readable or writable:
                    poll.register(fd, readable | writable)
            for fd, event in poll.poll():
                if fd in self._links:
                    self._accept(self._links[fd])
                elif fd in self._flows:
                    self._move(fd, bool(event & ~select.POLLOUT), bool(event & ~select.POLLIN))

    def _accept(self, link: _Link) -> None:
        import socket

        try:
            near, _ = link.listener.accept()
        except OSError:
            return
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(link.path)
        except OSError:
            near.close()
            far.close()
            return
        near.setblocking(False)
        far.setblocking(False)
        out, back = _Flow(near, far), _Flow(far, near)
        self._flows[near.fileno()] = (out, back, link)
        self._flows[far.fileno()] = (back, out, link)
        link.open += 1

    def _move(self, fd: int, readable: bool, writable: bool) -> None:
        away, into, link = self._flows[fd]
        try:
            if writable and into.held:
                into.write()
            if readable and not away.held and not away.ended:
                away.read()
            done = all(flow.ended and not flow.held for flow in (away, into))
        except BlockingIOError:
            return
        except OSError:
            done = True
        if done:
            link.open -= 1
            for end in (away.source, away.sink):
                del self._flows[end.fileno()]
                end.close()


def _listen(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(_BACKLOG)
    return listener


def _leave_carrier(links: dict[int, str]) -> None:
    """Start the carrier as a grandchild in a new session: the command must have no child that it did not make."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if fd > 2 and fd not in links:
            try:  # noqa: SIM105  (contextlib costs more than all of this)
                os.close(fd)
            except OSError:  # the listing's own
                pass
    import select

    waiting = select.poll()
    for listener in links:
        waiting.register(listener, select.POLLIN)
    waiting.poll()  # most commands never connect; what follows costs memory
    import socket

    try:
        _Carrier([_Link(socket.socket(fileno=listener), path) for listener, path in links.items()]).serve()
    finally:
        os._exit(1)


def _environment(port: int) -> dict[bytes, bytes]:
    """The environment as given, which the interpreter may have changed for itself, with the proxy's address if any."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  (pathlib would take longer than all of this)
        given = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    if not port:
        return given
    for name in (b"NO_PROXY", b"no_proxy"):
        given.setdefault(name, b"localhost,127.0.0.1,::1")
    for name in (b"HTTP_PROXY", b"HTTPS_PROXY", b"ALL_PROXY"):
        given[name] = given[name.lower()] = b"http://127.0.0.1:%d" % port
    return given


def main() -> None:
    proxy, links, *command = sys.argv[1:]
    for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    listening = [(_listen(int(port)), path) for port, _, path in (link.partition("=") for link in links.split(","))]
    _leave_carrier({listener.fileno(): path for listener, path in listening})
    environment = _environment(int(proxy))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
