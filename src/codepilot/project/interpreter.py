"""Finds the Python that runs a project's tests, and the host directories it needs inside the sandbox.

A virtual environment is read, not run: its files may be the repository's own. Only its base interpreter is run, to
ask for its version and paths. A base that the repository chose must be an installed interpreter (`is_installed`), and
is asked inside the sandbox.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project.boundary import (
    SYSTEM,
    Boundary,
    is_installed,
    is_script,
    is_within,
    points_into,
    read_head,
    search_folders,
)
from codepilot.project.probe import Answer, probe
from codepilot.project.suite import Interpreter
from codepilot.sandbox import own_python

_VENV_NAMES = (".venv", "venv")

OWN = "CodePilot's own"
_FLAG = "--python"
_CONFIGURED = "[project] python"
_ACTIVE = "$VIRTUAL_ENV"


def find_interpreter(
    root: Path,
    *,
    python: str | None,
    configured: str | None,
    environ: Mapping[str, str],
    named_by_user: bool = False,
    folder: str = "",
) -> Interpreter:
    """The first of: the flag, the configuration, $VIRTUAL_ENV, the checkout's own environment, CodePilot's.

    An environment in the project's `folder` comes before one of a directory around it.

    `named_by_user` says that `configured` comes from the user's own configuration and not from the repository's.
    """
    boundary = Boundary.around(root.absolute(), environ)
    if python:
        found = _named(python, boundary.root, environ, _FLAG)
        return _describe(Choice(found, _FLAG, by_user=not points_into(found.parent, boundary.root)), boundary, environ)
    if configured:
        found = _named(configured, boundary.root, environ, _CONFIGURED)
        absolute = os.sep not in configured or _expanded(Path(configured)).is_absolute()
        by_user = named_by_user and absolute and not points_into(found.parent, boundary.root)
        return _describe(Choice(found, _CONFIGURED, by_user=by_user), boundary, environ)
    for origin, home in _environments(boundary, environ, folder):
        by_user = origin == _ACTIVE and not points_into(home, boundary.root)
        return _describe(Choice(_venv_python(home, origin), origin, by_user=by_user), boundary, environ)
    return _describe(Choice(own_python(), OWN, by_user=True), boundary, environ)


def has_environment(root: Path, environ: Mapping[str, str], folder: str = "") -> bool:
    """True if the user or the checkout has an environment for the project."""
    return any(True for _ in _environments(Boundary.around(root.absolute(), environ), environ, folder))


@dataclass(frozen=True)
class Choice:
    """An interpreter, what named it, and whether that was the user rather than the repository."""

    python: Path
    origin: str
    by_user: bool


def _environments(boundary: Boundary, environ: Mapping[str, str], folder: str) -> Iterator[tuple[str, Path]]:
    """Environments that exist, none of a clone's. CodePilot's own being active says nothing about the project."""
    active = environ.get("VIRTUAL_ENV", "")
    if active and Path(active).is_dir() and Path(active).resolve() != Path(sys.prefix).resolve():
        home = Path(os.path.normpath(Path(active).absolute()))
        if not (boundary.is_clone and points_into(home, boundary.root)):
            yield _ACTIVE, home
    inner = boundary.root / folder
    around = [one for one in (inner, *inner.parents) if one == boundary.root or boundary.root in one.parents]
    for place in () if boundary.is_clone else around:
        for name in _VENV_NAMES:
            if (place / name / "pyvenv.cfg").is_file():
                yield name, place / name


def _venv_python(home: Path, origin: str) -> Path:
    for name in ("python", "python3"):
        if os.access(home / "bin" / name, os.X_OK):
            return home / "bin" / name
    raise CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"The environment {home} ({origin}) has no working interpreter in bin/.",
        next_action="Create it again (python -m venv), or name another interpreter with --python.",
    )


def _named(named: str, root: Path, environ: Mapping[str, str], origin: str) -> Path:
    """A path, a directory of an environment, or a command on the PATH. Only the flag counts from where one is."""
    if os.sep not in named:
        found = shutil.which(named, path=os.pathsep.join(map(str, search_folders(root, environ))))
        candidates = [Path(found)] if found else []
    else:
        path = _expanded(Path(named))
        candidates = [path.absolute(), root / path] if origin == _FLAG else [root / path]
    for candidate in (Path(os.path.normpath(one)) for one in candidates):
        if candidate.is_dir() and (candidate / "bin").is_dir():
            return _venv_python(candidate, origin)
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise CodePilotError(
        FailureKind.INVALID_SPEC,
        f"There is no interpreter {named!r} ({origin}).",
        next_action="Give the path of a Python 3.8 or newer, such as .venv/bin/python.",
    )


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _describe(choice: Choice, boundary: Boundary, environ: Mapping[str, str]) -> Interpreter:
    venv = _venv_of(choice.python)
    base = boundary.out_of_tree(_base_of(choice.python, venv))
    _check(base, venv, choice.origin, boundary)
    if not choice.by_user and not is_installed(base, boundary, environ):
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The interpreter {base} ({choice.origin}), which the repository chose, is not an installed one.",
            next_action="Name it yourself: with --python, in your own configuration, or by putting it on your PATH.",
            python=str(base),
        )
    answer = probe(base) if choice.by_user or is_script(base) else _probe_inside(base.resolve(), boundary)
    if venv is None and _venv_of(Path(answer.executable)) is not None:
        return _describe(replace(choice, python=Path(answer.executable)), boundary, environ)
    python = choice.python if venv is not None else Path(answer.executable)
    return _assemble(python, venv, answer, choice.origin, boundary)


def _probe_inside(base: Path, boundary: Boundary) -> Answer:
    prefix = base.parent.parent
    return probe(base, base if boundary.holds_too_much(prefix) else prefix)


def _check(base: Path, venv: Path | None, origin: str, boundary: Boundary) -> None:
    """Refuse a program that is not named like Python, and files that the repository or an agent may have written."""
    if not base.name.startswith(("python", "pypy", "graalpy")):
        named = f"The environment {venv} ({origin}) names {base}" if venv else f"{origin} names {base}"
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"{named} as the interpreter, which is no Python by its name.",
            next_action="Name an interpreter called python, or a virtual environment of one, with --python.",
        )
    if origin != OWN and venv is not None and boundary.is_kept(venv):
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The environment {venv} ({origin}) lies where CodePilot keeps clones and workspaces, and is not used.",
            next_action="Name an environment outside the clone with --python.",
        )
    inside = "the repository" if is_within(base.resolve(), boundary.root.resolve()) else ""
    if origin != OWN and boundary.is_own(base):
        inside = inside or "CodePilot's home"
    if inside:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The interpreter {base} ({origin}) is a file inside {inside}, which is never run on the host.",
            next_action="Name an interpreter or a virtual environment whose base lies outside with --python.",
        )


def _assemble(python: Path, venv: Path | None, answer: Answer, origin: str, boundary: Boundary) -> Interpreter:
    root = boundary.root
    sites = _sites(venv, answer) if venv else tuple(Path(site) for site in answer.sites)
    shared = answer.has_pytest and (venv is None or _sees_system(venv))
    targets = _targets(sites, venv, answer, origin, boundary)
    own = tuple(str(path) for path in targets if points_into(path, root))
    needed = [*environment_mounts(python, venv, answer), *targets]
    wanted = [path for path in needed if not points_into(path, root) or (venv is not None and is_within(path, venv))]
    return Interpreter(
        executable=str(python),
        version=answer.version,
        prefix=str(venv) if venv else answer.prefix,
        base_prefix=answer.base_prefix,
        origin=origin,
        mounts=prune(wanted, boundary),
        sites=tuple(str(site) for site in sites),
        editable=own,
        has_pytest=shared or any((site / "pytest" / "__init__.py").is_file() for site in (*sites, *targets)),
    )


def _targets(
    sites: tuple[Path, ...], venv: Path | None, answer: Answer, origin: str, boundary: Boundary
) -> tuple[Path, ...]:
    """Paths that the sites point at: all if the user chose the sites, else those that a repository may name."""
    if venv is None or not (origin == _CONFIGURED or points_into(venv, boundary.root)):
        return site_targets(sites)
    base = Path(answer.base_prefix)
    brought = [site for site in sites if is_within(site, venv)]
    allowed = [path for path in site_targets(brought) if boundary.may_name(path, base)]
    chosen = site_targets(site for site in sites if site not in brought)
    return tuple(dict.fromkeys([*allowed, *chosen]))


def _venv_of(python: Path) -> Path | None:
    """The environment an executable belongs to, by its pyvenv.cfg, as Python itself finds it."""
    for folder in (python.parent, python.parent.parent):
        if (folder / "pyvenv.cfg").is_file():
            return folder
    return None


def _base_of(python: Path, venv: Path | None) -> Path:
    """The interpreter behind an environment: where its symlink leads or, for a copy, where pyvenv.cfg says."""
    if venv is None:
        return python
    target = python.resolve()
    if _venv_of(target) is None:
        return target
    settings = _read_cfg(venv)
    if named := settings.get("base-executable"):
        return venv / named
    home = venv / settings.get("home", "/nonexistent")
    version = settings.get("version") or settings.get("version_info") or ""
    names = ("python" + ".".join(version.split(".")[:2]), "python3", "python")
    return next((home / name for name in names if (home / name).is_file()), home / "python3")


def _sites(venv: Path, answer: Answer) -> tuple[Path, ...]:
    own: dict[Path, Path] = {}
    for lib in ("lib", "lib64"):
        for site in sorted(venv.glob(f"{lib}/*/site-packages")):
            own.setdefault(site.resolve(), site)
    return (*own.values(), *map(Path, answer.sites)) if _sees_system(venv) else tuple(own.values())


def _sees_system(venv: Path) -> bool:
    return _read_cfg(venv).get("include-system-site-packages", "").lower() == "true"


def _read_cfg(venv: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in read_head(venv / "pyvenv.cfg").splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


# Mounts ----------------------------------------------------------------------------------------------


_MAX_HOPS = 40


def environment_mounts(python: Path, venv: Path | None, answer: Answer) -> list[Path]:
    """The environment, its base, every link on the way to the executable, and stray library directories."""
    wanted = [Path(answer.prefix), Path(answer.base_prefix), Path(answer.exec_prefix)]
    if venv is not None:
        wanted.append(venv)
    if answer.libdir:
        wanted.append(Path(answer.libdir))
    wanted.extend(Path(entry) for entry in answer.path)
    wanted.extend(_hops(python, [path.resolve() for path in wanted]))
    return [spelling for path in wanted for spelling in (path, path.resolve())]


def _hops(python: Path, covered: Sequence[Path]) -> Iterator[Path]:
    """Each spelling on a chain of links, by the interpreter's directory where it is one, else by the file alone."""
    end = python.resolve()
    for _ in range(_MAX_HOPS):
        if python.resolve() != end:
            return  # read by names, a link whose directory is itself a link may name another file
        prefix = python.parent.parent
        yield prefix if any(prefix.resolve() == other for other in covered) else python
        if not python.is_symlink():
            return
        python = Path(os.path.normpath(python.parent / python.readlink()))


