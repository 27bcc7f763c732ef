"""What of the host an interpreter needs to see inside: itself, its libraries, and packages installed in place."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codepilot.project.boundary import SYSTEM, Boundary, is_within, read_head
from codepilot.project.probe import Answer

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
    """Where .pth files, egg links and editable finders of these directories point."""
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
