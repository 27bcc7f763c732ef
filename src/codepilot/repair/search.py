"""The search: trace, localise, propose, try, rank. It ends within its time and leaves the workspace as it was."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from codepilot.core.artifacts import TestStatus
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.suspect import SuspectTest
from codepilot.repair.acceptance import Acceptance
from codepilot.repair.backend import Failure, LanguageBackend, SearchFacts
from codepilot.repair.edit import PROPOSED, Proposal
from codepilot.repair.ledger import CRASHED, FURTHER, LATE, PLAIN, RELOADS, Ledger, order_digest, paths_of, task_digest
from codepilot.repair.localise import TestTrace, localise, newest_first
from codepilot.repair.messages import TrialResult
from codepilot.repair.pairs import pairs
from codepilot.repair.protocol import Progress, SearchRequest, SearchResult
from codepilot.repair.queue import EARLY, RELOAD, SLOW, SLOWEST, Retry, RetryQueue, interleaved, numbered, proposed
from codepilot.repair.rank import rank
from codepilot.repair.selection import (
    TestSelector,
    add_import_time,
    choose_tests,
    needs_reload,
    nothing_to_edit,
    read_sources,
    resolve,
    without_judging_files,
)
from codepilot.repair.suspect import refuted, suspect_of, suspicious
from codepilot.repair.trial import PendingTrial, Trial, WorkersLost

ENOUGH = 6
"""Acceptable candidates after which more would hardly change the order."""
FAR_BELOW = 0.25
"""A candidate with less than this share of an acceptable one's score would not be preferred to it."""
LINGER = 400
"""How many more candidates are tried after the first acceptable one, at least; as many again as led to it, at most."""
LINGER_SEC = 8.0
MAX_ALSO_FAILING = 40
"""How many other failing tests are run: a repair that fixes those too is likelier to be right."""
BATCH_SEC = 0.8
BATCHES = (32, 1024)
REPORT_SEC = 0.2
DOUBTED_SEC = 20.0
"""How long retries and pairs of edits take where the failing test itself may be wrong."""
MAX_REPEATED = 200
SYNTHESISE_AFTER = 3000
"""Single edits tried before expressions are synthesised for what is missing."""
SYNTHESIS_SEC, SYNTHESIS_SHARE = 24.0, 0.4
SYNTHESISED = 1 << 30
"""The first position of synthesised edits, behind those of all single edits."""
SINGLES = 20_000
"""Single edits tried before pairs of them."""


def run_search(request: SearchRequest, backend: LanguageBackend) -> SearchResult:
    """Candidates that make the targets pass and break nothing they were tried on, best first."""
    return Search(request, backend).run()