def site_targets(sites: Iterable[Path]) -> tuple[Path, ...]:
    """The paths that .pth files, egg links and editable finders of these directories point at."""
    found: dict[Path, None] = {}
    for site in sites:
        links = sorted([*site.glob("*.pth"), *site.glob("*.egg-link")]) if site.is_dir() else []
        for link in links:
            for path in _link_targets(site, link):
                if not is_within(path, site):
                    found[path] = None
    return tuple(found)


def _link_targets(site: Path, link: Path) -> Iterator[Path]:
    for line in read_head(link).splitlines():
        line = line.strip()
        if line.startswith(("import ", "import\t")):
            yield from _finder_targets(site, line)
        elif line and not line.startswith("#"):
            yield from _existing(str(site / line))


def _finder_targets(site: Path, line: str) -> Iterator[Path]:
    """Absolute paths written in an editable install's finder module."""
    name = line[len("import") :].split(";")[0].strip()
    finder = site / f"{name}.py"
    if not name.isidentifier() or "editable" not in name or not finder.is_file():
        return
    try:
        tree = ast.parse(read_head(finder))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/"):
            yield from _existing(node.value)


def _existing(name: str) -> Iterator[Path]:
    """A path if it is one that can be reached: the directory itself, or the file of a single module."""
    if "\0" not in name and name.strip("/"):
        path = Path(os.path.normpath(name))
        if os.access(path, os.F_OK):
            yield path


def prune(paths: Iterable[Path], boundary: Boundary) -> tuple[str, ...]:
    """Each place once, outermost first. Never the system's, never the checkout, never what holds a home."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda one: (len(one.parts), str(one))):
        useless = not path.exists() or any(is_within(path, place) for place in (*SYSTEM, *kept))
        if not useless and not boundary.holds_too_much(path):
            kept.append(path)
    return tuple(str(path) for path in kept)
