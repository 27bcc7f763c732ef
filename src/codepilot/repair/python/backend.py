"""The Python implementation of `LanguageBackend`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from codepilot.core.failures import CodePilotError
from codepilot.project import Project
from codepilot.repair.backend import SearchFacts
from codepilot.repair.edit import Edit, Proposal, Source, Unit, Unreadable
from codepilot.repair.python.bootstrap import BOOT, WORKER, bundle
from codepilot.repair.python.documentation import examples
from codepilot.repair.python.enumerate import candidates
from codepilot.repair.python.names_used import name_use
from codepilot.repair.python.priors import PRIORS
from codepilot.repair.python.source import Function, PythonSource, PythonUnit, python_sources
from codepilot.repair.python.synthesis import synthesise
from codepilot.repair.python.test_files import TestFiles, file_of

if TYPE_CHECKING:
    from codepilot.repair.trial import Trial

_MAX_EXAMPLES = 20
_MAX_TEXTS, _MAX_TEXT = 60, 200


class PythonBackend:
    """Searches Python projects that pytest or unittest tests."""

    best_prior = max(PRIORS.values())

    def worker_command(self, project: Project) -> tuple[tuple[str, ...], bytes]:
        return (project.interpreter.executable, "-c", BOOT), bundle(WORKER)

    def read(self, path: str, data: bytes) -> PythonSource:
        return PythonSource.read(path, data)

    def judging_files(self, tests: Sequence[str], runner: str) -> Callable[[str], bool]:
        return TestFiles(tests, runner).__contains__

    def test_file(self, test: str) -> str:
        return file_of(test)

    def expected_texts(self, read: Callable[[str], bytes], tests: Sequence[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        sources: dict[str, PythonSource | None] = {}
        for test in tests:
            path, _, rest = test.partition("::")
            if path not in sources:
                try:
                    sources[path] = PythonSource.read(path, read(path))
                except (Unreadable, CodePilotError):
                    sources[path] = None
            source = sources[path]
            name = rest.rpartition("::")[2].partition("[")[0]
            if source is not None:
                found.update(dict.fromkeys(_texts(source, name)))
        return tuple(found)[:_MAX_TEXTS]

    def candidates(self, facts: SearchFacts, wanted: Callable[[Source, Unit | None], bool]) -> Iterator[Proposal]:
        return candidates(python_sources(facts.sources), facts.suspicion, facts.failure, wanted=wanted)

    def synthesise(
        self, trial: Trial, facts: SearchFacts, seconds: float, position: int, enough: Callable[[], bool]
    ) -> Iterator[Proposal]:
        return synthesise(trial, facts, seconds, position, enough)

    def documented_examples(self, proposal: Proposal) -> tuple[tuple[str, str], ...]:
        source, unit = proposal.source, proposal.unit
        assert isinstance(source, PythonSource)
        own = unit.node.name if isinstance(unit, PythonUnit) else ""
        units = sorted(source.units, key=lambda unit: unit.node.name != own)
        found = [examples(ast.get_docstring(unit.node) or "", unit.node.name) for unit in units]
        return tuple(itertools.chain.from_iterable(found))[:_MAX_EXAMPLES]

    def name_use(self, unit: Unit | None, edit: Edit) -> int:
        return name_use(unit, edit) if isinstance(unit, PythonUnit) else 0


def _texts(source: PythonSource, name: str) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, Function) and node.name == name:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and 0 < len(part.value) <= _MAX_TEXT:
                    yield part.value
