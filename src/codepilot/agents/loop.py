"""The CodeAct loop: a chat model emits Python, the sandbox runs it, the observation goes back, until a result.

Everything the loop knows is in the step's events, so a step that was interrupted goes on from its last
observation. Turns are recorded before they are carried out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from codepilot.agents.acting import Hands
from codepilot.agents.condensing import condense, require_room
from codepilot.agents.halting import require_tools
from codepilot.agents.meaning import Meant, OutOfArea, accepted, held_to
from codepilot.agents.recalling import recollect
from codepilot.agents.replies import PYTHON_TOOL, Code, Malformed, Result, read_reply
from codepilot.agents.roles import Names, Role, Sections, opening
from codepilot.agents.seat import Seat
from codepilot.agents.stuck import Deed, going_in_circles
from codepilot.agents.surroundings import surroundings
from codepilot.agents.transcript import ACCEPTED, FORMAT_ERROR, Turn, condensed_in, conversation, turns_of
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import (
    EventType,
    GuardrailBlocked,
    ModelAsked,
    ModelSwitched,
    State,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.spending import forbidden_too_often, no_turn_left, unaffordable
from codepilot.models import Message, Model, Reply, Tool, fingerprint

FORMAT_ERRORS = 3

PYTHON = Tool(
    name=PYTHON_TOOL,
    description="Run Python in the workspace. Variables persist between calls.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)


@dataclass
class Conversation:
    """One role's conversation at its seat; `node` is its part of the plan, and `part` what it is told of that."""

    models: tuple[Model, ...]
    """The one that is asked, and the one that goes on if that does not get anywhere."""
    role: Role
    seat: Seat
    hands: Hands
    names: Names
    node: str = ""
    part: Sections = field(default_factory=dict)
    turns: list[Turn] = field(init=False)
    condensed: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.turns = list(turns_of(self.seat.desk.history, self.node))
        self.condensed = condensed_in(self.seat.desk.history)

    @property
    def model(self) -> Model:
        return self.models[-1] if self.seat.switched else self.models[0]

    def artifact(self) -> Contract:
        """Take turns until one brings the result."""
        tools = self.hands.registry.documentation(self.hands.capability)
        recollect(self.role, self.seat, self.model)
        part = {**surroundings(self.role, self.seat), **self.part}
        first = opening(self.role, self.seat.desk, tools, part)
        while True:
            if self.turns and self.turns[-1].result is not None:
                return accepted(self.role, self.seat, self.turns[-1].result)
            self.seat.desk.raise_if_stopped()
            if (hopeless := self._hopeless()) is not None and not self._switched(hopeless):
                return self._given_up(hopeless)
            self._take_turn(self._messages(first))

    def _hopeless(self) -> Failure | None:
        """Why further turns of this model will not lead anywhere; what ends the step whoever goes on is raised."""
        last = self.turns[-1].observed if self.turns else ""
        if (ended := forbidden_too_often(self.seat.run, last)) is not None:
            raise CodePilotError.of(ended)
        since = max((place + 1 for place, turn in enumerate(self.turns) if turn.switched_after), default=0)
        recent = self.turns[since:]
        tail = recent[-FORMAT_ERRORS:]
        if len(tail) == FORMAT_ERRORS and all(turn.malformed for turn in tail):
            said = (
                f"{self.model.name} gave {FORMAT_ERRORS} replies in a row that could not be used: {tail[-1].observed}"
            )
            return Failure(kind=FailureKind.MODEL_BAD_REPLY, message=said, details={"role": self.role.name})
        if circle := going_in_circles([_deed(turn) for turn in recent]):
            said = f"The {self.role.name} is stuck: {circle}."
            return Failure(kind=FailureKind.STUCK, message=said, details={"role": self.role.name})
        self.seat.require_turn()
        return None

    def _switched(self, hopeless: Failure) -> bool:
        """Let the other model go on, if there is one that has not had its turn."""
        if len(self.models) < 2 or no_turn_left(self.seat.run) is not None or self.seat.switched:
            return False
        bad = hopeless.kind is FailureKind.MODEL_BAD_REPLY
        reason = "its replies could not be used" if bad else hopeless.message.partition(": ")[2].rstrip(".")
        switched = ModelSwitched(model=self.seat.asked, to=self.models[1].name, reason=reason)
        self.seat.record(EventType.MODEL_SWITCHED, switched)
        self.turns[-1] = replace(self.turns[-1], switched_after=reason)
        return True

    def _given_up(self, hopeless: Failure) -> Contract:
        if self.role.unreadable is None:
            raise CodePilotError.of(hopeless)
        return accepted(self.role, self.seat, self.role.unreadable(hopeless.message))

    def _messages(self, first: tuple[Message, ...]) -> tuple[Message, ...]:
        """The next request, condensed if it would not fit otherwise."""
        limit, room = self.seat.run.task.budget.turns_per_step, self.model.context_tokens

        def asked(condensed: Collection[int]) -> tuple[Message, ...]:
            return conversation(first, self.turns, limit, condensed)

        def tokens(condensed: Collection[int]) -> int:
            return self.model.estimate(asked(condensed), self.role.max_tokens, (PYTHON,)).tokens

        if room is not None and (made := condense(self.turns, self.condensed, tokens, room)) is not None:
            self.seat.record(EventType.CONTEXT_CONDENSED, made)
            self.condensed |= set(made.turns)
        return asked(self.condensed)

    def _take_turn(self, messages: tuple[Message, ...]) -> None:
        reply = self._ask(messages)
        meant = held_to(self.role, self.seat, self.names, read_reply(reply))
        turn = self._start(reply, meant, fingerprint(messages))
        kept: tuple[ArtifactRef, ...] = ()
        match meant:
            case Code(code):
                finished, kept = self.hands.run(code, turn.number, self.turns[:-1])
            case Result():
                finished = _observed(turn, ACCEPTED, "The result is accepted.")
            case Malformed(message):
                finished = _observed(turn, FORMAT_ERROR, message)
            case OutOfArea(message, paths, rule):
                blocked = GuardrailBlocked(skill="workspace", rule=rule, attempt=", ".join(paths)[:500], paths=paths)
                self.seat.record(EventType.GUARDRAIL_BLOCKED, blocked)
                finished = _observed(turn, "violation", message)
        recorded = self.seat.finish_turn(finished, kept)
        self.turns[-1] = replace(turn, observation=recorded.observation)
        self._stop_if_broken(recorded)

    def _ask(self, messages: tuple[Message, ...]) -> Reply:
        """The model's reply, if it can be paid for. The call is charged its estimate before it is made."""
        model, role, desk = self.model, self.role, self.seat.desk
        estimate = model.estimate(messages, role.max_tokens, (PYTHON,))
        if model.context_tokens is not None:
            require_room(model.name, estimate.tokens, model.context_tokens)
        if (spent := unaffordable(self.seat.run, estimate)) is not None:
            raise CodePilotError.of(spent)
        asked = ModelAsked(model=model.name, estimate=estimate, context_tokens=model.context_tokens)
        self.seat.record(EventType.MODEL_ASKED, asked)
        reply = model.reply(
            messages,
            temperature=role.temperature,
            max_tokens=role.max_tokens,
            tools=(PYTHON,),
            hear=desk.hear,
            stopped=desk.stopped,
        )
        if reply.degraded is not None:
            self.seat.record(EventType.DEPENDENCY_DEGRADED, reply.degraded)
        if reply.stop_reason == "refusal":
            raise CodePilotError(FailureKind.MODEL_REFUSED, f"{model.name} refused: {reply.text[:500]}")
        return reply

    def _start(self, reply: Reply, meant: Meant, request: tuple[str, ...]) -> Turn:
        """Record what is about to be done, with all that a replay needs."""
        number = self.seat.turns + 1
        action: JsonObject = {"reply": reply.text, "request": list(request), "role": self.role.name}
        if self.node:
            action["node"] = self.node
        if reply.tool_calls:
            action["tool_calls"] = [call.model_dump(mode="json") for call in reply.tool_calls]
        if reply.stop_reason != "end":
            action["stop_reason"] = reply.stop_reason
        code = meant.code if isinstance(meant, Code) else None
        result = meant.value if isinstance(meant, Result) else None
        action["code"] = code
        if result is not None:
            action["result"] = result
        self.seat.start_turn(TurnStarted(turn=number, action=action, usage=reply.usage))
        turn = Turn(number, reply.text, reply.tool_calls, code, result, node=self.node)
        self.turns.append(turn)
        return turn

    def _stop_if_broken(self, finished: TurnFinished) -> None:
        """What this turn's calls came to may be for the whole run to mend, or for nobody."""
        self.seat.require_progress(finished)
        if self.role.state is not State.MAP_REPO:
            require_tools(self.seat.run.repo_map, finished)


def _observed(turn: Turn, status: str, message: str) -> TurnFinished:
    return TurnFinished(turn=turn.number, observation={"status": status, "message": message})


def _deed(turn: Turn) -> Deed:
    error = str(turn.observation.get("error", "")) if turn.observation else ""
    return Deed(turn.code or turn.reply, turn.observed, error)
