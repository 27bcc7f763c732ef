"""The search: trace, localise, propose, try, rank. It ends within its time and leaves the workspace as it was."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.repair.client import Job, Ruling, Selection
from codepilot.repair.facts import failure_of, job_of, judges, loads_anew, of_the_project, promises
from codepilot.repair.ledger import Ledger, paths_of
from codepilot.repair.localise import TestTrace, localise
from codepilot.repair.pairs import CRASHED, DEAR, FURTHER, LATE, PLAIN, pairs
from codepilot.repair.proposed import PROPOSED, proposed
from codepilot.repair.protocol import Progress, SearchRequest, SearchResult
from codepilot.repair.python.enumerate import Proposal, candidates
from codepilot.repair.python.expected import expected_texts
from codepilot.repair.python.synthesis import Known, compositions
from codepilot.repair.rank import Plausible, doubted, explain, rank
from codepilot.repair.recency import newest_first
from codepilot.repair.record import about, offered, order_digest
from codepilot.repair.retry import Dear, numbered, spread
from codepilot.repair.selection import Related, add_loading, choose_tests, read_package, read_sources, resolve
from codepilot.repair.trial import COLD_JOBS, Flight, Trial, WorkersLost

ENOUGH = 6
"""Plausible candidates after which more would hardly change the order."""
FAR_BELOW = 0.25
"""What scores less than this share of a plausible candidate would not be preferred to it."""
LINGER = 400
"""How many more candidates are tried after the first plausible one, at least; as many again as led to it, at most."""
LINGER_SEC = 8.0
MAX_HOPEFUL = 40
"""How many other failing tests are watched: a repair that mends those too is likelier to be the right one."""
BATCH_SEC = 0.8
BATCHES = (32, 1024)
REPORT_SEC = 0.2
PATIENCE = 12.0
"""How much longer a candidate may run when it is tried again, or is about to be kept."""
MAX_LATE, LATE_BATCH = 200, 10
MOST_PATIENCE = 200.0
"""For the likeliest that still did not end: a test that fails at once on the base may be long when it passes."""
MAX_SLOW, SLOW_SHARE = 40, 0.3
COMPOSE_AFTER = 3000
"""Single edits tried before expressions are composed for what is missing."""
COMPOSE_SEC, COMPOSE_SHARE = 24.0, 0.4
COMPOSED = 1 << 30
"""Where the positions of what is composed begin: it has no place among the single edits."""
SINGLES = 20_000
"""Single edits tried before pairs of them get their turn."""


def search(request: SearchRequest) -> SearchResult:
    """Candidates that make the targets pass and break nothing they were tried on, best first."""
    return _Search(request).run()


class _Search:
    def __init__(self, request: SearchRequest) -> None:
        self._request = request
        self._started = time.monotonic()
        self._deadline = self._started + request.seconds
        self._reported = 0.0
        self._phase = "start"
        self._ledger = Ledger()
        self._exhausted = False
        self._satisfied = False
        self._hopeful: tuple[str, ...] = ()
        self._singles: list[Proposal] = []
        self._dear = Dear()
        self._best = (0, "")
        self._base: Ruling | None = None

    # --- the corridor -----------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        request = self._request
        targets = resolve(request.targets, request.baseline)
        if self._second_best(targets):
            return self._result()
        others = choose_tests(targets, request.baseline)
        collected = set(request.baseline.collected) - set(targets)  # what could not be loaded is red too, and no test
        hopeful = tuple(test for test in request.baseline.red if test in collected)[:MAX_HOPEFUL]
        tests = (*targets, *others, *hopeful)
        with Trial(
            request.executor,
            request.workspace,
            request.project,
            tests,
            self._deadline,
            self._tick,
            durations={test: case.duration_sec for test, case in request.baseline.cases.items()},
            places=request.workers,
        ) as trial:
            self._report()
            trial.start()
            traces = self._trace(trial, targets, others)
            failing = [trace for trace in traces if trace.test in targets and not trace.passed]
            if not failing:
                return self._nothing_fails(traces, targets)
            targets = tuple(trace.test for trace in failing)
            judging = judges(request)
            suspicion = localise(of_the_project(traces, judging), targets)
            loaded = {path: lines for path, lines in trial.entered.items() if path not in judging}
            asked = [path for path, _ in request.proposed if path not in judging]
            paths = [*asked, *suspicion.lines, *loaded]
            sources = read_sources(request.executor, request.workspace, dict.fromkeys(paths))
            suspicion = newest_first(add_loading(suspicion, sources, loaded), sources, request.ages)
            self._hopeful = tuple(test for test in hopeful if test in trial.collected)
            related = Related(targets, traces)
            texts = expected_texts(request.executor, request.workspace, targets)
            lent = read_package(request.executor, request.workspace, sources, suspicion, judging)
            known = Known(sources, suspicion, replace(failure_of(failing), expected=texts), related, lent)
            self._ledger.digest = order_digest(known, targets, request.proposed)
            self._ledger.resume(request.state, sources, request.refused)
            dear = partial(loads_anew, trial.entered, failing)
            made = partial(candidates, sources, suspicion, known.failure, lent=lent)
            own = spread(made(wanted=lambda *place: not dear(*place)), made(wanted=dear))
            try:
                self._seek(trial, known, numbered(itertools.chain(proposed(sources, request.proposed), own), 0))
            except WorkersLost:
                if not self._ledger.found:
                    raise
            self._phase, self._ledger.ended = "ended", True
            self._report()
        return self._result()

    def _second_best(self, targets: tuple[str, ...]) -> bool:
        """Whether an ended search has left an answer to give, at once, instead of one that was turned down."""
        request, ledger = self._request, self._ledger
        ledger.about = about(targets)
        left = read_sources(request.executor, request.workspace, paths_of(request.state))
        ledger.take_over(request.state, left, request.refused)
        return bool(ledger.worthy())

    def _seek(self, trial: Trial, known: Known, proposals: Iterator[Proposal]) -> None:
        """The likeliest single edits, then what is composed, then the other singles, pairs, and the rest."""
        related = known.related
        first = self._noted(itertools.islice(proposals, COMPOSE_AFTER))
        begun = time.monotonic()
        left = self._walk(trial, first, related, begun + COMPOSE_SHARE * (self._deadline - begun))
        if not self._ledger.composed and not self._satisfied:
            self._compose(trial, known)
        second = self._noted(itertools.islice(proposals, SINGLES - COMPOSE_AFTER))
        self._walk(trial, itertools.chain(left, first, second), related)
        ended = self._exhausted
        self._try_waiting(trial, related)
        settled = self._try_late(trial, related)
        self._exhausted = False
        if ended and not self._ledger.worthy():
            further = itertools.chain(pairs(self._singles, self._ledger.marks, len(self._singles)), proposals)
            self._walk(trial, numbered(further, len(self._singles)), related)
            self._try_waiting(trial, related)
            self._exhausted = self._exhausted and settled and not self._dear and time.monotonic() < self._deadline

    def _compose(self, trial: Trial, known: Known) -> None:
        """Expressions found for what is missing, kept like any other candidate."""
        begun = time.monotonic()
        seconds = min(COMPOSE_SEC, COMPOSE_SHARE * (self._deadline - time.monotonic()))
        for proposal in compositions(trial, known, seconds, COMPOSED, lambda: bool(self._ledger.worthy())):
            self._ledger.trying_sec += time.monotonic() - begun
            if time.monotonic() < self._deadline and len(self._ledger.worthy()) < ENOUGH:
                self._keep(trial, replace(proposal, after=self._ledger.position), known.related)
            begun = time.monotonic()
        self._ledger.tried += trial.composed
        self._ledger.trying_sec += time.monotonic() - begun
        self._ledger.composed = time.monotonic() < self._deadline

    def _try_late(self, trial: Trial, related: Related) -> bool:
        """Those that were taken for endless once more, with patience: slow is not wrong. Whether all are settled."""
        first = min((one.proposal.effort for one in self._ledger.found), default=len(self._singles))
        last = min(len(self._singles), first + LINGER)
        late = [at for at, mark in sorted(self._ledger.marks.items()) if mark == LATE and at < last]
        slow = self._try_slow(trial, related, late[:MAX_LATE], PATIENCE, self._deadline)
        if self._ledger.worthy():
            return not slow
        until = time.monotonic() + SLOW_SHARE * (self._deadline - time.monotonic())
        left = self._try_slow(trial, related, slow[:MAX_SLOW], MOST_PATIENCE, until)
        return not left and len(late) <= MAX_LATE and len(slow) <= MAX_SLOW

    def _try_slow(
        self, trial: Trial, related: Related, late: Sequence[int], patience: float, until: float
    ) -> list[int]:
        """Keep what passes with this much patience; those that did not end within it, or within the time."""
        left: list[int] = []
        # The slowest may take longer than the time they have together: it is looked at after each of them.
        size = LATE_BATCH if patience < MOST_PATIENCE else self._request.workers
        for batch in (late[at : at + size] for at in range(0, len(late), size)):
            over = time.monotonic() >= until or len(self._ledger.found) >= ENOUGH
            jobs = [] if over else [job_of(self._singles[at], related, everything=False) for at in batch]
            outcomes = {at: ruling.outcome for at, ruling in trial.judge(jobs, patience).items()}
            for at in batch:
                outcome = outcomes.get(at)
                if outcome == "passed":
                    self._keep(trial, self._singles[at], related, patience)
                elif not outcome or (outcome == "timeout" and patience < MOST_PATIENCE):
                    left.append(at)
            self._tick()
        return left

    def _due(self, batch: Sequence[Proposal], rulings: Mapping[int, Ruling]) -> list[Proposal]:
        """What is loaded anew before more is tried: what others proposed; all, where little else can be tried."""
        cold = [one for one in batch if rulings[one.position].outcome == "cold"]
        if 2 * len(cold) > len(batch) or any(one.edit.template == PROPOSED for one in cold):
            return self._dear.next(len(self._dear))
        return self._dear.due(len(batch))

    def _try_waiting(self, trial: Trial, related: Related) -> None:
        """What was put off, as far as the search would have come to it."""
        until = min(self._deadline, time.monotonic() + LINGER_SEC) if self._ledger.worthy() else self._deadline
        while self._dear and time.monotonic() < until:
            some = self._dear.next(COLD_JOBS)
            self._try_dear(trial, related, [one for one in some if not self._enough(one)])

    def _try_dear(self, trial: Trial, related: Related, dear: Sequence[Proposal]) -> float:
        """Load the project anew for each; what time does not allow goes on waiting. The seconds that it took."""
        begun = time.monotonic()
        jobs = [replace(job_of(proposal, related, everything=False), unit=None) for proposal in dear]
        rulings = trial.judge(jobs) if jobs else {}
        took = time.monotonic() - begun
        self._ledger.count(rulings, took)
        for proposal in dear:
            ruling = rulings.get(proposal.position)
            hopeful = ruling is not None and ruling.outcome == "passed" and not self._enough(proposal)
            if ruling is None or (hopeful and not self._keep(trial, proposal, related)):
                self._dear.add(proposal)
            elif proposal.position < len(self._singles):
                self._ledger.marks[proposal.position] = self._mark(ruling)
        return took

    def _noted(self, proposals: Iterator[Proposal]) -> Iterator[Proposal]:
        for proposal in proposals:
            self._singles.append(proposal)
            yield proposal

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

    def _walk(
        self, trial: Trial, proposals: Iterator[Proposal], related: Related, until: float = math.inf
    ) -> list[Proposal]:
        """Pop, try, keep what passes, until the time, the templates or the wish for more is used up.

        Gives back what was popped and is still to be tried.
        """
        self._phase = "search"
        size, last, self._exhausted = BATCHES[0], min(until, self._deadline), False
        stop, worthy_since = last, math.inf
        proposals = self._from_position(proposals)
        batch = self._pop(proposals, size)
        while batch and time.monotonic() < stop and not self._satisfied:
            begun = time.monotonic()
            self._base = self._base or self._judge_base(trial, batch, related)
            flight = trial.begin([job_of(proposal, related, everything=False) for proposal in batch])
            following = self._pop(proposals, size, flight)
            rulings = trial.finish(flight, anew=False)
            took = time.monotonic() - begun
            self._ledger.count(rulings, took)
            unsettled = self._settle(trial, batch, rulings, related)
            self._tick()
            if unsettled:
                return unsettled
            took += self._try_dear(trial, related, self._due(batch, rulings))
            worthy_since = min(worthy_since, begun) if self._ledger.worthy() else math.inf
            stop = min(last, worthy_since + max(LINGER_SEC, worthy_since - self._started))
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
            if proposal.position >= self._ledger.position or self._ledger.marks.get(proposal.position) == DEAR:
                yield proposal
            else:
                self._tick()

    def _settle(
        self, trial: Trial, batch: list[Proposal], rulings: Mapping[int, Ruling], related: Related
    ) -> list[Proposal]:
        """Keep what deserves it, one by one in the search's order, so that the size of a batch changes nothing.

        Gives back what time did not allow to judge.
        """
        self._ledger.marks.update({at: self._mark(one) for at, one in rulings.items() if at < len(self._singles)})
        enough = False
        for at, proposal in enumerate(batch):
            ruling = rulings.get(proposal.position)
            if ruling is None:
                return batch[at:]
            if ruling.outcome == "passed":
                enough = enough or self._enough(proposal)
                if not enough and not self._keep(trial, proposal, related):
                    return batch[at:]
            elif ruling.outcome == "cold":
                self._dear.add(proposal)
            self._ledger.position = max(self._ledger.position, proposal.position + 1)
            if ruling.outcome == "passed":
                self._report()
        self._satisfied = self._satisfied or self._enough(batch[-1])
        return []

    def _enough(self, proposal: Proposal) -> bool:
        """Whether the search would have ended before it came to this candidate."""
        worthy = self._ledger.worthy()
        if not worthy:
            return len(self._ledger.found) >= 4 * ENOUGH
        first = min(one.proposal.effort for one in worthy)
        best = max(doubted(one.proposal) for one in worthy)
        lingered = proposal.position > first + max(LINGER, first)
        return lingered or len(worthy) >= ENOUGH or proposal.score < FAR_BELOW * best

    def _pop(self, proposals: Iterator[Proposal], size: int, flight: Flight | None = None) -> list[Proposal]:
        """The next proposals. They are made while others are tried, so that neither waits for the other."""
        begun = time.monotonic()
        batch: list[Proposal] = []
        for proposal in proposals:
            batch.append(proposal)
            awaited = flight.ended if flight else time.monotonic() - begun > BATCH_SEC
            if len(batch) >= size or (awaited and len(batch) >= BATCHES[0]):
                break
        return batch

    def _judge_base(self, trial: Trial, batch: Sequence[Proposal], related: Related) -> Ruling | None:
        """How far the tests come without any change."""
        unit = next((proposal.unit for proposal in batch if proposal.unit is not None), None)
        first = next((proposal for proposal in batch if proposal.unit is unit), None)
        if first is None or unit is None:
            return None
        job = job_of(first, related, everything=False).unchanged
        return trial.judge([job]).get(job.number)

    def _mark(self, ruling: Ruling) -> str:
        """Whether the candidate came further than the base, or fell where that did not."""
        base = self._base
        if ruling.outcome in ("timeout", "cold"):
            return LATE if ruling.outcome == "timeout" else DEAR
        if base is None:
            return PLAIN
        if ruling.outcome == "failed" and ruling.reach > base.reach:
            return FURTHER
        fell = ruling.kind not in ("AssertionError", base.kind)
        return CRASHED if ruling.outcome not in ("failed", "passed") or fell else PLAIN

    def _keep(self, trial: Trial, proposal: Proposal, related: Related, patience: float = PATIENCE) -> bool:
        """A candidate is kept if it breaks none of all the tests there is time for. False if there was no time."""
        job = job_of(proposal, related, everything=True)
        content = job.content
        if content is None or content in self._request.refused or self._ledger.has(proposal.source.path, content):
            return True
        ruling = trial.confirm(job, patience)
        if ruling is not None and ruling.outcome == "passed":
            mended = self._mended(trial, job)
            evidence = trial.weigh(job_of(proposal, related, everything=False), promises(proposal))
            self._ledger.found.append(
                Plausible(proposal, content, related.witnesses(proposal), mended, evidence, related.ground)
            )
        return ruling is not None

    def _mended(self, trial: Trial, job: Job) -> int:
        """How many of the other failing tests the candidate makes pass, too."""
        selections = (Selection((test,), thorough=True) for test in self._hopeful)
        jobs = [replace(job, number=number, selection=one) for number, one in enumerate(selections)]
        return sum(ruling.outcome == "passed" for ruling in trial.judge(jobs, PATIENCE).values()) if jobs else 0

    # --- what is told -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if time.monotonic() - self._reported >= REPORT_SEC:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        if self._best[0] != len(self._ledger.found):
            self._best = len(self._ledger.found), explain(rank(self._ledger.found)[0].one.proposal)
        self._request.on_progress(
            Progress(
                position=self._ledger.position,
                tried=self._ledger.tried,
                plausible=len(self._ledger.found),
                per_sec=round(self._ledger.tried / max(1e-6, self._ledger.trying_sec), 1),
                left_sec=round(max(0.0, self._deadline - self._reported), 1),
                best=self._best[1],
                phase=self._phase,
                state=self._ledger.state() if self._ledger.digest else self._request.state,
            )
        )

    def _result(self, reason: str = "") -> SearchResult:
        ordered = rank(self._ledger.found)
        if not reason and not ordered:
            reason = "no template gives a repair" if self._exhausted else "the time was used up"
        return SearchResult(
            candidates=tuple(offered(*ranked) for ranked in ordered),
            tried=self._ledger.tried,
            exhausted=self._exhausted,
            seconds=time.monotonic() - self._started,
            trying_sec=self._ledger.trying_sec,
            reason=reason,
        )
