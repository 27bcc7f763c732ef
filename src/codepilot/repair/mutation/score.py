"""Mutation testing: the share of small mutants of the touched functions that the tests around a change kill."""

from __future__ import annotations

import difflib
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from codepilot.core.failures import CodePilotError
from codepilot.executor import Executor
from codepilot.project import Project
from codepilot.repair.backend import Failure
from codepilot.repair.edit import Proposal, Unreadable
from codepilot.repair.localise import Suspicion, TestTrace
from codepilot.repair.messages import Job, Selection
from codepilot.repair.python.backend import PythonBackend
from codepilot.repair.python.enumerate import candidates
from codepilot.repair.python.source import PythonSource, PythonUnit
from codepilot.repair.python.templates import TEMPLATES
from codepilot.repair.trial import Trial

_MUTATIONS = (
    *("operator.compare", "operator.binary", "operator.boolean", "operator.augmented", "operator.drop_unary"),
    *("operator.drop_condition", "value.number", "value.literal", "condition.negate", "statement.delete"),
    *("statement.return_other", "statement.jump"),
)
_RIVALS = (
    *_MUTATIONS,
    *("name.variable", "name.attribute", "value.index", "value.off_by_one", "value.range", "call.function"),
    *("call.method", "call.drop_argument", "call.swap_arguments", "condition.strengthen", "condition.weaken"),
)
"""Templates that mutate the changed lines: a test that cannot tell the change from these does not support it."""
_NEAR = 16
"""How many mutants of the changed lines are tried."""
_POOL = 2000
_MAX_TESTS = 200
_PATIENCE = 12.0


@dataclass(frozen=True)
class MutationScore:
    """`score` is killed / mutants, and 0 without mutants. `near` counts those of the changed lines."""

    mutants: int
    killed: int
    score: float
    near: int = 0
    near_killed: int = 0


def mutation_score(
    executor: Executor,
    workspace: str,
    project: Project,
    paths: Sequence[str],
    tests: Sequence[str],
    *,
    seconds: float,
    limit: int = 40,
    patched: Mapping[str, bytes] | None = None,
    originals: Mapping[str, bytes] | None = None,
) -> MutationScore | None:
    """The mutation score of the touched functions under the tests and all others in their files.

    `patched` replaces contents of the workspace; with `originals`, only functions that differ from them count. None
    means that there was nothing to mutate, or no time.
    """
    sources = _read(executor, workspace, paths, patched or {})
    if not sources or not tests:
        return None
    before = _read(executor, workspace, list(originals or {}), originals or {})
    deadline = time.monotonic() + seconds
    with Trial(
        PythonBackend(),
        executor,
        workspace,
        project,
        tuple(tests),
        deadline,
        tick=lambda: None,
        overlay=patched or {},
        green=True,
        whole=True,
    ) as trial:
        trial.start()
        chosen = [*tests, *(test for test in trial.collected if test not in tests)][:_MAX_TESTS]
        traces = [trace for trace in trial.trace(chosen) if trace.passed]
        units = _touched(sources, before, traces)
        near = _sample(_mutants(units, _RIVALS, changed_lines(sources, before)), _NEAR)
        known = {_edit(mutant) for mutant in near}
        others = [mutant for mutant in _mutants(units, _MUTATIONS) if _edit(mutant) not in known]
        mutants = [*near, *_sample(others, limit - len(near))]
        jobs = [job for index, mutant in enumerate(mutants) if (job := _job(index, mutant, traces)) is not None]
        results = [
            result for result in trial.judge(jobs, _PATIENCE).values() if result.outcome not in ("invalid", "reload")
        ]
    killed = [result.number for result in results if result.outcome != "passed"]
    if not results:
        return None
    return MutationScore(
        len(results),
        len(killed),
        round(len(killed) / len(results), 3),
        sum(result.number < len(near) for result in results),
        sum(number < len(near) for number in killed),
    )


def _read(
    executor: Executor, workspace: str, paths: Sequence[str], patched: Mapping[str, bytes]
) -> dict[str, PythonSource]:
    sources = {}
    for path in paths:
        try:
            data = patched[path] if path in patched else executor.read_file(workspace, path)
            sources[path] = PythonSource.read(path, data)
        except (Unreadable, CodePilotError):
            continue
    return sources


def _touched(
    sources: Mapping[str, PythonSource], originals: Mapping[str, PythonSource], traces: Iterable[TestTrace]
) -> dict[PythonSource, list[PythonUnit]]:
    """The functions that the change touched; without the originals, those that the tests run."""
    covered: dict[str, set[int]] = defaultdict(set)
    for trace in traces:
        for path, lines in trace.lines.items():
            covered[path] |= lines
    found: dict[PythonSource, list[PythonUnit]] = {}
    for path, source in sources.items():
        if path in originals:
            known = {(unit.qualname, unit.segment()) for unit in originals[path].units}
            units = [unit for unit in source.units if (unit.qualname, unit.segment()) not in known]
        else:
            units = [unit for unit in source.units if covered[path] & set(unit.lines)]
        if units:
            found[source] = units
    return found


def changed_lines(sources: Mapping[str, PythonSource], originals: Mapping[str, PythonSource]) -> dict[str, set[int]]:
    """The lines that the change wrote, by path; where it only deleted, those before and after."""
    found: dict[str, set[int]] = {}
    for path, source in sources.items():
        before = originals[path].text.splitlines() if path in originals else []
        blocks = difflib.SequenceMatcher(None, before, source.text.splitlines(), autojunk=False).get_opcodes()
        written = [
            (start - (kind == "delete"), end + (kind == "delete"))
            for kind, _, _, start, end in blocks
            if kind != "equal"
        ]
        found[path] = {line + 1 for start, end in written for line in range(start, end)}
    return found


def _edit(mutant: Proposal) -> tuple[str, int, int, str]:
    return mutant.source.path, mutant.edit.start, mutant.edit.end, mutant.edit.replacement


def _mutants(
    units: Mapping[PythonSource, Sequence[PythonUnit]], names: Sequence[str], only: Mapping[str, set[int]] | None = None
) -> list[Proposal]:
    """Mutants of the touched functions, or of `only` some lines; each line weighs the same."""
    lines = {
        source.path: {
            line: 1.0 for unit in found for line in unit.lines if only is None or line in only.get(source.path, ())
        }
        for source, found in units.items()
    }
    templates = tuple(template for template in TEMPLATES if template.name in names)
    sources = {source.path: source for source in units}
    every = candidates(sources, Suspicion(lines), Failure(), templates)
    return [one for one in itertools.islice(every, _POOL) if one.unit is not None]


def _sample(mutants: Sequence[Proposal], limit: int) -> list[Proposal]:
    """Spread over the lines: each line gives its best mutant before any gives its second."""
    by_line: dict[tuple[str, int], list[Proposal]] = defaultdict(list)
    for mutant in mutants:
        by_line[mutant.source.path, mutant.line].append(mutant)
    rounds = itertools.zip_longest(*by_line.values())
    return [mutant for row in rounds for mutant in row if mutant is not None][:limit]


def _job(number: int, mutant: Proposal, traces: Sequence[TestTrace]) -> Job | None:
    unit = mutant.unit
    assert unit is not None
    lines = set(unit.lines)
    covering = [trace.test for trace in traces if lines & trace.lines.get(unit.source.path, frozenset())]
    if not covering:
        return None
    return Job(number, mutant.source, mutant.edit, Selection((covering[0],), tuple(covering[1:])), unit)
