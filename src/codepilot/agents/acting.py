"""Carries out one action of a role: checked, run inside, observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codepilot.agents.checking import advice_of, check_code, refused_action
from codepilot.agents.forbidden import forbidden
from codepilot.agents.host_functions import HOST_FUNCTIONS, HostFunctions, with_host_functions
from codepilot.agents.seat import Seat
from codepilot.agents.transcript import Turn, observation_of, too_long
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.contract import JsonObject
from codepilot.core.events import DependencyDegraded, EventType, TurnFinished
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.executor import CodeResult, RunCode
from codepilot.skills import Answering, Registry

PRELUDE_SEC = 30.0


@dataclass
class Hands:
    """What a role may do, and the kernel it does it in."""

    seat: Seat
    registry: Registry
    capability: Capability
    loaded: bool = False

    def run(self, code: str, number: int, turns: Sequence[Turn]) -> tuple[TurnFinished, tuple[ArtifactRef, ...]]:
        """Run an action, or refuse it; what it gave, and where the whole of that is kept."""
        seat, run = self.seat, self.seat.run
        found = check_code(code, seat.desk, self.capability)
        if refused := refused_action(found):
            observation, blocked = refused
            seat.record(EventType.GUARDRAIL_BLOCKED, blocked)
            return TurnFinished(turn=number, observation=observation), ()
        seconds = max(1.0, min(run.task.budget.command_sec, seat.desk.seconds_left()))
        result = self._carry_out(code, turns, seconds, f"{run.run_id}/{run.step_id}/{run.attempt}/{number}")
        self.loaded = result.status in ("ok", "error") and not result.kernel_restarted
        for blocked in forbidden(result):
            seat.record(EventType.GUARDRAIL_BLOCKED, blocked)
        observation, kept = self._observed(result, number)
        if advice := advice_of(found):
            observation["advice"] = [*advice]
        calls = self.registry.known(result.calls)
        return TurnFinished(turn=number, observation=observation, tree=result.tree, calls=calls), kept

    def _observed(self, result: CodeResult, number: int) -> tuple[JsonObject, tuple[ArtifactRef, ...]]:
        """What is shown of a result; the whole of it is kept if that is not all."""
        observation = observation_of(result)
        if not (whole := too_long(result)):
            return observation, ()
        try:
            ref = self.seat.desk.keep(whole.encode("utf-8", "backslashreplace"))
        except CodePilotError as error:
            if error.kind is not FailureKind.ARTIFACT_STORE_UNAVAILABLE:
                raise
            consequence = f"of the output of turn {number} only the shown part is kept"
            degraded = DependencyDegraded(dependency="artifacts", consequence=consequence, failure=error.failure)
            self.seat.record(EventType.DEPENDENCY_DEGRADED, degraded)
            return observation, ()
        artifact: JsonObject = ref.model_dump(mode="json")
        observation["whole"] = {"artifact": artifact, "characters": len(whole), "turn": number}
        return observation, (ref,)

    def _carry_out(self, code: str, turns: Sequence[Turn], seconds: float, key: str) -> CodeResult:
        """Run an action, and answer what it asks of the host."""
        self._load_skills()
        functions = HostFunctions(self.seat, turns, seconds)
        names = tuple(sorted(name for name in HOST_FUNCTIONS if name in self.registry))
        answer = with_host_functions(self.registry, functions).only(frozenset(names)).answer(self.capability)
        try:
            return self._run_code(code, seconds, key, names, answer)
        finally:
            functions.stop()

    def _load_skills(self) -> None:
        """Give the kernel the role's functions; the first time in a step, also what a workspace needs once."""
        if self.loaded:
            return
        project = self.seat.desk.project
        fresh = not self.seat.acted and self.capability.allows(Capability.WRITE_WITH_DIFF)
        prelude = self.registry.prelude(self.capability, project.interpreter.executable, project.runner, prepare=fresh)
        loaded = self._run_code(prelude, PRELUDE_SEC, "")
        if loaded.status != "ok":
            said = loaded.error.message if loaded.error else loaded.stderr[-500:]
            raise CodePilotError(FailureKind.EXECUTOR_LOST, f"The skills could not be loaded ({loaded.status}): {said}")
        self.loaded = self.seat.acted = True

    def _run_code(
        self, code: str, timeout_sec: float, key: str, names: tuple[str, ...] = (), answer: Answering | None = None
    ) -> CodeResult:
        desk = self.seat.desk
        request = RunCode(
            workspace=desk.workspace, code=code, timeout_sec=timeout_sec, idempotency_key=key, host_calls=names
        )
        return desk.executor.run_code(request, answer)
