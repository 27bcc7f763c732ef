"""The search: trace, localise, propose, try, rank. It ends within its time and leaves the workspace as it was."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from codepilot.core.contract import JsonObject, canonical_json
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.repair.expected import expected_texts
from codepilot.repair.facts import failure_of, job_of, loads_anew, of_the_project, promises
from codepilot.repair.heap import Proposal, candidates
from codepilot.repair.localise import Suspicion, TestTrace, localise
from codepilot.repair.pairs import CRASHED, FURTHER, LATE, PLAIN, pairs, recall
from codepilot.repair.pairs import remember as remember_marks
from codepilot.repair.patience import spread
from codepilot.repair.priors import PRIORS
from codepilot.repair.proposed import proposed
from codepilot.repair.protocol import Progress, SearchRequest, SearchResult
from codepilot.repair.rank import Plausible, doubted, explain, rank
from codepilot.repair.record import offered, remember, revive
from codepilot.repair.related import Related, add_loading, choose_tests, is_test_file, read_sources, resolve
from codepilot.repair.source import Edit, Source
from codepilot.repair.synthesis import Known, compositions
from codepilot.repair.trial import Flight, Trial
from codepilot.repair.worker import Job, Ruling, Selection

ENOUGH = 6
"""Plausible candidates after which more would hardly change the order."""
FAR_BELOW = 0.25
"""What scores less than this share of a plausible candidate would not be preferred to it."""
LINGER = 400
"""How many more candidates are tried after the first plausible one, at least; as many again as led to it, at most."""
LINGER_SEC = 15.0
MAX_HOPEFUL = 40
"""How many other failing tests are watched: a repair that mends those too is likelier to be the right one."""
BATCH_SEC = 0.8
BATCHES = (32, 1024)
REPORT_SEC = 0.2
PATIENCE = 12.0
"""How much longer a candidate may run when it is tried again, or is about to be kept."""
MAX_LATE = 200
LATE_BATCH = 20
COMPOSE_AFTER = 3000
"""Single edits tried before expressions are composed for what is missing."""
COMPOSE_SEC = 24.0
COMPOSE_SHARE = 0.4
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
        self._position = 0
        self._tried = 0
        self._digest = ""
        self._found: list[Plausible] = []
        self._exhausted = False
        self._satisfied = False
        self._hopeful: tuple[str, ...] = ()
        self._singles: list[Proposal] = []
        self._marks: dict[int, str] = {}
        self._base: Ruling | None = None

    # --- the corridor -----------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        request = self._request
        targets = resolve(request.targets, request.baseline)
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
            suspicion = localise(of_the_project(traces, request), targets)
            loaded = {path: lines for path, lines in trial.entered.items() if not is_test_file(path, request.targets)}
            paths = [*dict(request.proposed), *suspicion.lines, *loaded]
            sources = read_sources(request.executor, request.workspace, dict.fromkeys(paths))
            suspicion = add_loading(suspicion, sources, loaded)
            self._resume(suspicion, sources, targets)
            self._hopeful = tuple(test for test in hopeful if test in trial.collected)
            related = Related(targets, traces)
            texts = expected_texts(request.executor, request.workspace, targets)
            known = Known(sources, suspicion, replace(failure_of(failing), expected=texts), related)
            own = spread(candidates(sources, suspicion, known.failure), partial(loads_anew, trial.entered, failing))
            self._seek(trial, known, _numbered(itertools.chain(proposed(sources, request.proposed), own), 0))
            self._report()
        return self._result()

    def _seek(self, trial: Trial, known: Known, proposals: Iterator[Proposal]) -> None:
        """The likeliest single edits, then what is composed, then the other singles, pairs, and the rest."""
        related, resumed = known.related, self._position
        first = self._noted(itertools.islice(proposals, COMPOSE_AFTER))
        begun = time.monotonic()
        left = self._walk(trial, first, related, begun + COMPOSE_SHARE * (self._deadline - begun))
        if resumed < COMPOSE_AFTER and not self._satisfied:
            self._compose(trial, known)
        second = self._noted(itertools.islice(proposals, SINGLES - COMPOSE_AFTER))
        self._walk(trial, itertools.chain(left, first, second), related)
        self._try_late(trial, related)
        if self._exhausted and not self._trusted():
            further = itertools.chain(pairs(self._singles, self._marks, len(self._singles)), proposals)
            self._walk(trial, _numbered(further, len(self._singles)), related)

    def _compose(self, trial: Trial, known: Known) -> None:
        """Expressions found for what is missing, kept like any other candidate."""
        seconds = min(COMPOSE_SEC, COMPOSE_SHARE * (self._deadline - time.monotonic()))
        for proposal in compositions(trial, known, seconds, self._position, lambda: bool(self._trusted())):
            if time.monotonic() < self._deadline and len(self._trusted()) < ENOUGH:
                self._keep(trial, proposal, known.related)
        self._tried += trial.composed

    def _try_late(self, trial: Trial, related: Related) -> None:
        """Those that were taken for endless once more, with patience: slow is not wrong."""
        first = min((one.proposal.position for one in self._found), default=len(self._singles))
        last = min(len(self._singles), first + LINGER)
        late = [at for at, mark in sorted(self._marks.items()) if mark == LATE and at < last][:MAX_LATE]
        for batch in (late[at : at + LATE_BATCH] for at in range(0, len(late), LATE_BATCH)):
            if time.monotonic() < self._deadline and len(self._found) < ENOUGH:
                rulings = trial.judge([job_of(self._singles[at], related, everything=False) for at in batch], PATIENCE)
                for at in batch:
                    if at in rulings and rulings[at].outcome == "passed":
                        self._keep(trial, self._singles[at], related)
                self._tick()

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
        size, stop, self._exhausted = BATCHES[0], min(until, self._deadline), False
        proposals = self._from_position(proposals)
        batch = self._pop(proposals, size)
        while batch and time.monotonic() < stop and not self._satisfied:
            begun = time.monotonic()
            self._base = self._base or self._judge_base(trial, batch, related)
            flight = trial.begin([job_of(proposal, related, everything=False) for proposal in batch])
            following = self._pop(proposals, size, flight)
            passed = self._passing(batch, trial.finish(flight))
            took = time.monotonic() - begun
            if passed is None:
                return batch
            self._settle(trial, batch[-1], passed, related)
            self._tried += len(batch)
            self._tick()
            if self._trusted():
                stop = min(stop, begun + max(LINGER_SEC, begun - self._started))
            size = min(BATCHES[1], size * 2) if took < BATCH_SEC / 2 else max(BATCHES[0], size // 2)
            batch = following
        self._exhausted = not batch
        return batch

    def _from_position(self, proposals: Iterator[Proposal]) -> Iterator[Proposal]:
        """Without those that were tried before the search was interrupted."""
        for proposal in proposals:
            if proposal.position >= self._position:
                yield proposal
            else:
                self._tick()

    def _settle(self, trial: Trial, last: Proposal, passed: Sequence[Proposal], related: Related) -> None:
        """Keep what deserves it, one by one in the search's order, so that the size of a batch changes nothing."""
        for proposal in passed:
            if self._enough(proposal):
                break
            self._keep(trial, proposal, related)
            self._report()
        self._satisfied = self._satisfied or self._enough(last)
        self._position = last.position + 1

    def _enough(self, proposal: Proposal) -> bool:
        """Whether the search would have ended before it came to this candidate."""
        trusted = self._trusted()
        if not trusted:
            return len(self._found) >= 4 * ENOUGH
        first = min(one.proposal.position for one in trusted)
        best = max(doubted(one.proposal) for one in trusted)
        lingered = proposal.position > first + max(LINGER, first)
        return lingered or len(trusted) >= ENOUGH or proposal.score < FAR_BELOW * best

    def _trusted(self) -> list[Plausible]:
        return [one for one in self._found if one.trusted]

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

    def _passing(self, batch: Sequence[Proposal], rulings: Mapping[int, Ruling]) -> list[Proposal] | None:
        """Those that pass their tests; None if time ran out before all were tried."""
        for number, ruling in rulings.items():
            if number < len(self._singles):
                self._marks[number] = self._mark(ruling)
        passed = {number for number, ruling in rulings.items() if ruling.outcome == "passed"}
        if len(rulings) < len(batch) and not passed:
            return None
        return [proposal for proposal in batch if proposal.position in passed]

    def _judge_base(self, trial: Trial, batch: Sequence[Proposal], related: Related) -> Ruling | None:
        """How far the tests come without any change."""
        unit = next((proposal.unit for proposal in batch if proposal.unit is not None), None)
        first = next((proposal for proposal in batch if proposal.unit is unit), None)
        if first is None or unit is None:
            return None
        job = replace(job_of(first, related, everything=False), edit=Edit(unit.end, unit.end, "", ""))
        return trial.judge([job]).get(job.number)

    def _mark(self, ruling: Ruling) -> str:
        """Whether the candidate came further than the base, or fell where that did not."""
        base = self._base
        if ruling.outcome == "timeout":
            return LATE
        if base is None:
            return PLAIN
        if ruling.outcome == "failed" and ruling.reach > base.reach:
            return FURTHER
        fell = ruling.kind not in ("AssertionError", base.kind)
        return CRASHED if ruling.outcome not in ("failed", "passed") or fell else PLAIN

    def _keep(self, trial: Trial, proposal: Proposal, related: Related) -> None:
        """A candidate is kept if it also passes alone, on every test there is time for."""
        job = job_of(proposal, related, everything=True)
        content = job.content
        if content is None or content in self._request.refused:
            return
        ruling = trial.judge([job], PATIENCE).get(proposal.position)
        if ruling is not None and ruling.outcome == "passed":
            mended = self._mended(trial, job)
            evidence = trial.weigh(job_of(proposal, related, everything=False), promises(proposal))
            self._found.append(
                Plausible(proposal, content, related.witnesses(proposal), mended, evidence, related.ground)
            )

    def _mended(self, trial: Trial, job: Job) -> int:
        """How many of the other failing tests the candidate makes pass, too."""
        selections = (Selection((test,), thorough=True) for test in self._hopeful)
        jobs = [replace(job, number=number, selection=one) for number, one in enumerate(selections)]
        return sum(ruling.outcome == "passed" for ruling in trial.judge(jobs, PATIENCE).values()) if jobs else 0

    # --- what survives ----------------------------------------------------------------------------------------

    def _resume(self, suspicion: Suspicion, sources: dict[str, Source], targets: Sequence[str]) -> None:
        """Continue from the recorded position if everything that the order depends on is the same."""
        files = {path: hashlib.sha256(source.data).hexdigest() for path, source in sorted(sources.items())}
        facts = {"suspicion": suspicion.digest, "files": files, "targets": list(targets), "priors": PRIORS}
        facts["proposed"] = [hashlib.sha256(content).hexdigest() for _, content in self._request.proposed]
        self._digest = hashlib.sha256(canonical_json(facts).encode()).hexdigest()
        state = self._request.state
        if state.get("digest") != self._digest:
            return
        position, kept = state.get("position"), state.get("plausible")
        self._position = position if isinstance(position, int) else 0
        marks = state.get("marks")
        self._marks = recall(marks) if isinstance(marks, str) else {}
        tried = state.get("tried")
        self._tried = tried if isinstance(tried, int) else 0
        for row in kept if isinstance(kept, list) else []:
            found = revive(row, sources)
            if found is not None and found.patched not in self._request.refused:
                self._found.append(found)

    def _state(self) -> JsonObject:
        kept = [remember(one) for one in self._found]
        marks = remember_marks({at: self._marks[at] for at in self._marks if at < len(self._singles)})
        state: JsonObject = {"digest": self._digest, "position": self._position, "tried": self._tried}
        return {**state, "plausible": [*kept], "marks": marks}

    def _tick(self) -> None:
        if time.monotonic() - self._reported >= REPORT_SEC:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        spent = max(1e-6, self._reported - self._started)
        best = explain(rank(self._found)[0][0].proposal) if self._found else ""
        self._request.on_progress(
            Progress(
                position=self._position,
                tried=self._tried,
                plausible=len(self._found),
                per_sec=round(self._tried / spent, 1),
                left_sec=round(max(0.0, self._deadline - self._reported), 1),
                best=best,
                phase=self._phase,
                state=self._state() if self._digest else self._request.state,
            )
        )

    def _result(self, reason: str = "") -> SearchResult:
        ordered = rank(self._found)
        if not reason and not ordered:
            reason = "no template gives a repair" if self._exhausted else "the time was used up"
        return SearchResult(
            candidates=tuple(offered(*ranked) for ranked in ordered),
            tried=self._tried,
            exhausted=self._exhausted,
            seconds=time.monotonic() - self._started,
            reason=reason,
        )


def _numbered(proposals: Iterator[Proposal], start: int) -> Iterator[Proposal]:
    return (replace(proposal, position=at) for at, proposal in enumerate(proposals, start))
