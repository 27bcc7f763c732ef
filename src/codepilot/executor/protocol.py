"""The execution plane's one protocol, in-process and over HTTP alike.

Only an executor touches a workspace path or starts code that an agent wrote. It needs no network and never
calls back into the engine. Every method may be called again with the same arguments after a crash.
"""

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar, dataclass_transform

from pydantic import AfterValidator, FailFast, Field, JsonValue, ValidationError, WithJsonSchema
from pydantic._internal._model_construction import ModelMetaclass

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.git_names import check_copied_path, is_in_git_directory
from codepilot.core.policy import Host
from codepilot.core.task import LONGEST_COMMAND_SEC
from codepilot.sandbox import Answer, Level, Limits, Process

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$"
OBJECT_PATTERN = r"^[0-9a-f]{64}$"

_NAME = re.compile(NAME_PATTERN[1:-1])
_OBJECT = re.compile(OBJECT_PATTERN[1:-1])
_LEAST_FILES = 16
_LEAST_MEMORY, _MOST_BYTES, _MOST_OUTPUT = 1 << 20, 1 << 44, 64 << 20

Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], FailFast()]
"""Items of which the first bad one is told: a body of millions must not become as many mistakes."""
Some = Annotated[tuple[Item, ...], Field(min_length=1), FailFast()]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
"""A workspace's name: never a path."""
ObjectId = Annotated[str, Field(pattern=OBJECT_PATTERN)]
Text = Annotated[str, Field(pattern="^[^\\x00]*$")]
"""Anything the operating system takes for an argument or a path."""
AbsolutePath = Annotated[str, Field(pattern="^/[^\\x00]*$", max_length=4096)]
VariableName = Annotated[str, Field(pattern="^[^\\x00=]+$")]
Environment = Mapping[VariableName, Text]
Code = Annotated[str, Field(max_length=4 << 20)]
Key = Annotated[str, Field(max_length=200)]
"""An idempotency key; the empty one asks for none."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_COMMAND_SEC)]


def check_name(workspace: str) -> None:
    if not _NAME.fullmatch(workspace):
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{workspace!r} is not a workspace's name")


def check_object(name: str) -> None:
    if not _OBJECT.fullmatch(name):
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{name!r} is not the name of a tree or a snapshot")


def _possible(limits: Limits) -> Limits:
    sizes = (limits.file_bytes, limits.disk_bytes)
    fits = (
        limits.wall_sec > 0
        and 0 < limits.cpus <= 1024
        and _LEAST_MEMORY <= limits.memory_bytes <= _MOST_BYTES
        and 1 <= limits.processes <= 1 << 20
        and _LEAST_FILES <= limits.open_files <= 1 << 20
        and all(0 <= size <= _MOST_BYTES for size in sizes)
        and 1 <= limits.output_bytes <= _MOST_OUTPUT
    )
    if not fits or math.isnan(limits.wall_sec):
        raise ValueError("a limit is outside of what can be enforced")
    return limits


def _number(kind: str, default: float, **bounds: float) -> dict[str, Any]:
    return {"type": kind, "default": default, **bounds}


_DEFAULT = Limits()
_LIMITS_SCHEMA = {
    "title": "Limits",
    "description": "What one command may use. A breach kills the whole process tree and is named in the result.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "wall_sec": _number("number", _DEFAULT.wall_sec, exclusiveMinimum=0),
        "cpus": _number("number", _DEFAULT.cpus, exclusiveMinimum=0, maximum=1024),
        "memory_bytes": _number("integer", _DEFAULT.memory_bytes, minimum=_LEAST_MEMORY, maximum=_MOST_BYTES),
        "processes": _number("integer", _DEFAULT.processes, minimum=1, maximum=1 << 20),
        "open_files": _number("integer", _DEFAULT.open_files, minimum=_LEAST_FILES, maximum=1 << 20),
        "file_bytes": _number("integer", _DEFAULT.file_bytes, minimum=0, maximum=_MOST_BYTES),
        "disk_bytes": _number("integer", _DEFAULT.disk_bytes, minimum=0, maximum=_MOST_BYTES),
        "output_bytes": _number("integer", _DEFAULT.output_bytes, minimum=1, maximum=_MOST_OUTPUT),
    },
}
LimitsField = Annotated[Limits, AfterValidator(_possible), WithJsonSchema(_LIMITS_SCHEMA)]


TOLD = 1000
"""So many mistakes of a request are looked at one by one."""

Status = Literal["ok", "error", "timeout", "limit", "violation", "interrupted"]
CodeStatus = Literal[Status, "host_call"]


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class _RequestType(ModelMetaclass):
    def __call__(self, *args: Any, **fields: Any) -> Any:
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise refusal(self.__name__, error) from error


class Request(Contract, metaclass=_RequestType):
    """What an executor is asked. A value that no executor takes is refused as it is made, with the reason."""


def refusal(what: str, error: ValidationError) -> CodePilotError:
    """A validation error as the failure that every executor raises for it."""
    if error.error_count() > TOLD:
        message = f"the request {what} is not valid: it has {error.error_count()} mistakes"
        return CodePilotError(FailureKind.TOOL_INVALID_ARGS, message, fields=[])
    seen = error.errors(include_url=False, include_context=False, include_input=False)
    reasons = [f"{'.'.join(str(part) for part in one['loc']) or 'the body'}: {one['msg']}" for one in seen[:5]]
    fields = sorted({str(one["loc"][0]) for one in seen if one["loc"]})[:20]
    return CodePilotError(
        FailureKind.TOOL_INVALID_ARGS, f"the request {what} is not valid: {'; '.join(reasons)}"[:2000], fields=fields
    )


class MountSpec(Contract):
    """A host path shown read-only inside."""

    source: Text
    target: Text


def _copied(spec: MountSpec) -> MountSpec:
    check_copied_path(spec.target)
    if is_in_git_directory(spec.source):
        raise ValueError(f"{spec.source!r} is in a git directory, which is never copied into a workspace")
    return spec


class CreateWorkspace(Request):
    """A private directory holding `tree` exactly. `at` is the path at which code inside sees it."""

    workspace: Name
    objects: Text
    tree: ObjectId
    at: AbsolutePath | None = None
    mounts: Many[MountSpec] = ()
    carried: Many[Annotated[MountSpec, AfterValidator(_copied)]] = ()
    """Host files copied in when the workspace is made; they are no part of its tree. Targets are relative to it."""
    env: Environment = {}
    kernel_python: Text | None = None
    hosts: Many[Host] = ()
    """What code inside may reach, through the executor's proxy; none by default."""


