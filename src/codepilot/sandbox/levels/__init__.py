"""The part that all levels share: run and supervise a launch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import Event

from codepilot.sandbox.limits import supervisor
from codepilot.sandbox.limits.supervisor import SupervisedProcess
from codepilot.sandbox.limits.tree import Launch
from codepilot.sandbox.spec import CommandResult, Limits, Process, SandboxSpec


class LevelBase(ABC):
    @abstractmethod
    def _launch(self, argv: Sequence[str], spec: SandboxSpec, limits: Limits) -> Launch:
        """How the command is started, confined."""

    def run(
        self,
        argv: Sequence[str],
        spec: SandboxSpec,
        limits: Limits,
        stdin: bytes = b"",
        cancel: Event | None = None,
    ) -> CommandResult:
        return supervisor.run(self._launch(argv, spec, limits), limits, stdin, cancel)

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, limits: Limits, ended: Callable[[], None] = lambda: None
    ) -> Process:
        return SupervisedProcess(self._launch(argv, spec, limits), limits, ended)
