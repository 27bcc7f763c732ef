"""The execution plane's one protocol, in-process and over HTTP alike.

Only an executor touches a workspace path or starts code that an agent wrote. It needs no network and never
calls back into the engine. Every method may be called again with the same arguments after a crash.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar, dataclass_transform

from pydantic import AfterValidator, FailFast, Field, JsonValue, ValidationError
from pydantic._internal._model_construction import ModelMetaclass

from codepilot.core.contract import Contract
from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.git_names import check_copied_path, is_in_git_directory
from codepilot.core.policy import Host
from codepilot.core.task import LONGEST_COMMAND_SEC
from codepilot.sandbox import (
    Answer,
    CodeResult,
    CommandResult,
    FreezeMethod,
    Level,
    Limits,
    Process,
    SessionOffer,
    Terminal,
)

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$"
OBJECT_PATTERN = r"^[0-9a-f]{64}$"

_NAME = re.compile(NAME_PATTERN[1:-1])
_OBJECT = re.compile(OBJECT_PATTERN[1:-1])

Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], FailFast()]
"""Items of which only the first bad one is reported: a body of millions must not become as many errors."""
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


MOST_ERRORS = 1000
"""Validation errors of a request beyond this number are only counted."""


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class _RequestType(ModelMetaclass):
    def __call__(self, *args: Any, **fields: Any) -> Any:
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise refusal(self.__name__, error) from error


class Request(Contract, metaclass=_RequestType):
    """A request to an executor. An invalid value is refused when it is made, with the reason."""


def refusal(what: str, error: ValidationError) -> CodePilotError:
    """A validation error as the failure that every executor raises for it."""
    if error.error_count() > MOST_ERRORS:
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


class WorkspaceFields(Request):
    """A private directory holding `tree` exactly. `at` is the path at which code inside sees it."""

    workspace: Name
    tree: ObjectId
    at: AbsolutePath | None = None
    mounts: Many[MountSpec] = ()
    env: Environment = {}
    kernel_python: Text | None = None
    hosts: Many[Host] = ()
    """The hosts that code inside may reach, through the executor's proxy."""

    def shared(self) -> dict[str, Any]:
        """The fields that local and remote requests have in common."""
        return {name: getattr(self, name) for name in WorkspaceFields.model_fields}


class CreateWorkspace(WorkspaceFields):
    """Make a workspace from the object store at `objects`."""

    objects: Text
    carried: Many[Annotated[MountSpec, AfterValidator(_copied)]] = ()
    """Host files copied in when the workspace is made; they are not part of its tree. Targets are relative to it."""


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


class HostAnswer(Request):
    """The answer to a host call. It gives what the action comes to next: another call, or its result."""

    workspace: Name
    action: Key
    """The idempotency key of the action."""
    number: int = Field(ge=0)
    value: JsonValue = None
    error: Failure | None = None


class RunCommand(Request):
    """A command of the platform's or, already checked against policy, of an agent's."""

    workspace: Name
    argv: Some[Text]
    timeout_sec: Seconds = 300.0
    stdin: bytes = b""
    env: Environment = {}
    cwd: Text = "."
    hosts: Many[Host] = ()
    """Hosts that this one command may reach through the proxy, in addition to the workspace's own."""
    private_network: bool = False
    """True if these hosts may have addresses of private networks: package registries that the user configured."""
    packages: Many[str] = ()
    """Further packages. With any, `argv` is Python source, with its arguments, for CodePilot's own interpreter."""
    limits: Limits | None = None
    idempotency_key: Key = ""


_MAKING_GIT = """
[ ! -e .git ] && [ ! -L .git ] || [ -f .git/codepilot-unfinished ] || exit 0
rm -rf .git && mkdir .git && : > .git/codepilot-unfinished || exit 1
git init -q . && git config user.name agent && git config user.email agent@localhost &&
git config commit.gpgsign false && mkdir -p .git/info && printf '%s\\n' node_modules .venv >> .git/info/exclude &&
git add -A && git ls-files -z -o -i --exclude-standard --directory | grep -zv '/$' | xargs -0 -r git add -f -- &&
git commit -q --allow-empty --no-verify -m base || { rm -rf .git; exit 1; }
rm .git/codepilot-unfinished
"""


def making_git(workspace: str) -> RunCommand:
    """The command behind `init_git`. A repository that it was interrupted in is made anew.

    Ignored files are in it, whole ignored directories and installed packages are not: those can be very large.
    """
    return RunCommand(workspace=workspace, argv=("/bin/sh", "-c", _MAKING_GIT))


_PART = r"([^/.\x00][^/\x00]*|\.[^/.\x00][^/\x00]*|\.\.[^/\x00]+)"


class HomeFile(Contract):
    """A file written into the private HOME before a process starts. It replaces an existing one."""

    path: Annotated[str, Field(pattern=f"^{_PART}(/{_PART})*$", max_length=4096)]
    """Relative to HOME, and below it."""
    content: bytes
    mode: int = Field(default=0o600, ge=0, le=0o777)
    secret: bool = False
    """Remove it when the process ends."""


class StartProcess(Request):
    """A process to speak to. It has no wall clock unless its limits set one."""

    workspace: Name
    argv: Some[Text]
    env: Environment = {}
    cwd: Text = "."
    """Relative to the workspace."""
    mounts: Many[MountSpec] = ()
    """Host paths shown to this process, read-only, beyond the workspace's."""
    hosts: Many[Host] = ()
    """Hosts that this process may reach through a proxy, in addition to the workspace's own."""
    tty: Terminal | None = None
    """A terminal of this size in place of pipes. What the process writes, to standard error too, is its `stdout`."""
    in_place: AbsolutePath | None = None
    """A directory of this machine that the process works on, at its own path, instead of the workspace's tree."""
    home: bool = False
    """HOME is the workspace's private one: outside of its tree, and there until the workspace is deleted."""
    home_files: Many[HomeFile] = ()
    """With any, HOME is the private one."""
    limits: Limits | None = None


