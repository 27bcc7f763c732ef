"""`codepilot land`: proved changes join a branch one after the other, and the branch is never red.

Each change is merged on top of the branch and of the changes before it, three ways and in our own object store. The
merged tree is judged by a run of kind prove, with all its gates, in the sandbox; the next changes are judged at the
same time, as if those before them held. What holds becomes a commit by one compare-and-swap of the branch. What does
not is refused with the reason, and the changes after it are merged and judged without it. No checkout is touched.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from codepilot.core.commit import checked_branch
from codepilot.core.events import BasePinned, EventDraft, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.landing import Landed, LandingQueued, LandingRefused
from codepilot.core.run import Run
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.change.apply import changed_objects, dry_run_refusal, require_settled
from codepilot.engine.change.commit import first_proof, message_of
from codepilot.engine.change.review import derived_id, judging_task
from codepilot.engine.close import open_log
from codepilot.engine.runtime import Runtime
from codepilot.engine.task import Begun, begin
from codepilot.engine.worker import Worker
from codepilot.telemetry import redact
from codepilot.verify import tree_with_tests
from codepilot.workspace import (
    Commit,
    ObjectStore,
    Tip,
    add_to_branch,
    branch_tip,
    is_url,
    landed_before,
    merge_trees,
)

MOST_MOVES = 10
"""How often the branch may move under the queue before it gives up."""
LOOK_SEC = 0.2
"""How often a landing that waits for another one looks again."""
Outcome = Landed | LandingRefused
OnOutcome = Callable[[str, Outcome], None]


Judge = Callable[[Runtime, Begun], Run]
"""Brings the run that judges a merged tree to its end."""


def judge_here(runtime: Runtime, begun: Begun) -> Run:
    return Worker(runtime, begun=begun).drive(begun.run.run_id, begun.run.last_seq)


@dataclass(frozen=True)
class Landing:
    """What a landing is asked for."""

    branch: str
    accept_plausible: bool = False
    jobs: int = 2
    """How many merged trees are judged at a time."""
    by: str = "user"
    on_progress: Callable[[str], None] = lambda message: None
    on_outcome: OnOutcome = lambda run_id, outcome: None
    judge: Judge = judge_here
    raise_if_stopped: Callable[[], None] = lambda: None


def land(runtime: Runtime, run_ids: Sequence[str], asked: Landing) -> dict[str, Outcome]:
    """Land the changes of these runs in this order; what became of each. Doing it again lands nothing twice."""
    runs, checkout, base = landable(runtime, run_ids, asked)
    with turn(runtime, base.repo_id, asked), closing(open_objects(runtime.home, base.repo_id)) as objects:
        branch_tip(checkout, asked.branch, objects)
        for position, run in enumerate(runs):
            record(runtime, run, LandingQueued(branch=asked.branch, position=position + 1, by=asked.by))
        return Queue(runtime, checkout, objects, asked).work(runs)


def landable(runtime: Runtime, run_ids: Sequence[str], asked: Landing) -> tuple[list[Run], Path, BasePinned]:
    """The runs with the checkout and the base of the first; refused if one of them cannot land there."""
    runs = [runtime.store.load(run_id) for run_id in dict.fromkeys(run_ids)]
    checkout, base = _one_checkout(runs)
    checked_branch(asked.branch, runs[0].run_id)
    for run in runs:
        _refuse_unproved(run, accept_plausible=asked.accept_plausible)
    return runs, checkout, base


def _one_checkout(runs: Sequence[Run]) -> tuple[Path, BasePinned]:
    if not runs:
        raise _refused("No run is named.", "Name the runs whose changes should land: codepilot land RUN… --onto BRANCH")
    bases = []
    for run in runs:
        if run.base is None or run.base.checkout is None or is_url(run.task.repo):
            raise _refused(
                f"Run {run.run_id} did not work on a checkout of yours, so there is no branch to land on.",
                f"In your checkout: codepilot diff {run.run_id} | git apply",
            )
        bases.append(run.base)
    places = {base.checkout for base in bases}
    if len(places) > 1:
        raise _refused("The runs are of several checkouts.", "Land the runs of one checkout at a time.")
    return Path(bases[0].checkout or ""), bases[0]


def _refuse_unproved(run: Run, *, accept_plausible: bool) -> None:
    if run.task.dry_run:
        raise dry_run_refusal(run.run_id)
    require_settled(run)
    if run.state is not State.DONE or run.proposal is None or run.verdict is None:
        message = f"Run {run.run_id} is {run.state} and has no proved change."
        raise _refused(message, f"See `codepilot show {run.run_id}`.")
    if run.verdict != "confirmed" and not accept_plausible:
        raise CodePilotError(
            FailureKind.DENIED,
            f"The change of {run.run_id} is only plausible: the tests around it are too weak to trust it unread.",
            next_action=f"Read `codepilot diff {run.run_id}`, then add --accept-plausible.",
        )


@contextmanager
def turn(runtime: Runtime, repo_id: str, asked: Landing) -> Iterator[None]:
    """Of all who land in a repository on this machine, one at a time."""
    with (runtime.home.locks / f"land-{repo_id}").open("w") as lock:
        announced = False
        while not _locked(lock):
            if not announced:
                asked.on_progress("waiting for another landing in this repository")
            announced = True
            asked.raise_if_stopped()
            time.sleep(LOOK_SEC)
        yield


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _refused(message: str, advice: str) -> CodePilotError:
    return CodePilotError(FailureKind.INVALID_SPEC, message, next_action=advice)


def record(runtime: Runtime, run: Run, data: LandingQueued | Outcome) -> None:
    kinds = {
        LandingQueued: EventType.LANDING_QUEUED,
        Landed: EventType.LANDED,
        LandingRefused: EventType.LANDING_REFUSED,
    }

    def once(current: Run) -> list[EventDraft]:
        if current.landing == data:
            return []
        return [EventDraft(type=kinds[type(data)], data=data, step_id=current.step_id, attempt=current.attempt)]

    runtime.store.control(run.run_id, once)
    open_log(runtime, run.run_id).close()


# The queue ------------------------------------------------------------------------------------------


@dataclass
class _Entry:
    """One change in the queue: merged on top of `before`, and judged by a run of its own."""

    run: Run
    before: str
    merged: str
    judging: Future[Run]


@dataclass
class Queue:
    runtime: Runtime
    checkout: Path
    objects: ObjectStore
    asked: Landing
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    landed: list[Run] = field(default_factory=list)

    def work(self, runs: Sequence[Run]) -> dict[str, Outcome]:
        """Land what holds, from the front; merge and judge the rest anew whenever the ground under it changed."""
        waiting, moves = list(runs), 0
        with ThreadPoolExecutor(max(1, self.asked.jobs), "landing") as pool:
            while waiting:
                tip = branch_tip(self.checkout, self.asked.branch, self.objects)
                entries = self._chain(waiting, tip, pool)
                moved = self._land_front(entries, tip)
                for entry in entries:
                    if entry.run.run_id not in self.outcomes:
                        entry.judging.cancel()
                waiting = [run for run in waiting if run.run_id not in self.outcomes]
                moves += moved
                if moves > MOST_MOVES:
                    raise _refused(
                        f"The branch {self.asked.branch} moved {moves} times while changes were judged.",
                        "Land again when others are done with it.",
                    )
        return self.outcomes

    def _chain(self, runs: Sequence[Run], tip: Tip, pool: ThreadPoolExecutor) -> list[_Entry]:
        """Each change merged on top of those before it; those that cannot be merged leave the queue here."""
        entries: list[_Entry] = []
        tree = tip.tree
        for run in runs:
            merged = self._merged(run, tree)
            if isinstance(merged, str):
                judging = pool.submit(self._judge, run, tip, tree, merged)
                entries.append(_Entry(run, tree, merged, judging))
                tree = merged
            elif not entries:
                self._end(run, merged)
        return entries

    def _merged(self, run: Run, ours: str) -> str | Outcome:
        """The merged tree, or why there is none. A conflict with changes that may yet be refused is asked again."""
        assert run.base is not None
        assert run.proposal is not None
        branch = self.asked.branch
        if (there := landed_before(self.checkout, branch, run.run_id)) is not None:
            judged = run.landing.judged_by if isinstance(run.landing, Landed) else ""
            return Landed(
                checkout=str(self.checkout), branch=branch, commit=there[0], parent=there[1], judged_by=judged
            )
        with closing(changed_objects(self.runtime, run, run.base)) as objects:
            fetch_base(self.runtime, run.base, objects)
        merge = merge_trees(self.objects, run.base.untouched, ours, run.proposal.tree)
        if merge.conflicts:
            files = ", ".join(merge.conflicts[:5])
            others = " and ".join(self._landed_with(merge.conflicts)) or "the branch"
            reason = f"it and {others} changed the same lines of {files}"
            return LandingRefused(branch=branch, reason=reason, conflicts=merge.conflicts)
        if merge.tree == ours:
            return LandingRefused(branch=branch, reason="the branch holds all of its change already")
        return merge.tree

    def _landed_with(self, paths: Sequence[str]) -> list[str]:
        """The runs of this queue that landed and touch one of these paths."""
        return [
            run.run_id
            for run in self.landed
            if run.proposal is not None and not set(paths).isdisjoint(run.proposal.patch.touched_files)
        ]

    def _land_front(self, entries: Sequence[_Entry], tip: Tip) -> bool:
        """Commit the judged changes from the front, up to the first that does not hold; True if the branch moved."""
        parent, exists = tip.commit, tip.exists
        for entry in entries:
            judged = entry.judging.result()
            if judged.state is not State.DONE or judged.proof is None or not judged.proof.ok:
                self._end(entry.run, _refusal(self.asked.branch, judged))
                return False
            name = add_to_branch(
                self.checkout, self.objects, self._commit(entry, parent), self.asked.branch, exists=exists
            )
            if name is None:
                return True
            self._end(
                entry.run,
                Landed(
                    checkout=str(self.checkout),
                    branch=self.asked.branch,
                    commit=name,
                    parent=parent,
                    judged_by=judged.run_id,
                ),
            )
            parent, exists = name, True
        return False

    def _commit(self, entry: _Entry, parent: str) -> Commit:
        proof, at = first_proof(entry.run, self.runtime.store.events(entry.run.run_id))
        return Commit(
            parent=parent,
            commit_tree=entry.before,
            base_tree=entry.before,
            new_tree=entry.merged,
            message=redact(message_of(entry.run, proof)),
            at=at,
        )

    def _end(self, run: Run, outcome: Outcome) -> None:
        self.outcomes[run.run_id] = outcome
        if isinstance(outcome, Landed):
            self.landed.append(run)
        record(self.runtime, run, outcome)
        self.asked.on_outcome(run.run_id, outcome)

    def _judge(self, run: Run, tip: Tip, before: str, merged: str) -> Run:
        """The run that judges a merged tree, worked on to its end."""
        assert run.base is not None
        with closing(open_objects(self.runtime.home, run.base.repo_id)) as objects:
            pinned = run.base.model_copy(
                update={
                    "commit": tip.commit,
                    "commit_tree": tip.tree,
                    "before": before,
                    "tree": tree_with_tests(objects, before, merged),
                    "proposed": merged,
                    "carried": (),
                    "measured": None,
                }
            )
            patch = objects.diff(before, merged).patch
        goal = f"Judge the change of {run.run_id} on {self.asked.branch}"
        task = judging_task(run, goal, tip.commit, patch)
        begun = begin(self.runtime, task, derived_id(run.run_id, "land", before, merged), pinned)
        self.asked.on_progress(f"judging {run.run_id} on {self.asked.branch} as {begun.run.run_id}")
        return self.asked.judge(self.runtime, begun)


def _refusal(branch: str, judged: Run) -> LandingRefused:
    failure, result = judged.failure, judged.test_result
    red = (*result.regressions, *result.failed_tests_after) if result is not None else ()
    if red:
        reason = f"on the merged tree {', '.join(dict.fromkeys(red[:3]))} fails"
    else:
        reason = failure.message if failure is not None else f"its judgement ended {judged.state}"
    return LandingRefused(branch=branch, reason=reason, judged_by=judged.run_id)
