"""The proxies of one workspace: one for everything in it, and one for each command with extra hosts."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Allowlist, Credential, Level, Proxy, no_proxy


class NetworkSeen(Protocol):
    """Called for every request that code in a workspace makes. `why` is empty for an allowed one."""

    def __call__(self, workspace: str, host: str, port: int, method: str, allowed: bool, why: str) -> None: ...


def check_hosts(level: Level, hosts: Sequence[str]) -> None:
    """Refuse invalid hosts, and all hosts at a level where code could bypass a proxy."""
    Allowlist(hosts)
    if hosts and level is not Level.BUBBLEWRAP:
        raise no_proxy(level)


class Network:
    """The proxy of a workspace, started before the first command that may reach a host.

    Its sockets lie in the workspace's directory, outside the tree, so that they are removed with it even if this
    process is killed.
    """

    def __init__(
        self, directory: Path, level: Level, credentials: Sequence[Credential] = (), seen: NetworkSeen | None = None
    ) -> None:
        self._directory = directory
        self._level = level
        self._credentials = tuple(credentials)
        self._seen = partial(seen, directory.parent.name) if seen is not None else None
        self._lock = threading.Lock()
        self._proxy: Proxy | None = None
        self._hosts: tuple[str, ...] = ()
        self._swept = False
        self._closed = False

    def socket_for(self, hosts: tuple[str, ...]) -> Path | None:
        """The socket of the workspace's own proxy; None without hosts."""
        check_hosts(self._level, hosts)
        with self._lock:
            if self._proxy is not None and hosts != self._hosts:
                self._proxy.close()
                self._proxy = None
            if hosts and self._proxy is None:
                self._proxy, self._hosts = self._start("workspace", hosts), hosts
            return self._proxy.path if self._proxy is not None else None

    @contextmanager
    def for_command(
        self, hosts: tuple[str, ...], more: tuple[str, ...], *, private: bool = False
    ) -> Iterator[Path | None]:
        """The proxy socket of one command: the workspace's, or a separate one while it runs. With `private`, hosts may
        have addresses of private networks.
        """
        if not more:
            yield self.socket_for(hosts)
            return
        both = tuple(dict.fromkeys((*hosts, *more)))
        check_hosts(self._level, both)
        with self._lock:
            proxy = self._start(f"command-{secrets.token_hex(6)}", both, private=private)
        with proxy:
            yield proxy.path

    def withdraw(self) -> None:
        """Close the workspace's own proxy."""
        with self._lock:
            proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.withdraw()

    def _start(self, name: str, hosts: tuple[str, ...], *, private: bool = False) -> Proxy:
        if self._closed:
            raise CodePilotError(FailureKind.EXECUTOR_LOST, "the workspace is not open any more")
        if not self._swept:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._swept = True
        return Proxy(self._directory / name, hosts, credentials=self._credentials, seen=self._seen, private=private)
