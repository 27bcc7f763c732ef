"""The CodeAct loop: a chat model emits Python, the sandbox runs it, the observation goes back, until a result.

Everything the loop knows is in the step's events, so a step that was interrupted goes on from its last
observation. Turns are recorded before they are carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic import ValidationError

from codepilot.agents.checking import advice_of, check_code, refused_action
from codepilot.agents.forbidden import forbidden
from codepilot.agents.halting import require_room, require_tools
from codepilot.agents.protocol import Desk, RoleArtifact
from codepilot.agents.replies import PYTHON_TOOL, Code, Malformed, Result, read_reply
from codepilot.agents.roles import ROLES, Role, opening
from codepilot.agents.stuck import Deed, going_in_circles
from codepilot.agents.transcript import ACCEPTED, FORMAT_ERROR, Turn, conversation, observation_of, turns_of
from codepilot.core.breaker import FailedCall, count_failed, tripped
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.decide import over_budget
from codepilot.core.events import Event, EventDraft, EventType, State, TurnFinished, TurnStarted
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.executor import CodeResult, RunCode
from codepilot.models import Message, Model, Reply, Tool, fingerprint
from codepilot.skills import Registry, all_skills

FORMAT_ERRORS = 3
PRELUDE_SEC = 30.0

PYTHON = Tool(
    name=PYTHON_TOOL,
    description="Run Python in the workspace. Variables persist between calls.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)


class CodeActAgent:
    """Every role, played by one chat model."""

    needs = Capability.WRITE_WITH_DIFF

    def __init__(
        self, model: Model, registry: Registry | None = None, roles: Mapping[State, Role] = ROLES, name: str = "codeact"
    ) -> None:
        self.name = name
        self.roles = frozenset(roles)
        self._model = model
        self._registry = registry or all_skills()
        self._roles = roles

    def perform(self, role: State, desk: Desk) -> RoleArtifact:
        registry = self._registry if desk.run.task.hosts else self._registry.offline()
        return _Step(self._model, registry, self._roles[role], desk).artifact()


@dataclass
class _Step:
    """One step of one role at its desk."""

    model: Model
    registry: Registry
    role: Role
    desk: Desk
    turns: list[Turn] = field(init=False)
    violations: int = field(init=False)
    failed_calls: tuple[FailedCall, ...] = field(init=False)
    skills_loaded: bool = False

    def __post_init__(self) -> None:
        self.turns = list(turns_of(self.desk.history))
        self.violations = self.desk.run.violations
        self.failed_calls = self.desk.run.failed_calls

    @property
    def capability(self) -> Capability:
        asked, allowed = self.role.capability, self.desk.run.task.risk_profile.capability
        return asked if allowed.allows(asked) else allowed

    def artifact(self) -> RoleArtifact:
        """Take turns until one brings the result."""
        limit = self.desk.run.task.budget.turns_per_step
        first = opening(self.role, self.desk, self.registry.documentation(self.capability))
        while True:
            if self.turns and self.turns[-1].result is not None:
                return self._accepted(self.turns[-1].result)
            self.desk.checkpoint()
            self._stop_if_hopeless(limit)
            self._take_turn(conversation(first, self.turns, limit))

    def _stop_if_hopeless(self, limit: int) -> None:
        if self.violations >= self.desk.run.task.policy.violations:
            last = self.turns[-1].observed if self.turns else ""
            raise CodePilotError(FailureKind.POLICY_VIOLATION, f"{self.violations} forbidden actions, the last: {last}")
        tail = self.turns[-FORMAT_ERRORS:]
        if len(tail) == FORMAT_ERRORS and all(turn.malformed for turn in tail):
            raise CodePilotError(
                FailureKind.MODEL_BAD_REPLY,
                f"{self.model.name} gave {FORMAT_ERRORS} replies in a row that could not be used: {tail[-1].observed}",
                role=self.role.name,
            )
        circle = going_in_circles([_deed(turn) for turn in self.turns])
        if circle:
            raise CodePilotError(FailureKind.STUCK, f"The {self.role.name} is stuck: {circle}.", role=self.role.name)
        if len(self.turns) >= limit:
            spent = over_budget("turns_per_step", len(self.turns), limit)
            raise CodePilotError(spent.kind, spent.message, budget="turns_per_step", used=len(self.turns), limit=limit)

    def _take_turn(self, messages: tuple[Message, ...]) -> None:
        require_room(self.model, messages, self.role.max_tokens)
        reply = self.model.reply(
            messages, temperature=self.role.temperature, max_tokens=self.role.max_tokens, tools=(PYTHON,)
        )
        if reply.degraded is not None:
            self._record(EventType.DEPENDENCY_DEGRADED, reply.degraded)
        if reply.stop_reason == "refusal":
            raise CodePilotError(FailureKind.MODEL_REFUSED, f"{self.model.name} refused: {reply.text[:500]}")
        meant = self._checked(read_reply(reply))
        turn = self._start(reply, meant, fingerprint(messages))
        match meant:
            case Code(code):
                finished = self._run(code, turn.number)
            case Result():
                observed: JsonObject = {"status": ACCEPTED, "message": "The result is accepted."}
                finished = TurnFinished(turn=turn.number, observation=observed)
            case Malformed(message):
                observed = {"status": FORMAT_ERROR, "message": message}
                finished = TurnFinished(turn=turn.number, observation=observed)
        recorded = self._finish(finished)
        self.turns[-1] = replace(turn, observation=recorded.observation)
        self._stop_if_broken(recorded)

    def _finish(self, finished: TurnFinished) -> TurnFinished:
        """The turn as it is on record: with the tree it left, and what the engine found wrong in that."""
        recorded = self._record(EventType.TURN_FINISHED, finished).data
        turn = recorded if isinstance(recorded, TurnFinished) else finished
        found = turn.observation.get("violations")
        self.violations += len(found) if isinstance(found, list) else 0
        return turn

    def _stop_if_broken(self, finished: TurnFinished) -> None:
        """What this turn's calls came to may be for the whole run to mend, or for nobody."""
        step_id = self.desk.run.step_id
        self.failed_calls = count_failed(self.failed_calls, finished, step_id)
        if (broken := tripped(self.failed_calls, finished, step_id)) is not None:
            raise CodePilotError(broken.kind, broken.message, broken.next_action, **broken.details)
        if self.role.state is not State.MAP_REPO:
            require_tools(self.desk.run.repo_map, finished)

    def _start(self, reply: Reply, meant: Code | Result | Malformed, request: tuple[str, ...]) -> Turn:
        """Record what is about to be done, with all that a replay needs."""
        number = len(self.turns) + 1
        action: JsonObject = {"reply": reply.text, "request": list(request), "role": self.role.name}
        if reply.tool_calls:
            action["tool_calls"] = [call.model_dump(mode="json") for call in reply.tool_calls]
        if reply.stop_reason != "end":
            action["stop_reason"] = reply.stop_reason
        code = meant.code if isinstance(meant, Code) else None
        result = meant.value if isinstance(meant, Result) else None
        action["code"] = code
        if result is not None:
            action["result"] = result
        self._record(EventType.TURN_STARTED, TurnStarted(turn=number, action=action, usage=reply.usage))
        turn = Turn(number, reply.text, reply.tool_calls, code, result)
        self.turns.append(turn)
        return turn

    def _checked(self, meant: Code | Result | Malformed) -> Code | Result | Malformed:
        """A result that does not fit the role's schema is answered with the precise error."""
        if not isinstance(meant, Result):
            return meant
        try:
            self._accepted(meant.value)
        except ValidationError as error:
            wrong = "\n".join(
                f"- {'.'.join(str(part) for part in problem['loc']) or 'the object'}: {problem['msg']}"
                for problem in error.errors()
            )
            return Malformed(f"The result does not fit:\n{wrong}\nCorrect it and give the whole <result> again.")
        return meant

    def _accepted(self, value: JsonObject) -> RoleArtifact:
        return cast(RoleArtifact, self.role.output.model_validate(self.role.completed(value, self.desk)))

    def _run(self, code: str, number: int) -> TurnFinished:
        self._load_skills()
        run = self.desk.run
        found = check_code(code, self.desk, self.capability)
        if refused := refused_action(found):
            observation, blocked = refused
            self.violations += 1
            self._record(EventType.GUARDRAIL_BLOCKED, blocked)
            return TurnFinished(turn=number, observation=observation)
        result = self._run_code(
            code,
            max(1.0, min(run.task.budget.command_sec, self.desk.seconds_left())),
            f"{run.run_id}/{run.step_id}/{run.attempt}/{number}",
        )
        self.skills_loaded = result.status in ("ok", "error") and not result.kernel_restarted
        for blocked in forbidden(result):
            self.violations += 1
            self._record(EventType.GUARDRAIL_BLOCKED, blocked)
        observation = observation_of(result)
        if advice := advice_of(found):
            observation["advice"] = [*advice]
        return TurnFinished(
            turn=number, observation=observation, tree=result.tree, calls=self.registry.known(result.calls)
        )

    def _load_skills(self) -> None:
        if self.skills_loaded:
            return
        project = self.desk.project
        untouched = all(turn.code is None for turn in self.turns[:-1])
        fresh = untouched and self.capability.allows(Capability.WRITE_WITH_DIFF)
        prelude = self.registry.prelude(self.capability, project.interpreter.executable, project.runner, prepare=fresh)
        loaded = self._run_code(prelude, PRELUDE_SEC, "")
        if loaded.status != "ok":
            said = loaded.error.message if loaded.error else loaded.stderr[-500:]
            raise CodePilotError(FailureKind.EXECUTOR_LOST, f"The skills could not be loaded ({loaded.status}): {said}")
        self.skills_loaded = True

    def _run_code(self, code: str, timeout_sec: float, key: str) -> CodeResult:
        request = RunCode(workspace=self.desk.workspace, code=code, timeout_sec=timeout_sec, idempotency_key=key)
        return self.desk.executor.run_code(request)

    def _record(self, kind: EventType, data: Contract) -> Event:
        run = self.desk.run
        return self.desk.record(EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt))


def _deed(turn: Turn) -> Deed:
    error = str(turn.observation.get("error", "")) if turn.observation else ""
    return Deed(turn.code or turn.reply, turn.observed, error)
