"""What failing tests spell out: the texts in their own source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from codepilot.core.failures import CodePilotError
from codepilot.executor import Executor
from codepilot.repair.python.source import Function, Source, Unreadable

_MOST = 60
_LONGEST = 200


def expected_texts(executor: Executor, workspace: str, tests: Sequence[str]) -> tuple[str, ...]:
    """String literals of the tests, each once, as far as their files can be read."""
    found: dict[str, None] = {}
    sources: dict[str, Source | None] = {}
    for test in tests:
        path, _, rest = test.partition("::")
        if path not in sources:
            try:
                sources[path] = Source.read(path, executor.read_file(workspace, path))
            except (Unreadable, CodePilotError):
                sources[path] = None
        source = sources[path]
        name = rest.rpartition("::")[2].partition("[")[0]
        if source is not None:
            found.update(dict.fromkeys(_texts(source, name)))
    return tuple(found)[:_MOST]


def _texts(source: Source, name: str) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, Function) and node.name == name:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and 0 < len(part.value) <= _LONGEST:
                    yield part.value