class EndpointInfo(Contract):
    """Where processes inside find a service of the host: `url` is on their own loopback."""

    name: str
    url: str
    port: int


class Frozen(Contract):
    """Nothing of the workspace runs. `already`: it was frozen before, and the one who froze it thaws it."""

    by: FreezeMethod
    processes: int
    duration_ms: float
    already: bool = False


class SessionInfo(Contract):
    """What processes of a workspace can have, and where their private HOME is inside."""

    workspace: str
    home: str
    offer: SessionOffer
    frozen: bool = False


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
    before: str = ""
    after: str = ""
    """The names of its content on either side; equal content has equal names."""
    size: int = 0
    """The size of its content after the change, in bytes."""

    @property
    def is_link(self) -> bool:
        """True if the path is a symbolic link after the change."""
        return self.new_mode == "120000"


class RunTreeInfo(Contract):
    """The run's tree while an agent works in a shadow: where it is, what was promoted last, and what it holds."""

    path: str
    promoted: str
    tree: str
    snapshot: str = ""
    late_tree: str = ""
    late_snapshot: str = ""
    """The tree before a promotion with a person's edits, if there were any that no `run_tree` had shown."""


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
        """True if code inside sees a workspace at the path that was asked for."""

    def create(self, request: CreateWorkspace) -> WorkspaceInfo: ...

    def run_code(self, request: RunCode, answer: Answer | None = None) -> CodeResult:
        """Run an action to its end. `answer` is called for each of its calls of `request.host_calls`."""

    def run_command(self, request: RunCommand) -> CommandResult: ...

    def start_process(self, request: StartProcess) -> Process: ...

    def endpoint(self, workspace: str, name: str, target: str) -> EndpointInfo:
        """Let processes that start from now on reach `target`, a Unix socket of this machine, over their loopback.

        Commands and code actions do not reach it. Asked again with the same name, the service may have moved.
        """

    def freeze(self, workspace: str) -> Frozen:
        """Stop everything that runs in a workspace. New commands wait.

        Its clocks stand still, so that no limit of time is met. `snapshot`, `diff` and `restore` work: a restore leaves
        a frozen process where it is. What is ended while it is frozen does nothing more.
        """

    def thaw(self, workspace: str) -> None:
        """Let everything go on. A workspace that is not frozen stays as it is."""

    def session(self, workspace: str) -> SessionInfo:
        """What processes of this workspace can have."""

    def snapshot(self, workspace: str) -> SnapshotInfo: ...

    def restore(self, workspace: str, snapshot: str, paths: tuple[str, ...] = ()) -> None: ...

    def export_snapshot(self, workspace: str, snapshot: str, whole: bool = False) -> Iterator[bytes]:
        """A snapshot as bytes for `import_snapshot`; unless whole it leaves out what the workspace's base holds."""

    def import_snapshot(self, workspace: str, chunks: Iterable[bytes]) -> SnapshotInfo:
        """Take in a snapshot of another workspace, so that it can be restored in this one."""

    def diff(self, workspace: str, base_tree: str) -> DiffResult: ...

    def compare(self, workspace: str, before: str, after: str, *, patch: bool = True) -> DiffResult:
        """The exact change between two trees that the workspace has had, without looking at its files."""

    def open_shadow(self, workspace: str, place: str | None = None) -> RunTreeInfo:
        """End what runs, and let what starts from now on work in a copy of the tree.

        The tree then changes only by `promote`. With `place`, a directory of this machine, it is laid out there.
        """

    def promote(self, workspace: str, snapshot: str) -> RunTreeInfo:
        """Exchange the run's tree for one that is exactly `snapshot`, in one step. What runs is not disturbed."""

    def run_tree(self, workspace: str) -> RunTreeInfo:
        """The run's tree as it is now: a person may have edited it."""

    def close_shadow(self, workspace: str) -> None:
        """End what runs and remove the copy. A workspace without one stays as it is."""

    def read_file(self, workspace: str, path: str) -> bytes: ...

    def interrupt(self, workspace: str) -> None: ...

    def delete(self, workspace: str) -> None: ...

    def interrupt_all(self) -> None:
        """Interrupt what runs in every workspace that was opened through this executor."""

    def init_git(self, workspace: str) -> CommandResult:
        """Give the agent a throwaway repository of one commit, made inside, unless there is a `.git` already."""

    def close(self) -> None:
        """End everything that runs in those workspaces; their files stay."""


class UnknownWorkspace(CodePilotError):
    def __init__(self, workspace: str) -> None:
        super().__init__(FailureKind.EXECUTOR_LOST, f"the workspace {workspace} is not open here", workspace=workspace)


class Conflict(CodePilotError):
    """The request contradicts the current state."""

    def __init__(self, message: str, next_action: str = "", **details: object) -> None:
        super().__init__(FailureKind.TOOL_INVALID_ARGS, message, next_action, **details)


class Unfinished(CodePilotError):
    """The executor ended in the middle of a request. Its effects are unknown."""

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
    """Count the calls of an action. A failing counter must not cost the action its result."""
    if count is None:
        return
    try:
        count(calls)
    except Exception as error:  # noqa: BLE001  (the counter may be a plugin's)
        _log.warning("%d calls of skills were not counted: %s", len(calls), error, exc_info=True)
