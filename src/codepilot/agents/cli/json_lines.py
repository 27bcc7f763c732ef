"""Our own dialect, for programs that people write: one JSON object a line, both ways (docs/agent-protocol.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from codepilot.agents.cli.failures import failure, kind_of
from codepilot.agents.cli.line_agent import Answered, LineAgent, Outgoing, Read
from codepilot.agents.cli.parsing import bounded
from codepilot.agents.cli.programs import find_command, found, model_environment
from codepilot.agents.cli.protocol import (
    AgentMessage,
    AgentStart,
    Failed,
    Feature,
    Finished,
    Permission,
    PlanShown,
    Probe,
    RunningAgent,
    SessionOpened,
    Text,
    ToolCall,
    ToolResult,
    TurnEnded,
    UsageSeen,
)
from codepilot.core.contract import JsonObject
from codepilot.core.events import Usage
from codepilot.core.failures import FailureKind
from codepilot.models.gateway import Dialect

FEATURES: frozenset[Feature] = frozenset(
    ("interactive_mode", "working_directory", "pause_resume", "messages", "acknowledgement")
)
_NOT_WORK = ("pause_request", "resume")
"""Messages that do not ask for another turn."""


class _Line(BaseModel):
    """A line of the program's. Fields that we do not know are left for later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore")


Name = Annotated[str, Field(max_length=1000)]


class SessionLine(_Line):
    type: Literal["session"]
    id: Name
    model: str = ""


class TextLine(_Line):
    type: Literal["text"]
    text: str
    final: bool = True


class ToolCallLine(_Line):
    type: Literal["tool_call"]
    id: Name
    tool: Name
    subject: str = ""


class ToolResultLine(_Line):
    type: Literal["tool_result"]
    id: Name
    ok: bool = True
    text: str = ""
    denied: bool = False


class PermissionLine(_Line):
    type: Literal["permission_request"]
    id: str
    operation: Literal["command", "path", "host", "install", "tool"]
    subject: str
    tool: str = ""
    details: dict[str, JsonValue] = {}


class PlanLine(_Line):
    type: Literal["plan"]
    entries: tuple[str, ...]


class UsageLine(_Line):
    type: Literal["usage"]
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    cost_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class TurnEndedLine(_Line):
    type: Literal["turn_ended"]


class PauseAckLine(_Line):
    type: Literal["pause_ack"]
    checkpoint_id: str
    status: str = "paused"


class ViolationAckLine(_Line):
    type: Literal["violation_ack"]
    checkpoint_id: str
    understood: bool = True
    corrective_action: str = ""


class AckLine(_Line):
    type: Literal["ack"]
    id: str
    response: str = ""


class FinishedLine(_Line):
    type: Literal["finished"]
    text: str = ""


class FailedLine(_Line):
    type: Literal["failed"]
    message: str
    kind: Literal["auth", "quota", "overload", "permission", "timeout", "unreachable", "crash", ""] = ""
    reset_at: float | None = Field(default=None, allow_inf_nan=False)
    """Seconds since 1970."""


ProgramLine = Annotated[
    SessionLine
    | TextLine
    | ToolCallLine
    | ToolResultLine
    | PermissionLine
    | PlanLine
    | UsageLine
    | TurnEndedLine
    | PauseAckLine
    | ViolationAckLine
    | AckLine
    | FinishedLine
    | FailedLine,
    Field(discriminator="type"),
]
_LINES: TypeAdapter[ProgramLine] = TypeAdapter(ProgramLine)
_KINDS: Mapping[str, FailureKind] = {
    "auth": FailureKind.MODEL_AUTH,
    "quota": FailureKind.MODEL_QUOTA,
    "overload": FailureKind.MODEL_OVERLOADED,
    "permission": FailureKind.TOOL_PERMISSION_DENIED,
    "timeout": FailureKind.MODEL_TIMEOUT,
    "unreachable": FailureKind.MODEL_UNREACHABLE,
    "crash": FailureKind.AGENT_CRASHED,
}


