"""Workers as they run in earnest: processes of their own, with homes of their own, on one store."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codepilot.core.events import Event, EventType
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, WorkerPool, make_task, submit
from codepilot.store import StepStatus
from configured import configured
from ready import Started

ONCE = (
    EventType.BASELINE_RECORDED,
    EventType.PATCH_PROPOSED,
    EventType.TESTS_JUDGED,
    EventType.REVIEW_RECORDED,
    EventType.PROOF_RECORDED,
    EventType.BUNDLE_WRITTEN,
    EventType.RUN_FINISHED,
)
"""What happens once in a run that goes well, however often its workers die."""

CODE = """def shipping(amount, limit=50):
    if amount > limit:
        return 0
    return 5
"""
TESTS = """import unittest

from shop import shipping


class ShopTest(unittest.TestCase):
    def test_it_costs_below_the_limit(self):
        self.assertEqual(shipping(49), 5)
        self.assertEqual(shipping(51), 0)

    def test_it_is_free_at_the_limit(self):
        self.assertEqual(shipping(50), 0)
        self.assertEqual(shipping(20, limit=20), 0)
"""
SLOW = """import time, unittest


class SlowTest(unittest.TestCase):
    def test_it(self):
        time.sleep({seconds})
        self.fail("always")
"""


def make_repo(path: Path, files: dict[str, str] | None = None) -> Path:
    path.mkdir(parents=True)
    for name, text in (files or {"shop.py": CODE, "test_shop.py": TESTS}).items():
        (path / name).write_text(text, encoding="utf-8")
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *identity, *arguments], cwd=path, check=True)
    return path


@dataclass
class WorkerProcess:
    """`codepilot worker`, started."""

    home: Path
    process: Started
    log: Path
    name: str = ""
    listen: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_reported(self) -> bool:
        """True if it reported that it is at work."""
        return bool(self.name or select.select([self.process.stdout], [], [], 0)[0])

    def reported_name(self) -> str:
        """Its name, waited for if need be."""
        if not self.name:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert '"worker"' in line, line + self.logged()
            reported = json.loads(line)
            self.name, self.listen = reported["worker"], reported["listen"]
        return self.name

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.listen}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8")


@dataclass
class CommandProcess:
    """`codepilot` with any other command, started."""

    process: Started

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def sees_to_a_run(self) -> bool:
        """Whether it works on a run or follows it: only then it handles SIGQUIT."""
        caught = re.findall(r"SigCgt:\s+([0-9a-f]+)", Path(f"/proc/{self.process.pid}/status").read_text())[0]
        return bool(int(caught, 16) >> (signal.SIGQUIT - 1) & 1)

    def end(self, seconds: float = 110) -> tuple[int, str, str]:
        """Its exit code, and what it printed."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@dataclass
