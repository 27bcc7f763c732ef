"""What the doors may import, and that nothing below them reads the process's environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import codepilot

SOURCE = Path(codepilot.__file__).parent
DOORS = ("cli", "bench")

HOST = {
    "engine/settings.py": "`Settings.load` makes the value that everything below gets",
    "sandbox/levels/bubblewrap.py": "where the user's own bwrap is",
    "sandbox/limits/cgroup.py": "CODEPILOT_CGROUPS, a switch of the machine",
    "workspace/clone.py": "what the user's git, its credential helpers and ssh see",
    "workspace/git.py": "where the user's own git is",
}
INSIDE = (
    "project/plugin/",
    "project/probe.py",
    "repair/python/inside/",
    "sandbox/interpreter.py",
    "sandbox/standalone/",
    "skills/command_rules.py",
    "skills/running.py",
    "skills/suites.py",
)
"""Code that runs inside the sandbox, or starts a process of its own with the environment that it has there."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith("cli/example/"):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def reads_environment(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv") and _is_os(node.value))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and {"environ", "getenv"} & _names(node))
        for node in ast.walk(tree)
    )


def _is_os(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "os"


def _names(node: ast.ImportFrom) -> set[str]:
    return {name.name for name in node.names}


def test_nothing_below_a_door_reads_the_environment_of_the_process() -> None:
    reading = {name for name, tree in modules() if reads_environment(tree) and not name.startswith(DOORS)}
    below = {name for name in reading if not name.startswith(INSIDE)}
    assert below == set(HOST)


FACADE = {
    "Asked",
    "Begun",
    "CodePilot",
    "Listed",
    "Preparation",
    "Remembered",
    "Request",
    "Reviewed",
    "Settings",
    "WorkerPool",
}


def test_the_command_line_calls_the_facade_only() -> None:
    """Of the engine it imports the façade, its settings and the types in its methods; nothing opens the store."""
    for name, tree in modules():
        if not name.startswith("cli/"):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("codepilot."):
                continue
            room = str(node.module).split(".")[1]
            if room == "engine":
                assert (node.module, _names(node) - FACADE) == ("codepilot.engine", set()), name
            if room == "store":
                assert not _names(node) & {"Store", "Artifacts", "Home", "open_artifacts"}, name