class WorkspaceInfo(Contract):
    workspace: str
    path: str
    inside: str
    level: Level
    created: bool


class RunCode(Request):
    """A Python action for the workspace's kernel; variables persist between actions."""

    workspace: Name
    code: Code
    timeout_sec: Seconds = 300.0
    idempotency_key: Key = ""
    host_calls: Many[Name] = ()
    """Functions that the caller answers while the action waits."""


class HostCall(Contract):
    """A call that an action waits for: `number` counts the calls of one action."""

    number: int = Field(ge=0)
    function: str
    arguments: JsonObject = {}


class HostAnswer(Request):
    """The answer to a host call. It gives what the action comes to next: another call, or its result."""

    workspace: Name
    action: Key
    """The idempotency key of the action."""
    number: int = Field(ge=0)
    value: JsonValue = None
    error: Failure | None = None


class CodeError(Contract):
    type: str
    message: str
    traceback: str = ""
    line: int | None = None


class CodeResult(Contract):
    status: CodeStatus
    host_call: HostCall | None = None
    """Over HTTP, with the status `host_call`: the action waits until `answer_call` brings the answer."""
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: CodeError | None = None
    limit: str | None = None
    exit_code: int | None = None
    duration_ms: float = 0.0
    tree: str | None = None
    kernel_restarted: bool = False
    calls: tuple[SkillCall, ...] = ()


class RunCommand(Request):
    """A command of the platform's or, already checked against policy, of an agent's."""

    workspace: Name
    argv: Some[Text]
    timeout_sec: Seconds = 300.0
    stdin: bytes = b""
    env: Environment = {}
    cwd: Text = "."
    hosts: Many[Host] = ()
    """Hosts that this one command may reach through the proxy, beside the workspace's own."""
    packages: Many[str] = ()
    """Packages beside CodePilot's own. With any, `argv` is Python source with its arguments for its interpreter."""
    limits: LimitsField | None = None
    idempotency_key: Key = ""


def making_git(workspace: str) -> RunCommand:
    """The command behind `init_git`."""
    identity = "-c user.name=codepilot -c user.email=codepilot@localhost -c commit.gpgsign=false"
    commit = f"git {identity} commit -q --allow-empty --no-verify -m base"
    return RunCommand(workspace=workspace, argv=("/bin/sh", "-c", f"git init -q . && git add -A -f && {commit}"))


