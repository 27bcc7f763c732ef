"""The Python implementation of `LanguageBackend`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from codepilot.core.failures import CodePilotError
from codepilot.project import Project
from codepilot.repair.backend import SearchFacts
from codepilot.repair.edit import Edit, Proposal, Source, Unit, Unreadable
from codepilot.repair.python.bootstrap import BOOT, WORKER, bundle
from codepilot.repair.python.claims import claims
from codepilot.repair.python.documentation import examples
from codepilot.repair.python.enumerate import candidates
from codepilot.repair.python.names_used import name_use
from codepilot.repair.python.obstacles import unparsed
from codepilot.repair.python.priors import PRIORS
from codepilot.repair.python.related import general_rivals, literals_of, same_edit_elsewhere, special_case
from codepilot.repair.python.source import Function, PythonSource, PythonUnit, python_sources
from codepilot.repair.python.synthesis import synthesise
from codepilot.repair.python.test_files import TestFiles, file_of

if TYPE_CHECKING:
    from codepilot.repair.trial import Trial

_MAX_EXAMPLES = 20
_MAX_SIBLINGS = 6
_MAX_TEXTS, _MAX_TEXT = 60, 200


class PythonBackend:
    """Searches Python projects that pytest or unittest tests."""

    best_prior = max(PRIORS.values())

    def worker_command(self, project: Project) -> tuple[tuple[str, ...], bytes]:
        return (project.interpreter.executable, "-c", BOOT), bundle(WORKER)

    def read(self, path: str, data: bytes) -> PythonSource:
        return PythonSource.read(path, data)

    def unparsed(self, log: str, project: Project) -> str:
        return unparsed(log, project.root)

    def judging_files(self, tests: Sequence[str], runner: str) -> Callable[[str], bool]:
        return TestFiles(tests, runner).__contains__

    def test_file(self, test: str) -> str:
        return file_of(test)

    def expected(self, read: Callable[[str], bytes], tests: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        texts: dict[str, None] = {}
        literals: set[str] = set()
        for test in tests:
            for node in _functions(self._test_source(read, test), _name(test)):
                literals |= literals_of(node)
                texts.update(dict.fromkeys(_texts(node)))
        return tuple(texts)[:_MAX_TEXTS], tuple(sorted(literals))

    def _test_source(self, read: Callable[[str], bytes], test: str) -> ast.Module | None:
        """The file of the test; for a dotted id, the module's path from the project's root."""
        path = file_of(test)
        try:
            return PythonSource.read(path, read(path if path.endswith(".py") else f"{path.replace('.', '/')}.py")).tree
        except (Unreadable, CodePilotError):
            return None

    def contrast(self, read: Callable[[str], bytes], test: str, passing: Sequence[str]) -> tuple[str, ...]:
        tree, name = self._test_source(read, test), _end(test)
        known = list(claims(tree)) if tree else []
        called = {one.function: one.call for one in known if one.test == name}
        in_file = {_end(other) for other in passing if file_of(other) == file_of(test)}
        held = [one for one in known if one.function in called and one.test != name and one.test in in_file]
        held.sort(key=lambda one: -SequenceMatcher(None, one.call, called[one.function]).ratio())
        return tuple(dict.fromkeys(one.text for one in held))[:_MAX_SIBLINGS]

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

    def general_rivals(self, proposal: Proposal) -> Iterator[Edit]:
        return general_rivals(proposal)

    def same_edit_elsewhere(self, proposal: Proposal) -> Edit | None:
        return same_edit_elsewhere(proposal)

    def special_case(self, proposal: Proposal, literals: frozenset[str]) -> str:
        return special_case(proposal, literals)

    def name_use(self, unit: Unit | None, edit: Edit) -> int:
        return name_use(unit, edit) if isinstance(unit, PythonUnit) else 0


def _end(test: str) -> str:
    """The test's function with its parameters."""
    return test.rpartition("::" if "::" in test else ".")[2]


def _name(test: str) -> str:
    """The name of the test's function."""
    return _end(test.partition("[")[0])


def _functions(tree: ast.Module | None, name: str) -> Iterator[ast.AST]:
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, Function) and node.name == name:
            yield node


def _texts(function: ast.AST) -> Iterator[str]:
    for part in ast.walk(function):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and 0 < len(part.value) <= _MAX_TEXT:
            yield part.value
