"""The host's side of the bridge: a command and a spec changed so that the named sockets are the only ways out."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.interpreter import base_prefixes, base_python
from codepilot.sandbox.spec import Level, Mount, SandboxSpec

PORT = 3128
"""The proxy's port on the sandbox's loopback."""

_SOURCE = Path(__file__).parent.with_name("standalone") / "bridge.py"
_INSIDE = Path("/run/codepilot/bridge.py")
SOCKET = Path("/run/codepilot/proxy.sock")
_ENDPOINTS = Path("/run/codepilot/endpoints")


def bridged(argv: Sequence[str], spec: SandboxSpec) -> tuple[Sequence[str], SandboxSpec]:
    """The same command behind the bridge; as it is if neither a proxy nor an endpoint is asked for."""
    if spec.proxy is None and not spec.endpoints:
        return argv, spec
    if spec.network:
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, "a proxy is no limit where the host's network is given")
    links = {endpoint.port: (endpoint.socket, _ENDPOINTS / str(endpoint.port)) for endpoint in spec.endpoints}
    if spec.proxy is not None:
        links[PORT] = (spec.proxy, SOCKET)
    for outside, _ in links.values():
        _check(outside)
    mounts = [Mount(_SOURCE, _INSIDE), *(Mount(outside, inside) for outside, inside in links.values())]
    mounts += [Mount(one, one) for one in base_prefixes()]
    known = {mount.target for mount in spec.mounts}
    shown = replace(spec, mounts=(*spec.mounts, *(mount for mount in mounts if mount.target not in known)))
    ways = ",".join(f"{port}={inside}" for port, (_, inside) in links.items())
    proxy = PORT if spec.proxy is not None else 0
    command = [os.fspath(base_python()), "-I", "-S", os.fspath(_INSIDE), str(proxy), ways]
    return [*command, *map(os.fspath, argv)], shown


def _check(outside: Path) -> None:
    if not outside.exists() or not stat.S_ISSOCK(outside.stat().st_mode):
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE, "a service that this sandbox was to reach is not there any more"
        )


def no_proxy(level: Level) -> CodePilotError:
    """Why a level without a network namespace refuses a proxy: it could be walked around."""
    return CodePilotError(
        FailureKind.SANDBOX_UNAVAILABLE,
        f"the sandbox level {level} cannot make a proxy the only way out: it has no network of its own, so it can"
        " only close the network or open all of it",
        "Install bubblewrap, whose sandbox has its own network, or run without hosts.",
        level=str(level),
    )
