"""The skills that run inside the sandbox, as plain functions. Standard library only: this source travels as it is.

Paths are relative to the workspace. The checks here advise the agent; the sandbox is the wall.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codepilot.skills.commands import PolicyError, refusal
from codepilot.skills.patching import patch_tree

ROOT = Path.cwd().resolve()
CAPABILITY = "write_and_run_tests"
PYTHON = sys.executable
RUNNER = "pytest"

NOISE = frozenset({".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache"})
MAX_OUTPUT = 200_000
MAX_SEARCHED = 2 << 20
QUIET = {"CI": "1", "NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


class PathError(Exception):
    """The path is not one this skill can use; the message says why."""


@dataclass(frozen=True)
class Hit:
    """A line that matched."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"

    __repr__ = __str__


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended. `exit_code` is None when it was stopped at its timeout."""

    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        ended = "stopped at its timeout" if self.exit_code is None else f"exit code {self.exit_code}"
        return "\n".join(part for part in (self.stdout.rstrip(), self.stderr.rstrip(), f"[{ended}]") if part)

    __repr__ = __str__


def read_file(path: str) -> str:
    """The whole text of a file, line endings as they are."""
    return _decoded(_bytes(path))[0]


def write_file(path: str, content: str) -> None:
    """Replace a file's text, or make a new file with its directories. An existing file keeps its encoding."""
    place = _writable(path)
    if place.is_dir():
        raise PathError(f"{path} is a directory.")
    encoding = _decoded(_bytes(path))[1] if place.exists() else "utf-8"
    try:
        data = content.encode(encoding)
    except UnicodeEncodeError as error:
        raise PathError(f"{path} is {encoding} and cannot hold {content[error.start]!r} (at {error.start}).") from None
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)


def create_file(path: str, content: str) -> None:
    """Make a new file. Refuses to replace one that exists."""
    if _writable(path).exists():
        raise PathError(f"{path} exists already; use write_file or apply_patch.")
    write_file(path, content)


def list_files(path: str = ".", pattern: str = "**/*") -> list[str]:
    """The files below a directory that match a pattern (`*.py`, `src/**/*.py`), sorted, without caches and `.git`."""
    wanted = _glob(pattern)
    base = _inside(path)
    if not base.is_dir():
        raise PathError(f"{path} is not a directory.")
    return sorted(_relative(file) for file in _walk(base) if wanted.match(file.relative_to(base).as_posix()))


def search_code(pattern: str, path: str = ".", limit: int = 200) -> list[Hit]:
    """The lines that match a Python regular expression, in one file or all files below a directory."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}. Use re.escape for plain text.") from None
    base = _inside(path)
    if not base.exists():
        raise PathError(f"There is no {path}.")
    hits: list[Hit] = []
    for file in sorted(_walk(base)) if base.is_dir() else [base]:
        for number, line in enumerate(_searchable(file), 1):
            if wanted.search(line):
                hits.append(Hit(_relative(file), number, line[:400]))
                if len(hits) >= limit:
                    return hits
    return hits


def apply_patch(diff: str) -> str:
    """Apply a unified diff to the workspace, all of it or none. Says what changed, or which hunk failed and why."""

    def current(path: str) -> str | None:
        return _decoded(_bytes(path))[0] if _inside(path).is_file() else None

    changes = patch_tree(diff, current)
    for path in changes.files:
        _writable(path)
    for path, text in changes.files.items():
        if text is not None:
            write_file(path, text)
        else:
            (ROOT / path).unlink(missing_ok=True)
    done = [f"{'deleted' if text is None else 'patched'} {path}" for path, text in changes.files.items()]
    return "\n".join(done + changes.notes)


def run_command(cmd: list[str], timeout: float = 300.0) -> CommandOutcome:
    """Run a program with its arguments (a list, no shell) in the workspace. Build, test and search tools only."""
    if isinstance(cmd, str) or not cmd or not all(isinstance(part, str) for part in cmd):
        raise ValueError('run_command takes a list of strings, like ["python", "-m", "pytest", "-q"].')
    if CAPABILITY != "full_shell":
        rule, why = refusal(cmd)
        if rule:
            raise PolicyError(rule, "run_command", f"{' '.join(cmd)}: {why}")
    argv = [PYTHON, *cmd[1:]] if cmd[0] in ("python", "python3") else cmd
    return _run(argv, timeout)


def run_tests(tests: list[str] | None = None, timeout: float = 300.0) -> CommandOutcome:
    """Run the project's tests: those named, as its runner names them, or all."""
    quiet = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if RUNNER == "pytest" else ["-m", "unittest"]
    return _run([PYTHON, *quiet, *(tests or [])], timeout)


def _run(argv: list[str], timeout: float) -> CommandOutcome:
    try:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return CommandOutcome(127, "", f"{argv[0]}: not found")
    except PermissionError:
        return CommandOutcome(126, "", f"{argv[0]}: not executable")
    code: int | None
    try:
        out, err = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        out, err = process.communicate()
        code = None
    except BaseException:
        _end(process)
        process.communicate()
        raise
    return CommandOutcome(code, _shortened(out), _shortened(err))


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _shortened(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if len(text) <= MAX_OUTPUT:
        return text
    half = MAX_OUTPUT // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _inside(path: str) -> Path:
    """The real place of a workspace path. Anything that leads out of the workspace is refused."""
    if "\0" in path:
        raise PathError("A path cannot contain a zero byte.")
    place = (ROOT / path).resolve()
    if place != ROOT and ROOT not in place.parents:
        raise PathError(f"{path} leads out of the workspace. Use paths relative to its root.")
    return place


def _writable(path: str) -> Path:
    if CAPABILITY == "read_only":
        raise PolicyError("capability.read_only", "write_file", f"{path}: this task may only read.")
    place = _inside(path)
    if ".git" in place.relative_to(ROOT).parts:
        raise PolicyError("path.git", "write_file", f"{path}: files of git itself may not be written.")
    return place


def _bytes(path: str) -> bytes:
    try:
        return _inside(path).read_bytes()
    except FileNotFoundError:
        raise PathError(f"There is no {path}.{_like(path)}") from None
    except IsADirectoryError:
        raise PathError(f"{path} is a directory; use list_files.") from None


def _like(path: str) -> str:
    name = Path(path).name
    near = [_relative(file) for file in _walk(ROOT) if file.name == name][:3]
    return f" Did you mean {', '.join(near)}?" if near else ""


def _decoded(data: bytes) -> tuple[str, str]:
    """Text and the encoding that gives the same bytes back. Latin-1 holds whatever is not UTF-8."""
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def _walk(base: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name not in NOISE)
        yield from (Path(folder, name) for name in names)


def _relative(place: Path) -> str:
    return place.relative_to(ROOT).as_posix()


def _searchable(file: Path) -> list[str]:
    if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_SEARCHED or not os.access(file, os.R_OK):
        return []
    data = file.read_bytes()
    return [] if b"\0" in data[:8192] else _decoded(data)[0].splitlines()


def _glob(pattern: str) -> re.Pattern[str]:
    """`**/` stands for any directories, none included; a pattern without a slash is for the name at any depth."""
    pattern = pattern if "/" in pattern else "**/" + pattern
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", pattern)
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts) + r"\Z", re.DOTALL)
