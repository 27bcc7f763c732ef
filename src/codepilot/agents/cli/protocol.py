"""Agents that are programs: their events, the messages they take, and how one is started.

An adapter speaks one program's dialect and holds no policy: `CliAgent` decides, records and asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from codepilot.core.attempt import Profile
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Usage
from codepilot.core.failures import Failure
from codepilot.executor import StartProcess
from codepilot.models.gateway import Dialect, ModelEndpoint
from codepilot.sandbox import Limits, Process

if TYPE_CHECKING:
    from codepilot.core.permit import Kind

Feature = Literal["interactive_mode", "working_directory", "pause_resume", "messages", "acknowledgement"]
"""What an agent can do in interactive mode."""
Severity = Literal["info", "warning", "error", "critical"]


# Events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SessionOpened:
    """The program named the session by which it can be resumed."""

    session_id: str
    model: str = ""


@dataclass(frozen=True)
class Text:
    """The program's words. A piece that is not `final` may be repeated in a whole one."""

    text: str
    final: bool = True


@dataclass(frozen=True)
class ToolCall:
    """The program uses one of its tools; `subject` is the command, path or address."""

    tool: str
    subject: str
    id: str


@dataclass(frozen=True)
class ToolResult:
    """How a tool ended."""

    id: str
    ok: bool
    text: str = ""
    denied: bool = False
    """True if it was not run: permission was refused."""


@dataclass(frozen=True)
class Permission:
    """The program waits for `answer`: may it do this?"""

    id: str
    operation: Kind
    subject: str
    details: JsonObject = field(default_factory=dict)
    tool: str = ""


@dataclass(frozen=True)
class PlanShown:
    """The program's own list of what it will do."""

    entries: tuple[str, ...]


@dataclass(frozen=True)
class UsageSeen:
    """The program's own figures of what it used since the last ones. Where there is a gateway, its figures count."""

    usage: Usage


@dataclass(frozen=True)
class TurnEnded:
    """The program has done what it was last asked and waits for more: a safe point."""


@dataclass(frozen=True)
class Acknowledged:
    """The program answered a message that wanted an answer."""

    response: str = ""


@dataclass(frozen=True)
class Finished:
    """The terminal event of a session that ended well; nothing that comes later counts."""

    text: str = ""


@dataclass(frozen=True)
class Failed:
    """The terminal event of a session that ended badly."""

    failure: Failure


AgentEvent: TypeAlias = (
    SessionOpened
    | Text
    | ToolCall
    | ToolResult
    | Permission
    | PlanShown
    | UsageSeen
    | TurnEnded
    | Acknowledged
    | Finished
    | Failed
)


# Messages --------------------------------------------------------------------------------------------


class AgentMessage(Contract):
    """What the platform sends to a running agent."""

    type: Literal["checkpoint_violation", "info", "warning", "error", "user", "pause_request", "resume"]
    severity: Severity = "info"
    content: str
    data: JsonObject = {}
    requires_acknowledgment: bool = False


@dataclass(frozen=True)
class Delivery:
    """What became of a message."""

    delivered: bool
    acknowledged: bool = False
    response: str = ""


# Running ---------------------------------------------------------------------------------------------


class RunningAgent(Protocol):
    """One running program. `events` is read by one thread; the other methods may be called from any."""

    features: frozenset[Feature]

    @property
    def session_id(self) -> str | None:
        """The name by which the session can be resumed, once it is known."""

    def events(self, idle_sec: float = ...) -> Iterator[AgentEvent | None]:
        """What the program reports, until its terminal event or end; None whenever nothing came for `idle_sec`."""

    def answer(self, permission_id: str, allow: bool, message: str = "") -> None: ...

    def send(self, message: AgentMessage, wait_sec: float = 0.0) -> Delivery:
        """Deliver a message; wait at most so long for the acknowledgement it asks for."""

    def interrupt(self) -> None:
        """Make it stop what it is doing; the session stays."""

    def close(self) -> None:
        """End its whole tree of processes."""


class Session(Protocol):
    """The supervision of one agent in interactive mode."""

    def attached(self, agent: RunningAgent) -> None:
        """The supervisor may now freeze, message and interrupt it."""

    def tool_ended(self) -> None:
        """Look at the files soon: the agent reports that a tool of its has ended."""

    def turn_ended(self) -> tuple[AgentMessage, ...]:
        """Take a checkpoint; the messages about it for the agent."""

    def detached(self) -> None: ...

    def user_messages(self) -> tuple[str, ...]:
        """What people wrote to the run's agents so far: one that is started again may not know it."""


@dataclass(frozen=True)
class AgentStart:
    """Everything an adapter needs to start its program on a task."""

    start_process: Callable[[StartProcess], Process]
    workspace: str
    directory: str
    """The workspace's path as code inside sees it."""
    prompt: str
    resume: str | None = None
    """The session to go on with."""
    endpoint: Callable[[Dialect], ModelEndpoint] | None = None
    """Where its model is; None if the program uses the user's own login, which is then copied into its HOME."""
    model: str = ""
    """The model that the user chose for this agent, as the program names it; empty for the usual one."""
    profile: Profile | None = None
    """How its terminal is read, if it is on one and the user says how."""
    limits: Limits | None = None
    """What the program and everything it starts may use."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The user's environment, to find programs and logins. It is never passed on as it is."""


@dataclass(frozen=True)
class Probe:
    """What is there of an agent on this machine."""

    found: str
    """The program's path; empty if it is not there."""
    version: str = ""
    logged_in: bool = False
    """True if the user's own login is there, which `credentials = "share"` would copy."""
    works: tuple[str, ...] = ()
    """What CodePilot can do with this version."""
    problem: str = ""


class AgentAdapter(Protocol):
    """Drives one program, or every program that speaks one dialect."""

    name: str
    features: frozenset[Feature]

    @property
    def dialect(self) -> Dialect | None:
        """The API of its model; None if it is not known."""

    def probe(self, environ: Mapping[str, str]) -> Probe:
        """Look for the program without running anything that belongs to a repository."""

    def start(self, start: AgentStart) -> RunningAgent: ...
