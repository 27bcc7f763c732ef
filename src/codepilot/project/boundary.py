"""Decides which host paths a repository may have mounted, and which interpreters count as installed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from codepilot.sandbox import base_python
from codepilot.store import Home

SYSTEM = tuple(Path(name) for name in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"))
"""Mounted in every sandbox."""

_WHOLE = tuple(Path(name) for name in ("/", "/etc", "/var", "/home", "/root", "/tmp"))
"""Never mounted as a whole."""

_CLOSED = tuple(Path(name) for name in ("/etc", "/var", "/proc", "/sys", "/dev", "/run", "/boot"))
"""Nothing in them is a project's source."""

_MARKERS = ("pyproject.toml", "setup.py", "setup.cfg")
_CODE = ("*.py", "*/__init__.py", "*/*/__init__.py")
_MARKER_LEVELS = 3


def is_within(path: Path, folder: Path) -> bool:
    """By names alone: no link is followed."""
    return path == folder or folder in path.parents


def points_into(path: Path, root: Path) -> bool:
    """True if a path leads into a directory, as written or after following links."""
    return any(is_within(one, other) for one in (path, path.resolve()) for other in (root, root.resolve()))


def read_head(path: Path, size: int = 1 << 20, *, within: Path | None = None) -> str:
    """The first bytes of a regular file as text; "" for a missing, special or unreadable one.

    With `within`, a link that leads out of that directory is not followed.
    """
    try:
        if within is not None and not is_within(path.resolve(), within.resolve()):
            return ""
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(size).decode("utf-8-sig", "replace") if regular else ""
    except (OSError, RuntimeError, ValueError):
        return ""


@dataclass(frozen=True)
class Boundary:
    """One checkout, the user's home by every spelling, and CodePilot's own home."""

    root: Path
    homes: tuple[Path, ...]
    own: Home | None

    @classmethod
    def around(cls, root: Path, environ: Mapping[str, str]) -> Boundary:
        return cls(root, _user_homes(environ), _own_home(environ))

    @property
    def is_clone(self) -> bool:
        """True if the checkout is CodePilot's clone of a URL, in which the user wrote nothing."""
        return self.own is not None and points_into(self.root, self.own.repos)

    def is_kept(self, path: Path) -> bool:
        """True if a path leads into CodePilot's clones or workspaces."""
        return self.own is not None and any(points_into(path, room) for room in (self.own.repos, self.own.workspaces))

    def is_own(self, path: Path) -> bool:
        """True if a path leads into CodePilot's home."""
        return self.own is not None and points_into(path, self.own.path)

    def out_of_tree(self, program: Path) -> Path:
        """The target of a link in the checkout. Elsewhere a link's own name counts, because some tools depend on it."""
        return program.resolve() if points_into(program.parent, self.root) else program

    def holds_too_much(self, path: Path) -> bool:
        """True if mounting it would expose the checkout's files, or all files of the user, the system or CodePilot."""
        own = (self.own.path, self.own.path.resolve()) if self.own else ()
        spellings = (path, path.resolve())
        if any(spelling in (self.root, self.root.resolve()) for spelling in spellings):
            return True
        return any(is_within(place, one) for place in (*_WHOLE, *self.homes, *own) for one in spellings)

    def may_name(self, target: Path, base_prefix: Path) -> bool:
        """True if an environment that the repository brings or chooses may have this path mounted.

        The checkout, the base interpreter's files, packages of another environment, and source of another project
        that is in no hidden or system directory.
        """
        real = target.resolve()
        if is_within(real, self.root.resolve()):
            return True
        if self.is_own(real) or self.holds_too_much(real):
            return False
        base = base_prefix.resolve()
        if any(is_within(real, place) for place in SYSTEM) or (is_within(real, base) and not self.holds_too_much(base)):
            return True
        if (environment := _environment_of(real)) is not None:
            return self._is_open(environment.parent)
        return self._is_open(real) and self._is_source(real)

    def _is_open(self, path: Path) -> bool:
        """In no system directory, and in no hidden one: below a home, its own name does not count."""
        home = next((home for home in self.homes if is_within(path, home)), None)
        parts = (path.relative_to(home) if home else path).parts
        return not any(is_within(path, place) for place in _CLOSED) and not any(part[0] == "." for part in parts)

    def _is_source(self, path: Path) -> bool:
        """A package, or Python code near the file that makes a directory a project, as an editable install has it."""
        if (path / "__init__.py").is_file():
            return True
        near = [place for place in (path, *path.parents)[:_MARKER_LEVELS] if not self.holds_too_much(place)]
        if not any((place / marker).is_file() for place in near for marker in _MARKERS):
            return False
        if path.is_file():
            return path.suffix in (".py", ".so")
        return any(next(path.glob(pattern), None) is not None for pattern in _CODE)


def _environment_of(site: Path) -> Path | None:
    """The virtual environment a directory holds the packages of."""
    environment = site.parent.parent.parent
    return environment if site.name == "site-packages" and (environment / "pyvenv.cfg").is_file() else None


def _user_homes(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The user's home by every spelling; a user without an account may have none."""
    found = [Path(environ.get("HOME", ""))]
    with contextlib.suppress(RuntimeError):
        found.append(Path.home())
    return tuple(dict.fromkeys(one for home in found if home.is_absolute() for one in (home, home.resolve())))


def _own_home(environ: Mapping[str, str]) -> Home | None:
    try:
        return Home.default(environ)
    except RuntimeError:
        return None


# Installed interpreters ------------------------------------------------------------------------------


_INSTALLED = (*SYSTEM, *map(Path, ("/opt/conda", "/opt/homebrew", "/opt/python", "/opt/hostedtoolcache", "/nix/store")))
_MANAGED = (
    *(".pyenv/versions", ".local/share/uv/python", ".rye/py", ".asdf/installs/python"),
    *(".local/share/mise/installs/python", "miniconda3", "anaconda3", "miniforge3", "mambaforge"),
)
"""Directories below the home in which version managers install interpreters."""
_MANAGERS = {"PYENV_ROOT": "versions", "UV_PYTHON_INSTALL_DIR": "", "ASDF_DATA_DIR": "installs/python"}
"""Variables by which a user moves such a directory, and the part of it that holds interpreters."""


def is_installed(base: Path, boundary: Boundary, environ: Mapping[str, str]) -> bool:
    """True for the system's, a version manager's and CodePilot's own interpreter, and for those on the user's PATH."""
    real = base.resolve()
    if real == base_python().resolve():
        return True
    folders = search_folders(boundary.root, environ)
    if any(base.parent == folder or real == (folder / base.name).resolve() for folder in folders):
        return True
    if is_script(real) or boundary.is_own(real) or points_into(real, boundary.root):
        return False
    return any(is_within(real, place) for place in (*_INSTALLED, *_managed(boundary, environ)))


def search_folders(root: Path, environ: Mapping[str, str]) -> list[Path]:
    """The absolute directories of the user's PATH that do not lead into the checkout."""
    folders = [Path(one) for one in environ.get("PATH", os.defpath).split(os.pathsep) if one.startswith(os.sep)]
    return [folder for folder in folders if not points_into(folder, root)]


def _managed(boundary: Boundary, environ: Mapping[str, str]) -> Iterator[Path]:
    for home in boundary.homes:
        yield from (home / place for place in _MANAGED)
    for name, below in _MANAGERS.items():
        if environ.get(name, "").startswith(os.sep):
            yield (Path(environ[name]) / below).resolve()


def is_script(path: Path) -> bool:
    """True for a text that another program runs, as version managers put them on the PATH."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
