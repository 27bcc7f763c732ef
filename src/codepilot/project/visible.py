"""What of the host an interpreter needs to see inside: itself, its libraries, and packages installed in place."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codepilot.project.probe import Answer

SYSTEM = tuple(Path(name) for name in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"))
"""What every sandbox shows anyway."""

MAX_LINK_BYTES = 1 << 20
_MAX_HOPS = 40


def is_within(path: Path, folder: Path) -> bool:
    """By names alone: no link is followed."""
    return path == folder or folder in path.parents


def points_into(path: Path, root: Path) -> bool:
    """Whether a path leads into the checkout, by its own spelling or after following links."""
    return any(is_within(one, other) for one in (path, path.resolve()) for other in (root, root.resolve()))


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
    for _ in range(_MAX_HOPS):
        prefix = python.parent.parent
        yield prefix if any(prefix.resolve() == other for other in covered) else python
        if not python.is_symlink():
            return
        python = Path(os.path.normpath(python.parent / python.readlink()))


def site_targets(sites: Iterable[Path]) -> tuple[Path, ...]:
    """Where .pth files, egg links and editable finders of these directories point."""
    found: dict[Path, None] = {}
    for site in sites:
        links = sorted([*site.glob("*.pth"), *site.glob("*.egg-link")]) if site.is_dir() else []
        for link in links:
            for path in _link_targets(site, link):
                if path.exists() and not is_within(path, site):
                    found[path] = None
    return tuple(found)


def _link_targets(site: Path, link: Path) -> Iterator[Path]:
    for line in _read(link).splitlines():
        line = line.strip()
        if line.startswith(("import ", "import\t")):
            yield from _finder_targets(site, line)
        elif line and not line.startswith("#"):
            yield Path(os.path.normpath(site / line))


def _finder_targets(site: Path, line: str) -> Iterator[Path]:
    """Absolute paths written in an editable install's finder module."""
    name = line[len("import") :].split(";")[0].strip()
    finder = site / f"{name}.py"
    if not name.isidentifier() or "editable" not in name or not finder.is_file():
        return
    try:
        tree = ast.parse(_read(finder))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/"):
            yield from _existing(node.value)


def _existing(name: str) -> Iterator[Path]:
    """A path if it is one: the directory itself, or the file of a single module."""
    if "\0" not in name and len(name) < 4096 and name.strip("/"):
        path = Path(os.path.normpath(name))
        if path.exists():
            yield path


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_LINK_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def prune(paths: Iterable[Path], root: Path) -> tuple[str, ...]:
    """Each place once, outermost first. Never the system's, never the checkout, never what holds the user's home."""
    homes = _homes()
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda one: (len(one.parts), str(one))):
        useless = not path.exists() or any(is_within(path, place) for place in (*SYSTEM, *kept))
        too_much = any(is_within(home, path) for home in homes) or path in (root, Path("/"))
        if not useless and not too_much:
            kept.append(path)
    return tuple(str(path) for path in kept)


def _homes() -> tuple[Path, ...]:
    """The user's home by both spellings; a user without an account has none."""
    try:
        home = Path.home()
    except RuntimeError:
        return ()
    return home, home.resolve()
