"""Test selection and the files of a search: which tests judge a candidate, and which files may be edited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from codepilot.core.artifacts import TestStatus
from codepilot.core.failures import CodePilotError
from codepilot.project import SuiteRun
from codepilot.repair.edit import Proposal, Source, Sources, Unit, Unreadable
from codepilot.repair.localise import Suspicion, TestTrace
from codepilot.repair.messages import Job, Selection

MAX_TESTS = 3000
MAX_LOADED = 4000
"""How many tests the chosen files may hold besides the targets' own: a file is loaded as a whole."""
MAX_TEST_SEC = 60.0
NEAR_TESTS, NEAR_SEC = 80, 2.0
ALL_SEC = 4.0
MAX_FILES = 400
LOADING = 0.03
"""The weight of a function that ran only at import, relative to the most suspicious line: each try needs a reload."""
RELOADED = 0.7
"""The factor for a function that also ran at import: keeping an edit of it takes a reload."""


def resolve(targets: Sequence[str], baseline: SuiteRun) -> tuple[str, ...]:
    """The collected ids that the targets stand for, only those that are red."""
    red = set(baseline.red)
    found: dict[str, None] = {}
    for target in targets:
        ids = baseline.resolved.get(target) or [
            test for test in baseline.collected if test == target or test.startswith((f"{target}::", f"{target}["))
        ]
        wanted = [test for test in ids if test in red] or list(ids) or [target]
        found.update(dict.fromkeys(wanted))
    return tuple(found)


def choose_tests(targets: Sequence[str], baseline: SuiteRun, file_of: Callable[[str], str]) -> tuple[str, ...]:
    """Passing tests worth running: those nearest to the targets first, as many as can be afforded."""
    passing = [test for test in baseline.having(TestStatus.PASSED) if test not in targets]
    own = frozenset(file_of(target) for target in targets)
    folders = {str(PurePosixPath(file).parent) for file in own}
    files = set(own)

    def distance(test: str) -> int:
        file = file_of(test)
        return 0 if file in own else 1 if str(PurePosixPath(file).parent) in folders else 2

    sizes = Counter(file_of(test) for test in baseline.collected)
    loaded = sum(sizes[file] for file in files)
    chosen: list[str] = []
    spent = 0.0
    for test in sorted(passing, key=distance)[:MAX_TESTS]:
        cost, file = baseline.cases[test].duration_sec, file_of(test)
        if file not in files and loaded + sizes[file] <= MAX_LOADED:
            files.add(file)
            loaded += sizes[file]
        if file in files and spent + cost <= MAX_TEST_SEC:
            spent += cost
            chosen.append(test)
    return tuple(chosen)


def read_sources(
    parse: Callable[[str, bytes], Source], read: Callable[[str], bytes], paths: Iterable[str]
) -> tuple[dict[str, Source], list[str]]:
    """The files that can be edited, and why others cannot: they cannot be read or parsed."""
    sources: dict[str, Source] = {}
    unread: list[str] = []
    for path in list(paths)[:MAX_FILES]:
        try:
            sources[path] = parse(path, read(path))
        except (Unreadable, CodePilotError) as error:
            unread.append(str(error))
    return sources, unread


def nothing_to_edit(failing: Sequence[TestTrace], judging: Callable[[str], bool], unread: Sequence[str]) -> str:
    """Why no candidate was made."""
    run = dict.fromkeys(path for trace in failing for path in trace.lines)
    code = [path for path in run if not judging(path)]
    if not run:
        return (
            "the failing test runs no Python file of the repository: the code under test is installed elsewhere, "
            "compiled, or runs in another process"
        )
    if not code:
        return f"the failing test runs only files that judge a repair ({_some(list(run))}); those are never edited"
    if unread:
        return f"what the failing test runs cannot be edited safely: {_some(unread)}"
    return f"no template fits what the failing test runs ({_some(code)})"


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def needs_reload(
    import_time: Mapping[str, frozenset[int]], failing: Sequence[TestTrace], source: Source, unit: Unit | None
) -> bool:
    """True if trying an edit means loading the project anew: for module code, or functions that ran only at import."""
    path = source.path
    if unit is None or unit.first_line not in import_time.get(path, ()):
        return unit is None
    return all(trace.lines.get(path, frozenset()).isdisjoint(unit.lines) for trace in failing)


def without_judging_files(traces: Sequence[TestTrace], judging: Callable[[str], bool]) -> list[TestTrace]:
    """The traces without the files that judge a repair."""
    kept = []
    for trace in traces:
        lines = {path: found for path, found in trace.lines.items() if not judging(path)}
        branches = {path: found for path, found in trace.branches.items() if not judging(path)}
        frames = tuple(place for place in trace.frames if not judging(place[0]))
        kept.append(replace(trace, lines=lines, branches=branches, frames=frames))
    return kept


