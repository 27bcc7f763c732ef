"""The CodeAct loop: a chat model emits Python, the sandbox runs it, the observation goes back, until a result.

Everything the loop knows is in the step's events, so a step that was interrupted goes on from its last
observation. Turns are recorded before they are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from codepilot.agents.action_runner import ActionRunner, require_tools
from codepilot.agents.context_window import condense, require_room
from codepilot.agents.prompt_context import load_memories, repository_sections
from codepilot.agents.replies import (
    PYTHON_TOOL,
    Code,
    Malformed,
    OutOfArea,
    ParsedReply,
    Result,
    accepted,
    read_reply,
    validate,
)
from codepilot.agents.roles import Names, Role, Sections, opening
from codepilot.agents.spending import require_money
from codepilot.agents.step_conversation import StepConversation
from codepilot.agents.transcript import ACCEPTED, FORMAT_ERROR, Shortened, Turn, conversation, shortened_in, turns_of
from codepilot.core.artifacts import ArtifactRef, PatchCandidate
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import (
    ContextCondensed,
    EventType,
    GuardrailBlocked,
    ModelAsked,
    ModelSwitched,
    State,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.plan import NodeStatus
from codepilot.core.run import UNCHARGED
from codepilot.core.spending import forbidden_too_often, no_turn_left
from codepilot.models import Message, Model, Reply, Tool, fingerprint, steady

FORMAT_ERRORS = 3
REFUSED_AS_TOO_LONG = 3
"""How often a request is made that the server refuses as too long."""

PYTHON = Tool(
    name=PYTHON_TOOL,
    description="Run Python in the workspace. Variables persist between calls.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)


@dataclass
class Conversation:
    """One role's conversation in a step. `node` is its node of the plan; `part` are the prompt sections about it."""

    models: tuple[Model, ...]
    """The model, and the fallback that takes over when it is stuck."""
    role: Role
    step: StepConversation
    runner: ActionRunner
    names: Names
    node: str = ""
    part: Sections = field(default_factory=dict)
    turns: list[Turn] = field(init=False)
    shortened: Shortened = field(init=False)
    openings: dict[tuple[str, int | None], tuple[Message, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.turns = list(turns_of(self.step.context.history, self.node))
        self.shortened = shortened_in(self.step.context.history)

    @property
    def model(self) -> Model:
        return self.models[-1] if self.step.switched else self.models[0]

    @property
    def room(self) -> int | None:
        """How many tokens the model takes in with its reply, if known."""
        known = self.model.context_tokens
        return self.step.rooms.get(self.model.name) if known is None else known

    def artifact(self) -> Contract:
        """Take turns until one brings the result."""
        load_memories(self.role, self.step, self.model)
        if self.turns and self.turns[-1].waits:
            self._go_on_with(self.turns[-1])
        while True:
            if self.turns and self.turns[-1].result is not None:
                return accepted(self.role, self.step, self.turns[-1].result)
            self.step.context.raise_if_stopped()
            if (hopeless := self._hopeless()) is not None and not self._switched(hopeless):
                return self._given_up(hopeless)
            self._take_turn()

    def _hopeless(self) -> Failure | None:
        """The reason why more turns of this model are useless, or None. Raises what ends the step for every model."""
        last = self.turns[-1].observed if self.turns else ""
        if (ended := forbidden_too_often(self.step.run, last)) is not None:
            raise CodePilotError.of(ended)
        since = max((place + 1 for place, turn in enumerate(self.turns) if turn.switched_after), default=0)
        recent = self.turns[since:]
        tail = recent[-FORMAT_ERRORS:]
        if len(tail) == FORMAT_ERRORS and all(turn.malformed for turn in tail):
            message = (
                f"{self.model.name} gave {FORMAT_ERRORS} replies in a row that could not be used: {tail[-1].observed}"
            )
            return Failure(kind=FailureKind.MODEL_BAD_REPLY, message=message, details={"role": self.role.name})
        if circle := going_in_circles([action_of(turn) for turn in recent]):
            message = f"The {self.role.name} is stuck: {circle}."
            return Failure(kind=FailureKind.STUCK, message=message, details={"role": self.role.name})
        self.step.require_turn()
        return None

    def _switched(self, hopeless: Failure) -> bool:
        """Switch to the fallback model, if there is one that has not been used."""
        if len(self.models) < 2 or no_turn_left(self.step.run) is not None or self.step.switched:
            return False
        bad = hopeless.kind is FailureKind.MODEL_BAD_REPLY
        reason = "its replies could not be used" if bad else hopeless.message.partition(": ")[2].rstrip(".")
        switched = ModelSwitched(model=self.step.asked, to=self.models[1].name, reason=reason)
        self.step.record(EventType.MODEL_SWITCHED, switched)
        self.turns[-1] = replace(self.turns[-1], switched_after=reason)
        return True

    def _given_up(self, hopeless: Failure) -> Contract:
        if self.role.unreadable is None:
            raise CodePilotError.of(hopeless)
        return accepted(self.role, self.step, self.role.unreadable(hopeless.message))

    def _opening(self, role: Role) -> tuple[Message, ...]:
        """The messages before the first turn; a model with less room is shown less."""
        key = (self.model.name, self.room)
        if key not in self.openings:
            tools = self.runner.registry.documentation(self.runner.capability)
            part = {**repository_sections(role, self.step), **self.part}
            self.openings[key] = opening(role, self.step.context, tools, part, self.room)
        return self.openings[key]

    def _messages(self, role: Role, refused: int = 0) -> tuple[Message, ...]:
        """The next request, condensed if it would not fit otherwise. `refused` is the size of one that did not fit."""
        first, limit, room = self._opening(role), self.step.run.task.budget.turns_per_step, self.room

        def asked(shortened: Shortened) -> tuple[Message, ...]:
            return conversation(first, self.turns, limit, shortened)

        def tokens(shortened: Shortened) -> int:
            return self.model.estimate(asked(shortened), role.max_tokens, (PYTHON,)).tokens

        made = condense(self.turns, self.shortened, tokens, room) if room is not None else None
        if made is None and refused:
            made = ContextCondensed(turns=(), before=refused, after=tokens(self.shortened))
        if made is not None:
            self.step.record(EventType.CONTEXT_CONDENSED, made)
            self.shortened = self.shortened.with_(made.turns, made.left_out)
        return asked(self.shortened)

    def _take_turn(self) -> None:
        messages, reply = self._answered()
        # A role that changes nothing means its result, whatever code it shows with it.
        read = read_reply(reply, self.runner.functions, may_quote=self.role.output is not PatchCandidate)
        if isinstance(read, Code) and read.textual:
            self.step.fence(self.model.name, "It wrote a tool call as text.")
        elif reply.fenced:
            self.step.fence(self.model.name, "Its server takes no tools.")
        parsed = validate(self.role, self.step, self.names, read, self._must_change())
        turn = self._start(reply, parsed, fingerprint(messages))
        kept: tuple[ArtifactRef, ...] = ()
        match parsed:
            case Code(code):
                finished, kept = self.runner.run(code, turn.number, self.turns[:-1])
            case Result():
                finished = _observed(turn, ACCEPTED, "The result is accepted.")
            case Malformed(message):
                finished = _observed(turn, FORMAT_ERROR, message)
            case OutOfArea(message, paths, rule):
                blocked = GuardrailBlocked(skill="workspace", rule=rule, attempt=", ".join(paths)[:500], paths=paths)
                self.step.record(EventType.GUARDRAIL_BLOCKED, blocked)
                finished = _observed(turn, "violation", message)
        recorded = self.step.finish_turn(finished, kept)
        self.turns[-1] = replace(turn, observation=recorded.observation)
        self._stop_if_broken(recorded)

    def _go_on_with(self, turn: Turn) -> None:
        """Run the action for which a person was asked, on the workspace as it was then."""
        finished, kept = self.runner.run(turn.code or "", turn.number, self.turns[:-1])
        recorded = self.step.finish_turn(finished, kept)
        self.turns[-1] = replace(turn, observation=recorded.observation, restarted_after=False)
        self._stop_if_broken(recorded)

    def _must_change(self) -> bool:
        """True if the role's result ends the last part of IMPLEMENT that may change the product."""
        if self.role.output is not PatchCandidate or self.step.run.task.parent_run_id is not None:
            return False
        plan = self.step.run.plan
        open_nodes = [node for node in plan.nodes if node.status is not NodeStatus.SUCCEEDED] if plan else []
        return all(node.id == self.node for node in open_nodes)

    def _answered(self) -> tuple[tuple[Message, ...], Reply]:
        """The next request and its reply. One that the server refuses as too long is asked again, condensed."""
        refused = 0
        for left in reversed(range(REFUSED_AS_TOO_LONG)):
            role = self.role.fitting(self.room)
            messages = self._messages(role, refused)
            try:
                return messages, self._ask(messages, role)
            except CodePilotError as error:
                if error.kind is not FailureKind.CONTEXT_EXCEEDED or not left or UNCHARGED not in error.failure.details:
                    raise
                refused = self.model.estimate(messages, role.max_tokens, (PYTHON,)).tokens
        raise AssertionError

    def _ask(self, messages: tuple[Message, ...], role: Role) -> Reply:
        """The model's reply, if it can be paid for. The call is charged its estimate before it is made."""
        model, context, room = self.model, self.step.context, self.room
        estimate = model.estimate(messages, role.max_tokens, (PYTHON,))
        if room is not None:
            require_room(model.name, estimate.tokens, room)
        require_money(self.step, estimate)
        asked = ModelAsked(model=model.name, estimate=estimate, context_tokens=room)
        self.step.record(EventType.MODEL_ASKED, asked)
        reply = model.reply(
            messages,
            temperature=role.temperature,
            max_tokens=role.max_tokens,
            tools=(PYTHON.model_copy(update={"fenced": model.name in self.step.fenced}),),
            on_text=context.on_text,
            stopped=context.stopped,
        )
        if reply.degraded is not None:
            self.step.record(EventType.DEPENDENCY_DEGRADED, reply.degraded)
        if reply.stop_reason == "refusal":
            raise CodePilotError(FailureKind.MODEL_REFUSED, f"{model.name} refused: {reply.text[:500]}")
        return reply

    def _start(self, reply: Reply, parsed: ParsedReply, request: tuple[str, ...]) -> Turn:
        """Record what is about to be done, with all that a replay needs."""
        number = self.step.turns + 1
        action: JsonObject = {"reply": reply.text, "request": list(request), "role": self.role.name}
        if self.node:
            action["node"] = self.node
        if reply.tool_calls:
            action["tool_calls"] = [call.model_dump(mode="json") for call in reply.tool_calls]
        if reply.stop_reason != "end":
            action["stop_reason"] = reply.stop_reason
        code = parsed.code if isinstance(parsed, Code) else None
        result = parsed.value if isinstance(parsed, Result) else None
        action["code"] = code
        if result is not None:
            action["result"] = result
        self.step.start_turn(TurnStarted(turn=number, action=action, usage=reply.usage))
        turn = Turn(number, reply.text, reply.tool_calls, code, result, node=self.node)
        self.turns.append(turn)
        return turn

    def _stop_if_broken(self, finished: TurnFinished) -> None:
        """Raise if the same call failed too often, or if a tool of the map is missing."""
        self.step.require_progress(finished)
        if self.role.state is not State.MAP_REPO:
            require_tools(self.step.run.repo_map, finished)


def _observed(turn: Turn, status: str, message: str) -> TurnFinished:
    return TurnFinished(turn=turn.number, observation={"status": status, "message": message})


def action_of(turn: Turn) -> Action:
    """What the check for circles compares."""
    error = str(turn.observation.get("error", "")) if turn.observation else ""
    return Action(turn.code or turn.reply, steady(turn.observed), steady(error))


SAME_PAIRS = 4
SAME_ERRORS = 3
ALTERNATIONS = 6


@dataclass(frozen=True)
class Action:
    """One action, what it gave, and the error in that, if any."""

    action: str
    observation: str
    error: str = ""


def going_in_circles(actions: Sequence[Action]) -> str:
    """The loop that the last actions are in; empty if there is none."""
    if _all_same(actions[-SAME_PAIRS:], SAME_PAIRS):
        return f"the same action gave the same observation {SAME_PAIRS} times in a row"
    last = actions[-SAME_ERRORS:]
    if _all_same([action.error for action in last], SAME_ERRORS) and last[0].error:
        return f"the same error came {SAME_ERRORS} times in a row: {last[0].error[:200]}"
    recent = actions[-ALTERNATIONS:]
    evens, odds = recent[0::2], recent[1::2]
    if _all_same(evens, ALTERNATIONS // 2) and _all_same(odds, ALTERNATIONS // 2) and evens[0] != odds[0]:
        return f"two actions alternated {ALTERNATIONS} times with the same observations"
    return ""


def _all_same(items: Sequence[object], count: int) -> bool:
    return len(items) == count and all(item == items[0] for item in items)
