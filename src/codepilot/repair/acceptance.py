"""Accepts or rejects candidates that made the targets pass, and says what speaks against those that it rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codepilot.repair.backend import LanguageBackend, SearchFacts
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.ledger import Ledger
from codepilot.repair.localise import TestTrace
from codepilot.repair.messages import Evidence, Job, Selection
from codepilot.repair.rank import Objection, Plausible
from codepilot.repair.suspect import LEAST_SIBLINGS
from codepilot.repair.trial import Trial

PATIENCE = 12.0
"""The multiple of its budget that a candidate gets before it is kept."""
LAST_PATIENCE = 60.0
"""The multiple that it gets when that ran out."""
DERIVED = 1 << 31
"""Where the positions of candidates begin that follow from others."""


@dataclass
class Acceptance:
    """Judges candidates by all tests there is time for, by documented examples and by what they leave failing."""

    backend: LanguageBackend
    trial: Trial
    facts: SearchFacts
    ledger: Ledger
    refused: Sequence[bytes]
    failing: Sequence[TestTrace]
    """The targets."""
    also_failing: Sequence[str]
    traces: Sequence[TestTrace]

    def __post_init__(self) -> None:
        self._other = {trace.test: trace for trace in self.traces if trace.test in self.also_failing}
        self._rivals = set[bytes]()
        self._literals = frozenset(self.facts.failure.literals)
        self._of_targets = frozenset[tuple[str, int]]().union(*map(self._functions, self.failing))

    def keep(self, proposal: Proposal, patience: float = PATIENCE) -> bool:
        """Keep a candidate if it breaks none of all the tests there is time for. False if there was no time."""
        known = self._plausible(proposal, patience)
        if known is None:
            return True
        if isinstance(known, bool):
            return known
        self.ledger.found.append(known)
        for edit in self.backend.general_rivals(proposal):
            content = proposal.source.apply(edit)
            if content is None or content in self._rivals:
                continue
            self._rivals.add(content)
            rival = self._plausible(self._following(proposal, edit), patience)
            if isinstance(rival, Plausible):
                self.ledger.found.append(replace(rival, rival_of=proposal.position))
        everywhere = self.backend.same_edit_elsewhere(proposal) if len(self.also_failing) > known.also_fixed else None
        if everywhere is not None:
            more = self._plausible(self._following(proposal, everywhere), patience)
            if isinstance(more, Plausible) and more.also_fixed > known.also_fixed:
                self.ledger.found.append(more)
        return True

    def _following(self, proposal: Proposal, edit: Edit) -> Proposal:
        """A candidate that follows from another one."""
        taken = {one.proposal.position for one in self.ledger.found}
        position = next(at for at in range(DERIVED, DERIVED + len(taken) + 1) if at not in taken)
        unit = proposal.unit if proposal.unit is not None and proposal.unit.holds(edit) else None
        return replace(proposal, position=position, edit=edit, unit=unit, after=self.ledger.position)

    def _plausible(self, proposal: Proposal, patience: float) -> Plausible | bool | None:
        """What is known of a candidate that breaks nothing; True if it breaks something, None if it is known already,
        False if there was no time."""
        selector = self.facts.selector
        job = selector.job(proposal, everything=True)
        content = job.content
        if content is None or content in self.refused or self.ledger.has(proposal.source.path, content):
            return None
        result = self.trial.confirm(job, max(PATIENCE, patience))
        if result is not None and result.outcome == "timeout":  # a busy machine may have held it up
            result = self.trial.confirm(job, LAST_PATIENCE)
        if result is None:
            return False
        if result.outcome != "passed":
            if result.test is not None and result.test in job.selection.others:
                self.ledger.reject(proposal, result.test)
            return True
        left = self._still_failing(job)
        examples = self.backend.documented_examples(proposal)
        evidence = self.trial.examine(selector.job(proposal), examples)
        objection, leaves = self._objection(proposal, evidence, examples, left)
        return Plausible(
            proposal,
            content,
            selector.covering_tests(proposal),
            len(self.also_failing) - len(left),
            evidence,
            selector.lines_run,
            self.backend.name_use(proposal.unit, proposal.edit),
            objection,
            leaves,
        )

    def _still_failing(self, job: Job) -> list[str]:
        """The other failing tests that the candidate leaves failing."""
        tests = list(self.also_failing)
        jobs = [replace(job, number=at, selection=Selection((test,), thorough=True)) for at, test in enumerate(tests)]
        results = self.trial.judge(jobs, PATIENCE) if jobs else {}
        return [test for at, test in enumerate(tests) if at not in results or results[at].outcome != "passed"]

    def _objection(
        self, proposal: Proposal, evidence: Evidence, examples: Sequence[tuple[str, str]], left: Sequence[str]
    ) -> tuple[Objection | None, str]:
        """Why the candidate is no repair, and a test that it leaves failing although that may have another reason."""
        if evidence.lost:
            call, value = examples[evidence.lost[0]]
            return Objection("example", f"the documented example `{call}` → `{value}`"), ""
        literal = self.backend.special_case(proposal, self._literals)
        if literal and self.facts.selector.passing_through(proposal) >= LEAST_SIBLINGS:
            return Objection("special_case", f"the pattern of passing tests: it is a special case for `{literal}`"), ""
        near = [self._other[test] for test in left if self._runs(self._other.get(test), proposal)]
        same = next((trace.test for trace in near if self._same_reason(trace, proposal)), None)
        if same is not None:
            return Objection("sibling", same), ""
        return None, near[0].test if near else ""

    def _runs(self, trace: TestTrace | None, proposal: Proposal) -> bool:
        return trace is not None and proposal.unit is not None and proposal.function in self._functions(trace)

    def _same_reason(self, trace: TestTrace, proposal: Proposal) -> bool:
        """True if the test fails as the targets do, in the edited function or on its result, and runs nothing else."""
        place = trace.frames[-1] if trace.frames else None
        assert proposal.unit is not None
        inside = place is None or (place[0] == proposal.source.path and place[1] in proposal.unit.lines)
        alike = trace.exception in {one.exception for one in self.failing}
        return inside and alike and self._functions(trace) <= self._of_targets

    def _functions(self, trace: TestTrace) -> frozenset[tuple[str, int]]:
        """The functions of the project that a test runs."""
        return frozenset(
            (path, unit.start)
            for path, source in self.facts.sources.items()
            for unit in source.units
            if not trace.lines.get(path, frozenset()).isdisjoint(unit.lines)
        )