def add_import_time(suspicion: Suspicion, sources: Sources, import_time: Mapping[str, frozenset[int]]) -> Suspicion:
    """Make functions that ran at import a little suspicious: their results are still in use.

    Those that failing tests run too lose some suspicion, as keeping an edit of them takes a reload.
    """
    top = max((score for known in suspicion.lines.values() for score in known.values()), default=0.0)
    weight = LOADING * top if top else 1.0
    lines = {path: dict(known) for path, known in suspicion.lines.items()}
    for path, source in sources.items():
        for unit in source.units:
            if unit.first_line in import_time.get(path, ()):
                known = lines.setdefault(path, {})
                for line in unit.lines:
                    known[line] = known[line] * RELOADED if line in known else weight
    return Suspicion({path: dict(sorted(known.items())) for path, known in sorted(lines.items())})


class TestSelector:
    """Test-case prioritisation by coverage: the tests that judge an edit, in the order of their traces."""

    __test__ = False

    def __init__(self, targets: Sequence[str], traces: Sequence[TestTrace]) -> None:
        costs = {trace.test: trace.cpu_sec for trace in traces}
        self._targets = tuple(sorted(targets, key=lambda test: round(costs.get(test, 0.0), 2)))
        self._passing = [trace for trace in traces if trace.passed and trace.test not in targets]
        self._near: dict[tuple[str, int], Selection] = {}
        self._through: dict[tuple[str, int], list[TestTrace]] = {}
        failing = [trace.lines for trace in traces if trace.test in targets]
        self.lines_run = len({(path, line) for lines in failing for path, found in lines.items() for line in found})
        """How many lines the targets run: the more, the likelier that some wrong edit makes them pass."""

    def near(self, proposal: Proposal) -> Selection:
        """Tests that run through the function (or the file), within a small budget."""
        key = proposal.function
        if key not in self._near:
            covering = self._covering(proposal)
            afforded = _afford(_cheapest_first(covering), NEAR_SEC, NEAR_TESTS)
            self._near[key] = self._selection(afforded)
        return self._near[key]

    def everything(self, proposal: Proposal) -> Selection:
        """Those tests and all others, within a larger budget."""
        covering = self._covering(proposal)
        first = {trace.test for trace in covering}
        rest = [trace for trace in self._passing if trace.test not in first]
        afforded = _afford([*_cheapest_first(covering), *_cheapest_first(rest)], ALL_SEC, MAX_TESTS)
        return self._selection(afforded, thorough=True)

    def job(self, proposal: Proposal, everything: bool = False) -> Job:
        selection = self.everything(proposal) if everything else self.near(proposal)
        return Job(proposal.position, proposal.source, proposal.edit, selection, proposal.unit)

    def _selection(self, cheap: Sequence[str], thorough: bool = False) -> Selection:
        chosen = set(cheap)
        others = tuple(trace.test for trace in self._passing if trace.test in chosen)
        return Selection(self._targets, others, thorough, tuple(cheap))

    def covering_tests(self, proposal: Proposal) -> int:
        """How many tests run the edited lines: a wrong edit would show in one of them."""
        source, edit = proposal.source, proposal.edit
        edited = {proposal.line, *range(source.line_of(edit.start), source.line_of(edit.end) + 1)}
        lines = [trace.lines.get(source.path, frozenset()) for trace in self._covering(proposal)]
        return len(self._targets) + sum(not edited.isdisjoint(found) for found in lines)

    def passing_through(self, proposal: Proposal) -> int:
        """How many passing tests run the edited function."""
        return len(self._covering(proposal))

    def _covering(self, proposal: Proposal) -> list[TestTrace]:
        key = proposal.function
        if key not in self._through:
            path, lines = proposal.source.path, set(proposal.unit.lines) if proposal.unit else None
            reached = ((trace, trace.lines.get(path)) for trace in self._passing)
            self._through[key] = [trace for trace, found in reached if found and (lines is None or lines & found)]
        return self._through[key]


def _cheapest_first(traces: Iterable[TestTrace]) -> list[TestTrace]:
    return sorted(traces, key=lambda trace: (round(trace.cpu_sec, 3), trace.test))


def _afford(traces: Sequence[TestTrace], seconds: float, count: int) -> list[str]:
    chosen: list[str] = []
    spent = 0.0
    for trace in traces[:count]:
        spent += trace.wall_sec
        if spent > seconds and chosen:
            break
        chosen.append(trace.test)
    return chosen
