"""Torture: workers are killed, one is frozen past its lease, the database falls over; nothing may show it afterwards.

`python tests/workers/torture.py SECONDS [SEED]` does it for as long as you like; the suite does it for some seconds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from workers_kit import ONCE, Deployment, WorkerProcess, left_in, make_repo, processes_of

from codepilot.core.events import EventType, State, StepStarted
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, apply_run, fetch_bundle, make_task, submit
from codepilot.verify import check_bundle
from configured import configured
from receiver import Receiver, receiver
from servers import PostgresServer, S3Server, postgres_server, s3_server

WORKERS = 3
STALE_SEC = 3.0
PEACE_SEC = 90.0
"""How long the last of the runs may take when nobody disturbs them any more."""

ANSWER_SEC = 0.3
"""How long the receiver takes to answer: anyone who tells it of an end may well be killed meanwhile."""

MEMORIES = "SELECT kind FROM memories WHERE run_id = %s ORDER BY kind"
ARTIFACTS = (
    "SELECT e.type AS event, a.type, count(*) AS times FROM artifacts a JOIN events e USING (run_id, seq) "
    "WHERE run_id = %s GROUP BY e.type, a.type, a.sha256, CASE e.type WHEN 'snapshot_kept' THEN e.data END"
)
"""How often events of a kind name the same artifact; two snapshots may well have the same content."""

BRANCH = "codepilot/{run}"
FILES = {
    "sums.py": "def add(a, b):\n    return a - b\n",
    "test_sums.py": (
        "import unittest\n\nfrom sums import add\n\n\nclass SumsTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n        self.assertEqual(add(4, -1), 3)\n"
    ),
}


@dataclass
class Recorded:
    """What was done to the workers."""

    kills: int = 0
    frozen: int = 0
    restarts: int = 0
    starts: int = 0
    starts_of_steps: int = 0
    taken_over: int = 0
    sent_twice: int = 0
    """Notifications that were sent again, because anyone who sent them first did not come to record it."""
    seconds: float = 0.0
    last_kill: float = field(default=0.0, repr=False)


@dataclass
class Torture:
    deployment: Deployment
    postgres: PostgresServer
    repo: Path
    seconds: float
    random: random.Random
    runs: int = 8
    reported: Recorded = field(default_factory=Recorded)
    slots: list[WorkerProcess] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)

    def torment(self) -> Recorded:
        """All of it; raises AssertionError for whatever is not as it should be."""
        began = time.monotonic()
        expected = self._undisturbed()
        with receiver(delay_sec=ANSWER_SEC) as reported, self.deployment.runtime("door") as runtime:
            self.deployment.environ_more["CODEPILOT_NOTIFY_URL"] = reported.url
            task = make_task(Request(repo=str(self.repo), branch=BRANCH, notify=True, elsewhere=True), configured())
            self.submitted = [submit(runtime, task).run_id for _ in range(self.runs)]
            self.slots = [self._start(number) for number in range(WORKERS)]
            self._disturb(runtime, time.monotonic() + self.seconds)
            self._let_finish(runtime)
            for worker in self.slots:
                worker.reported_name()  # before that, a signal is not yet for it to handle
                worker.signal(signal.SIGTERM)
            ended = [worker.wait(60) for worker in self.slots]
            assert ended == [0] * WORKERS, [worker.logged()[-500:] for worker in self.slots]
            self._judge(runtime, expected)
            self._judge_reported(runtime, reported)
        self._look_for_remains()
        self.reported.seconds = time.monotonic() - began
        return self.reported

    def _undisturbed(self) -> Run:
        """The same run where nothing happens to it."""
        os.environ["CODEPILOT_PROJECT_RUNNER"] = "unittest"
        with Runtime.open(configured({"CODEPILOT_HOME": str(self.deployment.root / "quiet")})) as runtime:
            run = submit(runtime, make_task(Request(repo=str(self.repo), branch=BRANCH), configured()))
            return Worker(runtime).drive(run.run_id)

    # what happens to them -----------------------------------------------------------------------------

    def _start(self, number: int) -> WorkerProcess:
        self.reported.starts += 1
        return self.deployment.worker("--stale-after", f"{STALE_SEC:g}", home=f"machine-{number}", ready=False)

    def _disturb(self, runtime: Runtime, until: float) -> None:
        """Kills every second or two; one restart of the server and one long freeze somewhere on the way."""
        began = time.monotonic()
        restart, freeze = began + min(8.0, (until - began) * 0.3), began + min(15.0, (until - began) * 0.55)
        frozen: tuple[int, float] | None = None
        while time.monotonic() < until and not self._all_ended(runtime):
            time.sleep(self.random.uniform(1.0, 2.0))
            now = time.monotonic()
            if not self.reported.restarts and now >= restart:
                self.postgres.restart()
                self.reported.restarts += 1
            if frozen is not None and now >= frozen[1]:
                self.slots[frozen[0]].signal(signal.SIGCONT)
                frozen = None
            if not self.reported.frozen and now >= freeze:
                frozen = (self._busy_slot(runtime), now + STALE_SEC + 1.5)
                self.slots[frozen[0]].signal(signal.SIGSTOP)
                self.reported.frozen += 1
                continue
            self._kill({frozen[0]} if frozen else set())
        if frozen is not None:
            time.sleep(max(0.0, frozen[1] - time.monotonic()))
            self.slots[frozen[0]].signal(signal.SIGCONT)

    def _kill(self, spared: set[int]) -> None:
        number = self.random.choice([one for one in range(WORKERS) if one not in spared])
        self.slots[number].kill()
        self.reported.kills += 1
        self.slots[number] = self._start(number)

    def _busy_slot(self, runtime: Runtime) -> int:
        """The worker that started a step last, if it still lives: freezing an idle one shows little."""
        names = {worker.reported_name(): number for number, worker in enumerate(self.slots) if worker.has_reported()}
        for run_id in self.submitted:
            for step in runtime.store.steps(run_id):
                if step.worker in names and step.ended_at is None:
                    return names[step.worker]
        return self.random.randrange(WORKERS)

    def _all_ended(self, runtime: Runtime) -> bool:
        return all(runtime.store.load(run_id).terminal for run_id in self.submitted)

    def _let_finish(self, runtime: Runtime) -> None:
        deadline = time.monotonic() + PEACE_SEC
        while not self._all_ended(runtime) or runtime.store.outbox.pending():
            steps = {run: runtime.store.steps(run)[-1] for run in self.submitted}
            assert time.monotonic() < deadline, (steps, runtime.store.outbox.pending())
            time.sleep(0.1)

    # how it must be afterwards ------------------------------------------------------------------------

    def _judge(self, runtime: Runtime, expected: Run) -> None:
        problems = runtime.store.check_all()
        assert not problems, problems
        assert expected.proposal is not None
        for run_id in self.submitted:
            run, events = runtime.store.load(run_id), runtime.store.events(run_id)
            assert (run.state, run.verdict) == (State.DONE, expected.verdict), run.failure
            assert run.proposal is not None
            assert run.proposal.patch.diff == expected.proposal.patch.diff, (run_id, run.proposal, expected.proposal)
            kinds = Counter(event.type for event in events)
            once_each = dict.fromkeys((*ONCE, EventType.COMMIT_RECORDED), 1)
            once_each[EventType.PATCH_PROPOSED] = 2  # with the regression test once more
            assert {kind: kinds[kind] for kind in once_each} == once_each, (run_id, kinds)
            self._judge_rows(run_id)
            self._judge_commit(run)
            started = [(event.step_id, event.data.fence) for event in events if isinstance(event.data, StepStarted)]
            assert started == sorted(set(started)), "each start of a step has a fence of its own, and they rise"
            self.reported.starts_of_steps += len(started)
            self.reported.taken_over += len(started) - len({step for step, _ in started})
            fetch_bundle(run, events, runtime)
            check_bundle(runtime.home.bundles / run_id, None)
        lost = [line for line in self._git("fsck", "--unreachable", "--no-reflogs") if "commit" in line]
        assert not lost, lost
        assert len(self._git("for-each-ref", "refs/heads/codepilot/")) == self.runs + 1, "one each, the quiet one's too"
        first = self.submitted[0]
        apply_run(runtime, first, accept_plausible=True)
        apply_run(runtime, first, accept_plausible=True)
        applied = [event for event in runtime.store.events(first) if event.type is EventType.PATCH_APPLIED]
        assert (len(applied), (self.repo / "sums.py").read_text()) == (1, FILES["sums.py"].replace("-", "+"))

    def _judge_commit(self, run: Run) -> None:
        """The branch is there, with the recorded commit and no other above the base."""
        assert run.committed is not None, run.uncommitted
        assert run.proposal is not None
        branch = f"codepilot/{run.run_id}"
        assert (run.committed.branch, run.committed.parent) == (branch, *self._git("rev-parse", "HEAD"))
        assert self._git("rev-list", f"HEAD..{branch}") == [run.committed.commit]
        assert tuple(self._git("diff", "--name-only", "HEAD", branch)) == run.proposal.patch.touched_files

    def _git(self, *arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=self.repo, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def _judge_rows(self, run_id: str) -> None:
        """Of what a run learnt and what it names there is one row each, as the database itself tells."""
        engine = create_engine(self.deployment.environ_more["CODEPILOT_STORE"], poolclass=NullPool)
        with engine.connect() as connection:
            memories = connection.exec_driver_sql(MEMORIES, (run_id,)).scalars().all()
            assert memories == ["failure", "pattern"], (run_id, memories)
            named = connection.exec_driver_sql(ARTIFACTS, (run_id,)).all()
            assert {tuple(row)[:-1] for row in named} >= {("patch_proposed", "patch"), ("baseline_recorded", "report")}
            twice = [tuple(row) for row in named if row.times > 1]
            assert not twice, (run_id, twice)
        engine.dispose()

    def _judge_reported(self, runtime: Runtime, reported: Receiver) -> None:
        """The receiver got each end under one key, of which there is one record, and the same each time."""
        bodies = defaultdict(list)
        for received in reported.received:
            bodies[received.key].append(received.body)
        rows = [row for run_id in self.submitted for row in runtime.store.outbox.of(run_id)]
        assert [row.run_id for row in rows] == self.submitted, "one end each"
        assert bodies.keys() == {f"{row.run_id}:{row.seq}" for row in rows}
        assert {len(set(logged)) for logged in bodies.values()} == {1}, bodies
        assert {row.state for row in rows} == {"sent"}
        for run_id in self.submitted:
            sent = [event for event in runtime.store.events(run_id) if event.type is EventType.NOTIFICATION_SENT]
            assert len(sent) == 1, (run_id, sent)
        self.reported.sent_twice = len(reported.received) - len(bodies)

    def _look_for_remains(self) -> None:
        for number in range(WORKERS):
            left = left_in(self.deployment.root / f"machine-{number}")
            assert not left, left
        deadline = time.monotonic() + 5  # what a process that was just killed had, its janitor is still about to remove
        while (left := self._remains()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, left

    def _remains(self) -> list[str]:
        marker = str(self.deployment.root)
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if marker in line]
        pids = {worker.pid for worker in self.deployment.workers}
        groups = [
            str(path)
            for path in Path("/sys/fs/cgroup").glob("**/codepilot-box-*")
            if any(f"-{pid}-" in path.name for pid in pids)
        ]
        temporary = [str(path) for path in (self.deployment.root / "tmp").iterdir()]
        return [*processes_of(marker), *mounts, *groups, *temporary]


def make_torture(
    root: Path, postgres: PostgresServer, s3: S3Server, seconds: float, seed: int, runs: int = 8
) -> Torture:
    """Workers whose temporary files go to a directory of their own."""
    temporary = root / "deployment" / "tmp"
    temporary.mkdir(parents=True)
    shared = {"CODEPILOT_STORE": postgres.store(), "CODEPILOT_ARTIFACTS": f"{s3.url}/{root.name}"}
    deployment = Deployment(root / "deployment", {**s3.environ, **shared, "TMPDIR": str(temporary)})
    return Torture(deployment, postgres, make_repo(root / "sums", FILES), seconds, random.Random(seed), runs)


def main(seconds: float, seed: int) -> None:
    """Round after round of eight runs, until the time is over."""
    until = time.monotonic() + seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        root = Path(folder)
        with postgres_server(root / "pg") as postgres, s3_server(root / "s3") as s3:
            for number in range(1_000_000):
                (root / f"round-{number}").mkdir()
                left = until - time.monotonic()
                torture = make_torture(root / f"round-{number}", postgres, s3, min(left, 60.0), seed + number)
                try:
                    reported = torture.torment()
                    sys.stdout.write(f"round {number}, seed {seed + number}: {reported}\n")
                    assert reported.kills and reported.restarts and reported.frozen, "all ended before the worst of it"
                    sys.stdout.flush()
                finally:
                    torture.deployment.close()
                if until - time.monotonic() < 10:
                    break
    sys.stdout.write("Every run ended as it would have, each effect once, and nothing is left behind.\n")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(10**6))
