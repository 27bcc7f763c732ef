"""The host's side of a terminal inside: the command behind our program that makes one for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codepilot.sandbox.interpreter import base_prefixes, base_python
from codepilot.sandbox.spec import Mount, SandboxSpec, Terminal

_SOURCE = Path(__file__).parent.with_name("standalone") / "terminal.py"
_INSIDE = Path("/run/codepilot/terminal.py")
_KIND = "xterm-256color"


def on_terminal(
    argv: Sequence[str], spec: SandboxSpec, terminal: Terminal, sizes: int
) -> tuple[Sequence[str], SandboxSpec]:
    """The same command with a terminal of its own. It is given other sizes over the descriptor `sizes`."""
    mounts = [Mount(_SOURCE, _INSIDE), *(Mount(one, one) for one in base_prefixes())]
    known = {mount.target for mount in spec.mounts}
    shown = tuple(mount for mount in mounts if mount.target not in known)
    command = [os.fspath(base_python()), "-I", "-S", os.fspath(_INSIDE)]
    command += [str(sizes), str(terminal.rows), str(terminal.columns)]
    changed = replace(spec, mounts=(*spec.mounts, *shown), env={"TERM": _KIND, **spec.env}, terminal=None)
    return [*command, *map(os.fspath, argv)], changed
