"""Interactive runs of a program that speaks our JSON lines and does the steps of a script."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine_kit import CHEAP, CODE

from codepilot.agents import StepContext
from codepilot.agents.cli.json_lines import FEATURES, JsonLinesConversation
from codepilot.agents.cli.line_agent import LineAgent
from codepilot.agents.cli.protocol import Failed, Feature, Finished, TurnEnded
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.checkpoint import CheckpointRecorded
from codepilot.core.contract import Contract
from codepilot.core.events import Event, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.interactive import InteractiveSettings
from codepilot.core.policy import Policy
from codepilot.core.run import Run
from codepilot.core.task import Capability
from codepilot.engine import CodePilot, Request, Runtime, Worker, make_task, submit
from codepilot.executor import StartProcess
from configured import reconfigured

PROGRAM = (Path(__file__).parents[1] / "json_lines_agent.py").read_text()
MENDED = CODE.replace("width + height", "width * height", 1)
MEND = ["write", "shapes.py", MENDED]
QUICK = {"min_checkpoint_interval_ms": 0, "watchdog_poll_interval_ms": 50, "acknowledgement_ms": 2_000}
"""Settings under which nothing waits longer than it must."""

Kind = TypeVar("Kind", bound=Contract)
Steps = Sequence[Sequence[object]]


class StdioAgent:
    """Implements the task by a program in the sandbox; each time that it is asked it gets the next script."""

    name = "stdio"
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF
    languages = None

    def __init__(self, *scripts: Steps, features: frozenset[Feature] = FEATURES) -> None:
        self.features = features
        self.received: list[str] = []
        """The messages that the program received, in its own words."""
        self._scripts = list(scripts)

    def perform(self, role: State, context: StepContext) -> PatchCandidate:
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        argv = (sys.executable, "-c", PROGRAM, json.dumps(script))
        process = context.executor.start_process(StartProcess(workspace=context.workspace, argv=argv))
        start = {"type": "start", "prompt": "", "workspace": "", "session": None, "model": ""}
        running = LineAgent(self.name, process, JsonLinesConversation(self.name, start), self.features)
        try:
            if context.session is not None:
                context.session.attached(running)
            for event in running.events(0.05):
                context.raise_if_stopped()
                if isinstance(event, TurnEnded) and context.session is not None:
                    for message in context.session.turn_ended():
                        running.send(message)
                elif isinstance(event, Failed):
                    raise CodePilotError.of(event.failure)
                elif isinstance(event, Finished):
                    return PatchCandidate(diff="", touched_files=(), rationale=event.text)
                elif getattr(event, "text", None):
                    self.received.append(event.text)  # type: ignore[union-attr]
            raise CodePilotError(FailureKind.AGENT_CRASHED, "it ended without a result")
        finally:
            if context.session is not None and not context.stopped():
                context.session.detached()
            running.close()


class Interactive:
    """One interactive run, worked on by a thread while the test does what people do."""

    def __init__(
        self,
        runtime: Runtime,
        checkout: Path,
        agent: StdioAgent,
        policy: Policy | None = None,
        worktree: Path | None = None,
        **settings: Any,
    ) -> None:
        self.runtime = reconfigured(runtime)
        self.agent = agent
        task = make_task(Request(repo=str(checkout), execution_mode="interactive"), CHEAP)
        update = {
            "policy": policy or task.policy,
            "interactive": InteractiveSettings.model_validate({**QUICK, **settings}),
            "worktree": str(worktree) if worktree else None,
        }
        self.run_id = submit(self.runtime, task.model_copy(update=update)).run_id
        self.pilot = CodePilot(self.runtime.settings)
        self._ended: list[Run | BaseException] = []
        self._thread: threading.Thread | None = None

    def begin(self) -> Interactive:
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def _work(self) -> None:
        try:
            self._ended.append(Worker(self.runtime, agent_for=lambda task: self.agent).drive(self.run_id))
        except BaseException as error:  # noqa: BLE001
            self._ended.append(error)

    def end(self, seconds: float = 60.0) -> Run:
        if self._thread is None:
            self.begin()
        assert self._thread is not None
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the run did not end"
        ended = self._ended.pop()
        self._thread = None
        if isinstance(ended, BaseException):
            raise ended
        self.runtime.store.check(self.run_id)
        return ended

    @property
    def tree(self) -> Path:
        """Where the agent works."""
        place = self.runtime.home.workspaces / self.run_id
        return place / "shadow" if (place / "shadow").is_dir() else place / "tree"

    def events(self) -> list[Event]:
        return self.runtime.store.events(self.run_id)

    def found(self, kind: type[Kind]) -> list[Kind]:
        return [event.data for event in self.events() if isinstance(event.data, kind)]

    def checkpoints(self) -> list[CheckpointRecorded]:
        return self.found(CheckpointRecorded)

    def until(self, true: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until something is true; a run that ended meanwhile is an error."""
        deadline = time.monotonic() + seconds
        while not (found := true()):
            assert time.monotonic() < deadline, [str(event.type) for event in self.events()]
            assert self._thread is not None
            assert self._thread.is_alive(), (self._ended, [str(event.type) for event in self.events()])
            time.sleep(0.02)
        return found
