"""Where an agent's program is on this machine, how it is started, and what of the machine it needs to see."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codepilot.agents.cli.protocol import AgentStart, Feature, Probe
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import HomeFile, MountSpec, StartProcess
from codepilot.models.gateway import Dialect, ModelEndpoint

_VISIBLE = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""What code inside sees anyway."""
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_VARIABLES: Mapping[Dialect, tuple[str, str]] = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}
"""The variables in which the providers' own clients look for an address and a key."""


@dataclass(frozen=True)
class Program:
    """A program of the user's. `mounts` are the host's files and directories that it needs, read-only."""

    path: str
    argv: tuple[str, ...]
    mounts: tuple[str, ...] = ()
    problem: str = ""

    def process(
        self, start: AgentStart, arguments: Sequence[str], env: Mapping[str, str], files: Sequence[HomeFile] = ()
    ) -> StartProcess:
        """Start it with its private HOME, and with nothing of the user's environment."""
        return StartProcess(
            workspace=start.workspace,
            argv=(*self.argv, *arguments),
            env=dict(env),
            mounts=tuple(MountSpec(source=path, target=path) for path in self.mounts),
            home=True,
            home_files=tuple(files),
            limits=start.limits,
        )

    def probe(self, features: frozenset[Feature], version: str = "", logged_in: bool = False) -> Probe:
        works = tuple(sorted(features)) if self.path else ()
        return Probe(self.path, version, logged_in, works, self.problem)


def find_command(argv: Sequence[str], environ: Mapping[str, str]) -> Program:
    """A command that the user named. Files among its arguments are shown to it."""
    if not argv:
        return Program("", (), problem="no command is named")
    found = which(argv[0], environ)
    if not found:
        return Program("", tuple(argv), problem=f"there is no program {argv[0]!r} on the PATH")
    started = _started(found, environ)
    named = [word for word in argv[1:] if word.startswith("/") and Path(word).exists()]
    return Program(found, (*started, *argv[1:]), _unseen((*started, *named)))


def found(program: Program, agent: str) -> Program:
    """The program; raises if it is not there."""
    if not program.path:
        raise CodePilotError(FailureKind.AGENT_MISSING, f"{agent} is not there: {program.problem}.", agent=agent)
    return program


def which(name: str, environ: Mapping[str, str]) -> str:
    """A program's absolute path. Relative entries of the PATH are left out: they may lie in a repository."""
    expanded = environ.get("HOME", "") + name[1:] if name.startswith("~/") else name
    if expanded.startswith("/"):
        return expanded if _runs(expanded) else ""
    if "/" in expanded:
        return ""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    return next((path for folder in folders if _runs(path := f"{folder}/{expanded}")), "")


def version_of(program: Program) -> str:
    """The version recorded next to a program. Nothing is run: it might belong to a repository."""
    real = Path(program.path).resolve() if program.path else Path("/")
    for folder in real.parents:
        if (version := _package_version(folder / "package.json")) is not None:
            return version
    named = _VERSION.findall(str(real))
    return str(named[-1]) if named else ""


def login_file(environ: Mapping[str, str], path: str) -> bytes | None:
    """A login that a program keeps in the user's HOME."""
    home = environ.get("HOME", "")
    try:
        content = (Path(home) / path).read_bytes() if home.startswith("/") else b""
    except OSError:
        return None
    return content or None


def shared_login(environ: Mapping[str, str], path: str, agent: str) -> HomeFile:
    """The user's login, to be copied into the session's HOME by the user's choice."""
    content = login_file(environ, path)
    if content is None:
        raise CodePilotError(
            FailureKind.MODEL_AUTH,
            f"{agent} is not logged in: there is no file ~/{path}.",
            f'Log in with {agent} itself, or set [agents.{agent}] credentials = "gateway".',
            agent=agent,
        )
    return HomeFile(path=path, content=content, mode=0o600, secret=True)


def model_environment(start: AgentStart) -> dict[str, str]:
    """The addresses and keys of every provider that the run's models include, under their usual names."""
    variables: dict[str, str] = {}
    if start.endpoint is None:
        return variables
    for dialect, (url, key) in _VARIABLES.items():
        with suppress(CodePilotError):  # that provider has no key on this machine
            endpoint = start.endpoint(dialect)
            variables |= {url: endpoint.base_url, key: endpoint.api_key}
    return variables


def first_endpoint(start: AgentStart) -> ModelEndpoint:
    """The endpoint of the first provider that has a key; raises if none has."""
    assert start.endpoint is not None
    refused: CodePilotError | None = None
    for dialect in _VARIABLES:
        try:
            return start.endpoint(dialect)
        except CodePilotError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def words_of(command: str) -> tuple[str, ...]:
    """A command line as its words."""
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise CodePilotError(FailureKind.INVALID_SPEC, f"the command {command!r} cannot be read: {error}") from None


def _started(path: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """How it is started: a script by its interpreter's absolute path, so that it is known what the script needs."""
    try:
        with Path(path).open("rb") as stream:
            first = stream.readline(200)
    except OSError:
        return (path,)
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and words[0].endswith("/env"):
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    interpreter = which(words[0], environ) if words else ""
    return (interpreter, *words[1:], str(Path(path).resolve())) if interpreter else (path,)


def _unseen(paths: Sequence[str]) -> tuple[str, ...]:
    """What must be shown so that these paths work inside."""
    needed: dict[str, None] = {}
    for path in paths:
        for spelled in dict.fromkeys((Path(path), Path(path).resolve())):
            if not spelled.is_absolute():
                continue
            shown = _holding(spelled)
            if not shown.is_relative_to("/usr") and not str(shown).startswith(_VISIBLE):
                needed[str(shown)] = None
    return tuple(one for one in needed if not any(one.startswith(f"{other}/") for other in needed))


def _holding(path: Path) -> Path:
    """The directory that a program belongs to, or the file itself if it stands alone."""
    parts = path.parts
    if "node_modules" in parts:
        return Path(*parts[: parts.index("node_modules") + 1])
    environment = path.parent.parent
    if path.parent.name == "bin" and (environment / "pyvenv.cfg").exists():
        return environment
    if path.name.startswith("python") and environment.name != ".local" and any(environment.glob("lib/python3*")):
        return environment
    return path


def _package_version(path: Path) -> str | None:
    try:
        version = json.loads(path.read_bytes()).get("version")
    except (OSError, ValueError, AttributeError):
        return None
    found = _VERSION.match(version) if isinstance(version, str) else None
    return found[0] if found else None


def _runs(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)