class JsonLinesConversation:
    """The dialect's `Conversation`."""

    def __init__(self, name: str, start: JsonObject) -> None:
        self.session_id: str | None = None
        self.busy = True
        self._name = name
        self._start = start
        self._sent = 0
        self._asked: dict[tuple[str, str], str] = {}
        """The newest message of a kind about a checkpoint, by its acknowledgement's type."""

    def open(self) -> Sequence[JsonObject]:
        return [self._start]

    def read(self, line: JsonObject) -> Iterable[Read]:
        try:
            parsed = _LINES.validate_python(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            words = f"it sent a line that is not valid: {where or line.get('type')}: {first['msg']}"
            return [Failed(failure(self._name, words, FailureKind.AGENT_CRASHED))]
        return self._events_of(parsed)

    def _events_of(self, line: ProgramLine) -> Iterable[Read]:
        match line:
            case SessionLine():
                self.session_id = line.id
                return [SessionOpened(line.id, line.model)]
            case TextLine():
                return [Text(bounded(line.text), line.final)]
            case ToolCallLine():
                return [ToolCall(line.tool, line.subject, line.id)]
            case ToolResultLine():
                return [ToolResult(line.id, line.ok and not line.denied, line.text, line.denied)]
            case PermissionLine():
                return [Permission(line.id, line.operation, line.subject, line.details, line.tool)]
            case PlanLine():
                return [PlanShown(line.entries)]
            case UsageLine():
                return [UsageSeen(_usage(line))]
            case TurnEndedLine():
                self.busy = False
                return [TurnEnded()]
            case PauseAckLine():
                return [Answered(self._asked.get((line.type, line.checkpoint_id), ""), line.status)]
            case ViolationAckLine():
                response = line.corrective_action or ("understood" if line.understood else "not understood")
                return [Answered(self._asked.get((line.type, line.checkpoint_id), ""), response)]
            case AckLine():
                return [Answered(line.id, line.response)]
            case FinishedLine():
                return [Finished(line.text)]
            case FailedLine():
                kind = _KINDS.get(line.kind)
                return [Failed(failure(self._name, line.message, kind, reset_at=line.reset_at))]

    def answer(self, permission_id: str, allow: bool, message: str) -> Sequence[JsonObject]:
        return [{"type": "permission_answer", "id": permission_id, "allow": allow, "message": message}]

    def encode(self, message: AgentMessage) -> Outgoing:
        self._sent += 1
        key = f"m{self._sent}"
        checkpoint = message.data.get("checkpoint_id")
        if isinstance(checkpoint, str):
            acknowledged_by = {"pause_request": "pause_ack", "checkpoint_violation": "violation_ack"}
            self._asked[acknowledged_by.get(message.type, "ack"), checkpoint] = key
        if message.type not in _NOT_WORK:
            self.busy = True
        header: JsonObject = {
            "type": message.type,
            "id": key,
            "severity": message.severity,
            "content": message.content,
            "requires_acknowledgment": message.requires_acknowledgment,
        }
        return Outgoing(({**message.data, **header},), key)

    def interrupt(self) -> Sequence[JsonObject]:
        return [{"type": "interrupt"}]

    def explain(self, words: str) -> FailureKind | None:
        return kind_of(words)


def start_line(start: AgentStart) -> JsonObject:
    """The first line that the program reads."""
    return {
        "type": "start",
        "prompt": start.prompt,
        "workspace": start.directory,
        "session": start.resume,
        "model": start.model,
    }


class JsonLinesAdapter:
    """`stdio:COMMAND`: a program that speaks our JSON lines."""

    dialect: Dialect | None = None
    features = FEATURES

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name = name
        self._argv = tuple(argv)

    def probe(self, environ: Mapping[str, str]) -> Probe:
        return find_command(self._argv, environ).probe(FEATURES)

    def start(self, start: AgentStart) -> RunningAgent:
        program = found(find_command(self._argv, start.environ), self.name)
        process = start.start_process(program.process(start, (), model_environment(start)))
        return LineAgent(self.name, process, JsonLinesConversation(self.name, start_line(start)), FEATURES)


def _usage(line: UsageLine) -> Usage:
    return Usage(
        turns=1,
        tokens=line.input_tokens + line.output_tokens,
        cost_usd=line.cost_usd,
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        cached_tokens=line.cached_tokens,
    )