class Deployment:
    """One store, and as many homes as there are machines."""

    root: Path
    environ_more: dict[str, str] = field(default_factory=dict)
    workers: list[WorkerProcess] = field(default_factory=list)
    commands: list[CommandProcess] = field(default_factory=list)

    @property
    def elsewhere(self) -> str:
        """Another machine's home, where machines share a store."""
        return "two" if "CODEPILOT_STORE" in self.environ_more else "one"

    def environ(self, home: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
        cheap = {"CODEPILOT_PROJECT_RUNNER": "unittest", "CODEPILOT_POLICY_REGRESSION_TEST": "false"}
        cheap["CODEPILOT_POLICY_GENERATED_CODE"] = "off"
        mine = {**cheap, "CODEPILOT_HOME": str(self.root / home), "COLUMNS": "200"}
        return {**kept, **mine, **self.environ_more}

    def run(self, *arguments: str, home: str = "home") -> str:
        code, out, err = self.start(*arguments, home=home).end()
        assert code == 0, out + err
        return out.strip()

    def start(self, *arguments: str, home: str = "home") -> CommandProcess:
        """Any other command, started."""
        started = CommandProcess(Started(arguments, self.environ(home)))
        self.commands.append(started)
        return started

    def worker(self, *arguments: str, home: str = "home", ready: bool = True) -> WorkerProcess:
        self.root.mkdir(parents=True, exist_ok=True)
        log = self.root / f"{home}.worker-{len(self.workers)}.log"
        command = ["worker", "--json", *arguments]
        with log.open("wb") as err:
            process = Started(command, self.environ(home), stderr=err, start_new_session=True)
        started = WorkerProcess(self.root / home, process, log)
        self.workers.append(started)
        if ready:
            started.reported_name()
        return started

    @contextlib.contextmanager
    def runtime(self, home: str = "home") -> Iterator[Runtime]:
        environ = self.environ(home)
        kept = {name: os.environ.get(name) for name in environ if name.startswith("AWS_")}
        os.environ.update({name: environ[name] for name in kept})  # the S3 client reads its own environment
        try:
            with Runtime.open(configured(environ)) as runtime:
                yield runtime
        finally:
            for name, value in kept.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    @contextlib.contextmanager
    def pool(self, home: str = "home") -> Iterator[str]:
        """A pool as a worker's process has it, in a thread; its worker's name."""
        with self.runtime(home) as runtime:
            worker = Worker(runtime)
            pool = WorkerPool(runtime, worker, concurrency=2)
            thread, ready = threading.Thread(target=lambda: pool.run(ready.set)), threading.Event()
            thread.start()
            try:
                assert ready.wait(60)
                yield worker.name
            finally:
                pool.stop(hurry=True)
                thread.join()

    @contextlib.contextmanager
    def held(self, run_id: str, home: str = "home") -> Iterator[threading.Event]:
        """A worker has the run's first step, and goes on with it once it is asked to."""
        reported = threading.Event()
        with self.runtime(home) as runtime:
            worker = Worker(runtime, lambda event: reported.wait(90) and None)
            thread = threading.Thread(target=worker.drive, args=(run_id,))
            thread.start()
            try:
                wait_for(lambda: at_work(runtime, run_id))
                yield reported
            finally:
                reported.set()
                thread.join()

    def submit(self, repo: Path, home: str = "home", **asked: object) -> str:
        """As the command does, without the price of a process."""
        with self.runtime(home) as runtime:
            wanted = Request(repo=str(repo), **asked)  # type: ignore[arg-type]
            return submit(runtime, make_task(wanted, configured(self.environ(home)))).run_id

    def close(self) -> None:
        for command in self.commands:
            if command.process.poll() is None:
                command.process.kill()
                command.end()
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.kill()
            if worker.process.stdout is not None:
                worker.process.stdout.close()


def wait_for(seen: Callable[[], Any], seconds: float = 60.0, pause: float = 0.02) -> Any:
    """What `seen` gives once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := seen()):
        assert time.monotonic() < deadline, f"not seen within {seconds} s"
        time.sleep(pause)
    return found


def has(runtime: Runtime, run_id: str, kind: EventType) -> Callable[[], bool]:
    return lambda: any(event.type is kind for event in runtime.store.events(run_id))


def ended(runtime: Runtime, run_id: str, seconds: float = 90.0) -> tuple[Run, list[Event]]:
    wait_for(lambda: runtime.store.load(run_id).terminal, seconds, 0.05)
    runtime.store.check(run_id)
    return runtime.store.load(run_id), runtime.store.events(run_id)


def starters(events: Sequence[Event]) -> list[str]:
    """The workers that started steps, in their order."""
    return [event.data.worker for event in events if event.type is EventType.STEP_STARTED]  # type: ignore[attr-defined]


def processes_of(marker: str) -> list[str]:
    """Processes whose command line or mounts mention the marker, but for our own: code inside a sandbox shows no path
    of the host's in its command line, and yet has the workspace mounted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                mounts = (entry / "mountinfo").read_text(errors="replace")
                if marker in line or marker in mounts:
                    found.append(f"{entry.name}: {line}")
    return found


def left_in(home: Path) -> list[str]:
    """What a home must not have when all its runs have ended."""
    unwanted = ("workspaces/*", "locks/*.workspace-lease", "bundles/.*")
    return sorted(str(path) for pattern in unwanted for path in home.glob(pattern))


def at_work(runtime: Runtime, run_id: str) -> bool:
    return any(step.status is StepStatus.RUNNING for step in runtime.store.steps(run_id))


def waited(events: Sequence[Event], asked: EventType, done: EventType) -> float:
    """Seconds from the last event of one kind to the last of another."""
    times = {event.type: event.at for event in events}
    return (times[done] - times[asked]) / 1e6
