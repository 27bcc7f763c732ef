"""What the search knows before it tries: of the failure, of the tests, and of each proposal."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from codepilot.repair.client import Job
from codepilot.repair.localise import TestTrace
from codepilot.repair.protocol import SearchRequest
from codepilot.repair.python.context import Failure
from codepilot.repair.python.enumerate import Proposal
from codepilot.repair.python.examples import examples
from codepilot.repair.python.source import Source, Unit
from codepilot.repair.selection import Related
from codepilot.repair.testfiles import TestFiles

MAX_PROMISES = 20


def loads_anew(
    entered: Mapping[str, frozenset[int]], failing: Sequence[TestTrace], source: Source, unit: Unit | None
) -> bool:
    """Whether the project must be loaded anew to try an edit: of a module, or of what ran only while it was loaded."""
    path = source.path
    if unit is None or unit.first_line not in entered.get(path, ()):
        return unit is None
    return all(trace.lines.get(path, frozenset()).isdisjoint(unit.lines) for trace in failing)


def judges(request: SearchRequest) -> TestFiles:
    """The files that a repair never edits."""
    return TestFiles((*request.baseline.collected, *request.targets), request.project.runner)


def of_the_project(traces: Sequence[TestTrace], tests: TestFiles) -> list[TestTrace]:
    """Coverage without what judges a repair."""
    kept = []
    for trace in traces:
        lines = {path: found for path, found in trace.lines.items() if path not in tests}
        ways = {path: found for path, found in trace.ways.items() if path not in tests}
        frames = tuple(place for place in trace.frames if place[0] not in tests)
        kept.append(replace(trace, lines=lines, ways=ways, frames=frames))
    return kept


def failure_of(failing: Sequence[TestTrace]) -> Failure:
    return Failure(
        tuple(dict.fromkeys(trace.exception for trace in failing if trace.exception)),
        tuple(trace.message for trace in failing),
        tuple(place for trace in failing for place in trace.frames),
    )


def promises(proposal: Proposal) -> tuple[tuple[str, str], ...]:
    """Examples in the documentation of the file's functions, the edited one's first."""
    own = proposal.unit.node.name if proposal.unit is not None else ""
    units = sorted(proposal.source.units, key=lambda unit: unit.node.name != own)
    found = [examples(ast.get_docstring(unit.node) or "", unit.node.name) for unit in units]
    return tuple(itertools.chain.from_iterable(found))[:MAX_PROMISES]


def job_of(proposal: Proposal, related: Related, everything: bool) -> Job:
    selection = related.everything(proposal) if everything else related.near(proposal)
    return Job(proposal.position, proposal.source, proposal.edit, selection, proposal.unit)