class CommandResult(Contract):
    status: Status
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    limit: str | None = None
    duration_ms: float = 0.0
    truncated: bool = False


class StartProcess(Request):
    workspace: Name
    argv: Some[Text]
    env: Environment = {}
    limits: LimitsField | None = None


class Violation(Contract):
    """Something in the tree that may not be there, or may not leave it."""

    rule: str
    path: str
    detail: str = ""


class SnapshotInfo(Contract):
    """An exact copy of the workspace that can be restored, and the tree it stands for."""

    snapshot: str
    tree: str
    violations: tuple[Violation, ...] = ()


class FileChange(Contract):
    path: str
    change: Literal["added", "modified", "deleted", "mode"]
    old_mode: str | None = None
    new_mode: str | None = None
    binary: bool = False


class DiffResult(Contract):
    """The exact difference between a base tree and the workspace, as git writes it."""

    patch: bytes
    base_tree: str
    tree: str
    changes: tuple[FileChange, ...]
    violations: tuple[Violation, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        """Added plus removed lines."""
        body = (line for line in self.patch.splitlines() if line[:1] in (b"+", b"-"))
        return sum(1 for line in body if not line.startswith((b"+++ ", b"--- ")))


class Executor(Protocol):
    @property
    def level(self) -> Level: ...

    @property
    def remaps(self) -> bool:
        """Whether code inside sees a workspace at the path that was asked for."""

    def create(self, request: CreateWorkspace) -> WorkspaceInfo: ...

    def run_code(self, request: RunCode, answer: Answer | None = None) -> CodeResult:
        """Run an action to its end. `answer` is called for each of its calls of `request.host_calls`."""

    def run_command(self, request: RunCommand) -> CommandResult: ...

    def start_process(self, request: StartProcess) -> Process: ...

    def snapshot(self, workspace: str) -> SnapshotInfo: ...

    def restore(self, workspace: str, snapshot: str, paths: tuple[str, ...] = ()) -> None: ...

    def export_snapshot(self, workspace: str, snapshot: str, whole: bool = False) -> Iterator[bytes]:
        """A snapshot as bytes for `import_snapshot`; unless whole it leaves out what the workspace's base holds."""

    def import_snapshot(self, workspace: str, chunks: Iterable[bytes]) -> SnapshotInfo:
        """Take in a snapshot of another workspace, so that it can be restored in this one."""

    def diff(self, workspace: str, base_tree: str) -> DiffResult: ...

    def read_file(self, workspace: str, path: str) -> bytes: ...

    def interrupt(self, workspace: str) -> None: ...

    def delete(self, workspace: str) -> None: ...

    def interrupt_all(self) -> None:
        """Interrupt what runs in every workspace that was opened through this executor."""

    def init_git(self, workspace: str) -> CommandResult:
        """Give the agent a throwaway repository of one commit, made inside."""

    def close(self) -> None:
        """End everything that runs in those workspaces; their files stay."""


class UnknownWorkspace(CodePilotError):
    def __init__(self, workspace: str) -> None:
        super().__init__(FailureKind.EXECUTOR_LOST, f"the workspace {workspace} is not open here", workspace=workspace)


class Conflict(CodePilotError):
    """What is asked contradicts what is there."""

    def __init__(self, message: str, next_action: str = "", **details: object) -> None:
        super().__init__(FailureKind.TOOL_INVALID_ARGS, message, next_action, **details)


class Unfinished(CodePilotError):
    """The executor ended in the middle of a request; nobody knows how far it came."""

    def __init__(self, key: str) -> None:
        super().__init__(
            FailureKind.EXECUTOR_LOST,
            f"the executor ended while it carried out the request {key}; how far it came is not known",
            "Look at the workspace or restore a snapshot, then ask again with another key.",
            interrupted=True,
        )


Count = Callable[[Sequence[SkillCall]], None]

_log = logging.getLogger(__name__)


def count_calls(count: Count | None, calls: Sequence[SkillCall]) -> None:
    """The action has run: that its calls cannot be counted, as a package is broken, must not cost its result."""
    if count is None:
        return
    try:
        count(calls)
    except Exception as error:  # noqa: BLE001  (it is anybody's code)
        _log.warning("%d calls of skills were not counted: %s", len(calls), error, exc_info=True)
