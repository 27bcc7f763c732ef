"""The real command-line agents, in pinned versions from npm: installed once a machine, shared by all checkouts.

    claude = agent_cli("claude")
    claude.program      # the native program, or the script that Node runs
    claude.argv         # how to start it
    claude.root         # the directory that it needs, to be mounted read-only
    path_with("claude", "codex")    # a PATH on which their usual names are found

Scripts of the packages do not run: the native programs are used where they lie.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from levels import lacking
from toolchains import kept, toolchain

_INSTALL_SEC = 540.0


@dataclass(frozen=True)
class _Pinned:
    package: str
    version: str
    program: str
    """Where the program lies in `node_modules`, as a glob."""
    script: bool = False


PINNED = {
    "claude": _Pinned("@anthropic-ai/claude-code", "2.1.325", "@anthropic-ai/claude-code-*/claude"),
    "codex": _Pinned("@openai/codex", "0.166.0", "@openai/codex-*/vendor/*/bin/codex"),
    "gemini": _Pinned("@google/gemini-cli", "0.61.0", "@google/gemini-cli/bundle/gemini.js", script=True),
    "opencode": _Pinned("opencode-ai", "1.18.33", "opencode-*-*/bin/opencode"),
}


@dataclass(frozen=True)
class AgentCli:
    name: str
    version: str
    root: Path
    program: Path
    argv: tuple[str, ...]
    bin: Path
    """A directory with nothing but the program under its usual name."""


def cache_home() -> Path:
    """Where large downloads of tests are kept, for all checkouts of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codepilot-tests"


def agent_cli(name: str) -> AgentCli:
    """The installed agent. The first call on a machine takes a minute and up to 450 MB."""
    toolchain("node", "npm")
    pinned = PINNED[name]
    root = kept("agent", f"{pinned.package}@{pinned.version}", _install(name, pinned), cache_home())
    program = _program(root, pinned)
    return AgentCli(name, pinned.version, root, program, _argv(pinned, program), root / "bin")


def path_with(*names: str) -> str:
    """A `PATH` that has these agents before everything else."""
    return os.pathsep.join([*(str(agent_cli(name).bin) for name in names), os.environ["PATH"]])


def _install(name: str, pinned: _Pinned) -> Callable[[Path], None]:
    def install(place: Path) -> None:
        place.mkdir()
        (place / "package.json").write_text('{"name": "agent", "private": true}')
        quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict=false", "--loglevel=error")
        argv = ["npm", "install", *quiet, f"{pinned.package}@{pinned.version}"]
        done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=_INSTALL_SEC, check=False)
        if done.returncode:
            lacking(f"npm cannot install {pinned.package}: {(done.stderr or done.stdout).strip()[-1000:]}")
        for unused in (*place.glob("node_modules/opencode-*-baseline"), *place.glob("node_modules/opencode-*-musl")):
            shutil.rmtree(unused)
        program = _program(place, pinned)
        program.chmod(0o755)
        (place / "bin").mkdir()
        (place / "bin" / name).symlink_to(os.path.relpath(program, place / "bin"))

    return install


def _program(root: Path, pinned: _Pinned) -> Path:
    found = sorted((root / "node_modules").glob(pinned.program))
    if not found:
        lacking(f"{pinned.package} {pinned.version} has no program for this machine")
    return found[0]


def _argv(pinned: _Pinned, program: Path) -> tuple[str, ...]:
    node = shutil.which("node")
    return (node, str(program)) if pinned.script and node else (str(program),)