class Search:
    def __init__(self, request: SearchRequest, backend: LanguageBackend) -> None:
        self._request = request
        self._backend = backend
        self._started = time.monotonic()
        self._deadline = self._started + request.seconds
        self._reported = 0.0
        self._phase = "start"
        self._ledger = Ledger()
        self._exhausted = False
        self._satisfied = False
        self._unfit = ""
        self._targets: Sequence[str] = ()
        self._traces: Sequence[TestTrace] = ()
        self._others: frozenset[str] = frozenset()
        self._singles: list[Proposal] = []
        self._queue = RetryQueue()
        self._best = (0, "")
        self._base: TrialResult | None = None

    # --- the phases -------------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        request, backend = self._request, self._backend
        targets = resolve(request.targets, request.baseline)
        if self._has_other_answer(targets):
            return self._result()
        others = choose_tests(targets, request.baseline, backend.test_file)
        collected = set(request.baseline.collected) - set(targets)  # a file that cannot be loaded is red, but no test
        failing_too = tuple(test for test in request.baseline.red if test in collected)[:MAX_ALSO_FAILING]
        with Trial(
            backend,
            request.executor,
            request.workspace,
            request.project,
            (*targets, *others, *failing_too),
            self._deadline,
            self._tick,
            durations={test: case.duration_sec for test, case in request.baseline.cases.items()},
            places=request.workers,
        ) as trial:
            self._report()
            trial.start()
            traces = self._trace(trial, targets, (*others, *failing_too))
            failing = [trace for trace in traces if trace.test in targets and not trace.passed]
            if not failing:
                return self._nothing_fails(traces, targets)
            self._targets, self._traces, self._others = targets, traces, frozenset(others)
            also_failing = tuple(test for test in failing_too if test in trial.collected)
            facts = self._facts(trial, traces, failing)
            self._accept = Acceptance(
                backend, trial, facts, self._ledger, request.refused, failing, also_failing, traces
            )
            self._ledger.digest = order_digest(facts, [trace.test for trace in failing], request.proposed)
            self._ledger.resume(request.state, facts.sources, request.refused)
            reload = partial(needs_reload, trial.import_time, failing)
            own = interleaved(
                backend.candidates(facts, lambda *place: not reload(*place)), backend.candidates(facts, reload)
            )
            first = proposed(facts.sources, request.proposed, backend.best_prior)
            try:
                self._seek(trial, facts, numbered(itertools.chain(first, own), 0))
            except WorkersLost:
                if not self._ledger.found:
                    raise
            self._phase, self._ledger.ended = "ended", True
            self._report()
            suspect = self._suspect(targets, traces)
        return self._result(suspect=suspect)

    def _suspect(self, targets: Sequence[str], traces: Sequence[TestTrace]) -> SuspectTest | None:
        """The failing test, if it may be wrong."""
        if not suspicious(self._ledger, targets, traces):
            return None
        test, baseline = targets[0], self._request.baseline
        named = next((one for one in self._request.targets if test.startswith(one)), self._request.targets[0])
        failure = next(iter(baseline.cases[test].message.splitlines()), "") if test in baseline.cases else ""
        siblings = self._backend.contrast(self._read, test, baseline.having(TestStatus.PASSED))
        return suspect_of(named, refuted(self._ledger), failure, siblings)

    def _read(self, path: str) -> bytes:
        return self._request.executor.read_file(self._request.workspace, path)

    def _has_other_answer(self, targets: tuple[str, ...]) -> bool:
        """True if an ended search for the same targets left another answer than the refused ones."""
        request, ledger = self._request, self._ledger
        ledger.task = task_digest(targets)
        left, _ = read_sources(self._backend.read, self._read, paths_of(request.state))
        ledger.take_over(request.state, left, request.refused)
        return bool(ledger.acceptable())

    def _trace(self, trial: Trial, targets: Sequence[str], others: Sequence[str]) -> list[TestTrace]:
        self._phase = "trace"
        missing = [test for test in targets if test not in trial.collected]
        if missing:
            raise CodePilotError(FailureKind.TEST_NOT_FOUND, f"The search could not load {missing[0]}.")
        return trial.trace([*targets, *(test for test in others if test in trial.collected)], alone=targets)

    def _nothing_fails(self, traces: Sequence[TestTrace], targets: Sequence[str]) -> SearchResult:
        if not any(trace.test in targets for trace in traces):
            return self._result("the failing test could not be traced in time")
        raise CodePilotError(
            FailureKind.FLAKY_TEST,
            f"{targets[0]} failed in the suite but passes when it is run by itself.",
            next_action="Make the test independent of the order of tests, or name another one.",
        )

    def _facts(self, trial: Trial, traces: Sequence[TestTrace], failing: Sequence[TestTrace]) -> SearchFacts:
        """Localise the failure and read the files that may be edited."""
        request, backend = self._request, self._backend
        targets = tuple(trace.test for trace in failing)
        judging = backend.judging_files((*request.baseline.collected, *request.targets), request.project.runner)
        suspicion = localise(without_judging_files(traces, judging), targets)
        loaded = {path: lines for path, lines in trial.import_time.items() if not judging(path)}
        asked = [path for path, _ in request.proposed if not judging(path)]
        paths = dict.fromkeys([*asked, *suspicion.lines, *loaded])
        sources, unread = read_sources(backend.read, self._read, paths)
        self._unfit = nothing_to_edit(failing, judging, unread)
        suspicion = newest_first(add_import_time(suspicion, sources, loaded), sources, request.ages)
        return SearchFacts(
            sources,
            suspicion,
            Failure.of(failing, *backend.expected(self._read, targets)),
            TestSelector(targets, traces),
        )

    def _seek(self, trial: Trial, facts: SearchFacts, proposals: Iterator[Proposal]) -> None:
        """The likeliest single edits, then synthesis, then the other single edits, pairs, and the rest."""
        selector = facts.selector
        first = self._noted(itertools.islice(proposals, SYNTHESISE_AFTER))
        begun = time.monotonic()
        left = self._try_all(trial, first, selector, begun + SYNTHESIS_SHARE * (self._deadline - begun))
        if not self._ledger.synthesised and not self._satisfied:
            early = 0.1 * (self._deadline - time.monotonic())
            self._retry(trial, selector, SLOW, time.monotonic() + early, EARLY)
            self._synthesise(trial, facts)
        second = self._noted(itertools.islice(proposals, SINGLES - SYNTHESISE_AFTER))
        self._try_all(trial, itertools.chain(left, first, second), selector)
        ended = self._exhausted
        doubted = suspicious(self._ledger, self._targets, self._traces)
        until = time.monotonic() + DOUBTED_SEC if doubted else self._deadline
        self._retry_reloads(trial, selector, until)
        settled = self._retry_slow(trial, selector, until)
        self._exhausted = False
        if ended and not self._ledger.acceptable():
            further = itertools.chain(
                self._repeated(), pairs(self._singles, self._ledger.marks, len(self._singles)), proposals
            )
            self._try_all(trial, numbered(further, len(self._singles)), selector, until)
            self._retry_reloads(trial, selector, until)
            settled = settled and not self._queue.waiting(RELOAD) and time.monotonic() < self._deadline
            self._exhausted = self._exhausted and settled

    def _repeated(self) -> Iterator[Proposal]:
        """Single edits that came further than the base, made at all places with the same text."""
        hopeful = [one for one in self._singles if self._ledger.marks.get(one.position) == FURTHER]
        for one in hopeful[:MAX_REPEATED]:
            edit = self._backend.same_edit_elsewhere(one)
            if edit is not None:
                unit = one.unit if one.unit is not None and one.unit.holds(edit) else None
                yield replace(one, edit=edit, unit=unit)

    def _noted(self, proposals: Iterator[Proposal]) -> Iterator[Proposal]:
        for proposal in proposals:
            self._singles.append(proposal)
            if proposal.position < self._ledger.position and self._ledger.marks.get(proposal.position) == LATE:
                self._queue.add(SLOW, proposal)  # it timed out before the search was interrupted
            yield proposal

    def _synthesise(self, trial: Trial, facts: SearchFacts) -> None:
        """Synthesise expressions for what is missing; they are kept like any other candidate."""
        begun = time.monotonic()
        seconds = min(SYNTHESIS_SEC, SYNTHESIS_SHARE * (self._deadline - time.monotonic()))
        enough = lambda: bool(self._ledger.acceptable())  # noqa: E731
        for proposal in self._backend.synthesise(trial, facts, seconds, SYNTHESISED, enough):
            self._ledger.trying_sec += time.monotonic() - begun
            if time.monotonic() < self._deadline and len(self._ledger.acceptable()) < ENOUGH:
                self._accept.keep(replace(proposal, after=self._ledger.position))
            begun = time.monotonic()
        self._ledger.tried += trial.synthesised
        self._ledger.trying_sec += time.monotonic() - begun
        self._ledger.synthesised = time.monotonic() < self._deadline

    # --- trying again -----------------------------------------------------------------------------------------

    def _due(self, batch: Sequence[Proposal], results: Mapping[int, TrialResult]) -> list[Proposal]:
        """The reloads that come before more is tried: all, after a proposed change or where most need a reload."""
        reload = [one for one in batch if results[one.position].outcome == "reload"]
        if 2 * len(reload) > len(batch) or any(one.edit.template == PROPOSED for one in reload):
            return self._queue.take(RELOAD, self._queue.waiting(RELOAD))
        return self._queue.due(len(batch))

    def _retry_reloads(self, trial: Trial, selector: TestSelector, until: float) -> None:
        linger = time.monotonic() + LINGER_SEC if self._ledger.acceptable() else math.inf
        self._retry(trial, selector, RELOAD, min(until, linger))

    def _retry_slow(self, trial: Trial, selector: TestSelector, until: float) -> bool:
        """Try those that timed out again, with patience. Whether all of them are settled."""
        for reason in (SLOW, SLOWEST):
            if reason is SLOW or not self._ledger.acceptable():
                now = time.monotonic()
                self._retry(trial, selector, reason, now + reason.share * (until - now))
        return not self._queue.waiting(SLOW) and not self._queue.waiting(SLOWEST)

    def _retry(
        self, trial: Trial, selector: TestSelector, reason: Retry, until: float, most: int | None = None
    ) -> None:
        """Try what waits for this reason, as far as the search would have come to it."""
        left = most or reason.most
        while left > 0 and self._queue.waiting(reason) and time.monotonic() < until:
            batch = [one for one in self._queue.take(reason, min(left, reason.batch)) if not self._enough(one)]
            left -= len(batch)
            self._try_again(trial, selector, reason, batch)
            self._tick()

    def _try_again(self, trial: Trial, selector: TestSelector, reason: Retry, batch: Sequence[Proposal]) -> float:
        """Try each again; those that time does not allow wait on. The seconds that it took."""
        begun = time.monotonic()
        jobs = [selector.job(proposal) for proposal in batch]
        jobs = [replace(job, unit=None) for job in jobs] if reason is RELOAD else jobs
        results = trial.judge(jobs, reason.patience) if jobs else {}
        took = time.monotonic() - begun
        self._ledger.count(results, took)
        for proposal in batch:
            result = results.get(proposal.position)
            hopeful = result is not None and result.outcome == "passed" and not self._enough(proposal)
            if result is None or (hopeful and not self._accept.keep(proposal, reason.patience)):
                self._queue.add(reason, proposal)
            elif reason is SLOW and result.outcome == "timeout":
                self._queue.add(SLOWEST, proposal)
            elif reason is RELOAD and proposal.position < len(self._singles):
                self._ledger.marks[proposal.position] = self._mark(result)
        return took

    # --- trying -----------------------------------------------------------------------------------------------

    def _try_all(
        self, trial: Trial, proposals: Iterator[Proposal], selector: TestSelector, until: float = math.inf
    ) -> list[Proposal]:
        """Try candidates and keep what passes, until the time is up, none is left, or enough are found.

        Returns those that were taken and are still to be tried.
        """
        self._phase = "search"
        size, last, self._exhausted = BATCHES[0], min(until, self._deadline), False
        stop, acceptable_since = last, math.inf
        proposals = self._from_position(proposals)
        batch = self._take(proposals, size)
        while batch and time.monotonic() < stop and not self._satisfied:
            begun = time.monotonic()
            self._base = self._base or self._try_base(trial, batch, selector)
            pending = trial.begin([selector.job(proposal) for proposal in batch])
            following = self._take(proposals, size, pending)
            results = trial.finish(pending, reload=False)
            took = time.monotonic() - begun
            self._ledger.count(results, took)
            unsettled = self._settle(trial, batch, results, selector)
            self._tick()
            if unsettled:
                return unsettled
            took += self._try_again(trial, selector, RELOAD, self._due(batch, results))
            acceptable_since = min(acceptable_since, begun) if self._ledger.acceptable() else math.inf
            stop = min(last, acceptable_since + max(LINGER_SEC, acceptable_since - self._started))
            if took < BATCH_SEC / 2:
                size = min(BATCHES[1], size * (2 if took > BATCH_SEC / 8 else 4))
            elif took > BATCH_SEC:
                size = max(BATCHES[0], size // 2)
            batch = following
        self._exhausted = not batch
        return batch

    def _from_position(self, proposals: Iterator[Proposal]) -> Iterator[Proposal]:
        """Without those that were tried before the search was interrupted."""
        for proposal in proposals:
            if proposal.position >= self._ledger.position or self._ledger.marks.get(proposal.position) == RELOADS:
                yield proposal
            else:
                self._tick()

    def _settle(
        self, trial: Trial, batch: list[Proposal], results: Mapping[int, TrialResult], selector: TestSelector
    ) -> list[Proposal]:
        """Keep what deserves it, one by one in the search's order, so that the size of a batch changes nothing.

        Returns those that there was no time to try.
        """
        self._ledger.marks.update({at: self._mark(one) for at, one in results.items() if at < len(self._singles)})
        enough = False
        for at, proposal in enumerate(batch):
            result = results.get(proposal.position)
            if result is None:
                return batch[at:]
            if result.outcome == "passed":
                enough = enough or self._enough(proposal)
                if not enough and not self._accept.keep(proposal):
                    return batch[at:]
            elif result.outcome == "reload":
                self._queue.add(RELOAD, proposal)
            elif result.outcome == "timeout" and proposal.position < len(self._singles):
                self._queue.add(SLOW, proposal)
            elif result.outcome == "failed" and result.test in self._others:
                self._ledger.reject(proposal, result.test or "")
            self._ledger.position = max(self._ledger.position, proposal.position + 1)
            if result.outcome == "passed":
                self._report()
        self._satisfied = self._satisfied or self._enough(batch[-1])
        return []

    def _enough(self, proposal: Proposal) -> bool:
        """True if the search would have ended before it came to this candidate."""
        acceptable = self._ledger.acceptable()
        if not acceptable:
            return len(self._ledger.found) >= 4 * ENOUGH
        first = min(one.proposal.effort for one in acceptable)
        best = max(one.proposal.penalised for one in acceptable)
        lingered = proposal.position > first + max(LINGER, first)
        return lingered or len(acceptable) >= ENOUGH or proposal.score < FAR_BELOW * best

    def _take(self, proposals: Iterator[Proposal], size: int, pending: PendingTrial | None = None) -> list[Proposal]:
        """The next proposals. They are made while others are tried, so that neither waits for the other."""
        begun = time.monotonic()
        batch: list[Proposal] = []
        for proposal in proposals:
            batch.append(proposal)
            awaited = pending.finished if pending else time.monotonic() - begun > BATCH_SEC
            if len(batch) >= size or (awaited and len(batch) >= BATCHES[0]):
                break
        return batch

    def _try_base(self, trial: Trial, batch: Sequence[Proposal], selector: TestSelector) -> TrialResult | None:
        """How far the tests come without any change."""
        unit = next((proposal.unit for proposal in batch if proposal.unit is not None), None)
        first = next((proposal for proposal in batch if proposal.unit is unit), None)
        if first is None or unit is None:
            return None
        job = selector.job(first).unchanged
        return trial.judge([job]).get(job.number)

    def _mark(self, result: TrialResult) -> str:
        """True if the candidate came further than the base, or crashed where that did not."""
        base = self._base
        if result.outcome in ("timeout", "reload"):
            return LATE if result.outcome == "timeout" else RELOADS
        if base is None:
            return PLAIN
        if result.outcome == "failed" and result.reach > base.reach:
            return FURTHER
        crashed = result.kind not in ("AssertionError", base.kind)
        return CRASHED if result.outcome not in ("failed", "passed") or crashed else PLAIN

    # --- reporting --------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if time.monotonic() - self._reported >= REPORT_SEC:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        offered = self._ledger.offered
        if self._best[0] != len(offered):
            self._best = len(offered), rank(offered)[0].one.explanation
        self._request.on_progress(
            Progress(
                position=self._ledger.position,
                tried=self._ledger.tried,
                plausible=len(offered),
                per_sec=round(self._ledger.tried / max(1e-6, self._ledger.trying_sec), 1),
                left_sec=round(max(0.0, self._deadline - self._reported), 1),
                best=self._best[1],
                phase=self._phase,
                state=self._ledger.state() if self._ledger.digest else self._request.state,
            )
        )

    def _result(self, reason: str = "", suspect: SuspectTest | None = None) -> SearchResult:
        ordered = rank(self._ledger.offered)
        if not reason and not ordered:
            spent = "no template gives a repair" if self._exhausted else "the time was used up"
            reason = spent if self._ledger.tried else self._unfit or spent
        return SearchResult(
            candidates=tuple(ranked.candidate for ranked in ordered),
            tried=self._ledger.tried,
            exhausted=self._exhausted,
            seconds=time.monotonic() - self._started,
            trying_sec=self._ledger.trying_sec,
            reason=reason,
            rejected=refuted(self._ledger),
            suspect=suspect,
        )
