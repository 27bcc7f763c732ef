"""Mutation testing: the share of small mutants of the changed code that the tests around a change kill."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from codepilot.core.failures import CodePilotError
from codepilot.executor import Executor
from codepilot.project import Project
from codepilot.repair.backend import Failure
from codepilot.repair.edit import Proposal, Unreadable
from codepilot.repair.localise import Suspicion, TestTrace
from codepilot.repair.messages import Job, Selection
from codepilot.repair.mutation.outside import outside
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
_OUTSIDE = 10
"""How many mutants of changed lines outside of functions are tried: each loads its module anew."""
_POOL = 2000
_MAX_TESTS = 200
_MAX_FAILING = 20
_PATIENCE = 12.0


@dataclass(frozen=True)
class MutationScore:
    """`score` is killed / mutants, and 0 without mutants. `near` counts those of the changed lines."""

    mutants: int
    killed: int
    score: float
    near: int = 0
    near_killed: int = 0
    covering: int = 0
    """How many passing tests run the changed functions."""
    still_failing: tuple[str, ...] = ()
    """Failing tests that run the changed functions."""


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
    failing: Sequence[str] = (),
) -> MutationScore | None:
    """The mutation score of the touched functions under the tests and all others in their files.

    `failing` are tests that still fail; those that run the touched functions are named in the score.

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
        (*tests, *failing[:_MAX_FAILING]),
        deadline,
        tick=lambda: None,
        overlay=patched or {},
        green=True,
        whole=True,
    ) as trial:
        trial.start()
        files = {_file(test) for test in tests}
        others = [test for test in trial.collected if test not in tests and _file(test) in files]
        chosen = [*tests, *others][:_MAX_TESTS]
        left = [test for test in failing[:_MAX_FAILING] if test in trial.collected]
        ran = trial.trace(list(dict.fromkeys([*chosen, *left])))
        traces = [trace for trace in ran if trace.passed]
        units = _touched(sources, before, traces)
        reached = {trace.test for trace in ran if _runs(trace, units)}
        known = {trace.test for trace in ran}
        still = tuple(test for test in left if test in reached or test not in known)
        lines = changed_lines(sources, before)
        near = _sample(_mutants(units, _RIVALS, lines), _NEAR)
        if before:
            near = [*_sample(outside(sources, before, lines), _OUTSIDE), *near]
        edits = {_edit(mutant) for mutant in near}
        far = [mutant for mutant in _mutants(units, _MUTATIONS) if _edit(mutant) not in edits]
        mutants = [*near, *_sample(far, limit - len(near))]
        jobs = [job for index, mutant in enumerate(mutants) if (job := _job(index, mutant, traces, tests)) is not None]
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
        sum(trace.test in reached for trace in traces),
        still,
    )


def _file(test: str) -> str:
    """The file of a test, or its module where the runner names that."""
    return test.partition("::")[0] if "::" in test else test.rpartition(".")[0].rpartition(".")[0]


def _runs(trace: TestTrace, units: Mapping[PythonSource, Sequence[PythonUnit]]) -> bool:
    """True if a test runs a line of one of the functions."""
    return any(
        set(unit.lines) & trace.lines.get(source.path, frozenset()) for source, found in units.items() for unit in found
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
    """The lines that the change wrote, by path; where it only deleted, those before and after.

    Each function is compared with its original, and the rest with the rest: whole files take quadratic time.
    """
    found: dict[str, set[int]] = {}
    for path, source in sources.items():
        before = _lines_by_function(originals[path]) if path in originals else {}
        lines = found.setdefault(path, set())
        for name, now in _lines_by_function(source).items():
            old, new = ([text for _, text in one] for one in (before.get(name, ()), now))
            for kind, _, _, start, end in SequenceMatcher(None, old, new).get_opcodes():
                if kind == "delete":
                    lines.update(number for number, _ in now[max(0, start - 1) : end + 1])
                elif kind != "equal":
                    lines.update(number for number, _ in now[start:end])
    return found


def _lines_by_function(source: PythonSource) -> dict[str, list[tuple[int, str]]]:
    """The numbered lines of each outermost function, and under an empty name those outside of them."""
    owners = {line: unit.qualname for unit in source.units for line in unit.lines}
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, text in enumerate(source.text.splitlines(), 1):
        found[owners.get(number, "")].append((number, text))
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


def _job(number: int, mutant: Proposal, traces: Sequence[TestTrace], tests: Sequence[str]) -> Job | None:
    unit = mutant.unit
    if unit is None:
        passing = [trace.test for trace in traces]
        first = [test for test in passing if test in tests]
        rest = [test for test in passing if test not in tests]
        return Job(number, mutant.source, mutant.edit, Selection(tuple(first), tuple(rest))) if first else None
    lines = set(unit.lines)
    covering = [trace.test for trace in traces if lines & trace.lines.get(unit.source.path, frozenset())]
    if not covering:
        return None
    return Job(number, mutant.source, mutant.edit, Selection((covering[0],), tuple(covering[1:])), unit)
