"""The tasks file of a batch: queue and result at once. Only `status`, `attempts` and `result` are ever written."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from codepilot.batch import json_text
from codepilot.core.attempt import MARKER, AttemptEnded, render, with_marker
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.telemetry import now_us, rfc3339
from codepilot.workspace import dirfd

Status = Literal[
    "pending",
    "retryable",
    "completed",
    "failed_auth",
    "failed_quota",
    "failed_permission_blocked",
    "failed_timeout",
    "failed_process",
    "failed_incomplete",
]
STATUSES: tuple[Status, ...] = Status.__args__  # type: ignore[attr-defined]
OPEN = frozenset({"pending", "retryable"})
"""The statuses of tasks that are still to be worked on."""
WRITTEN = ("status", "attempts", "result")
EDITABLE = ("agent", "enabled", "inputs", "max_retries", "prompt_template", "status", "timeout_sec")
"""What a model may change of a task. Where it works, what is answered for it and what proves it stay a person's."""
_TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_BYTES = 64 << 20
_FRESH_NS = 1_000_000_000
RUNS = "runs"
"""The directory of the logs, next to the tasks file."""
MAKE_WRITABLE = f"Make the directory of the tasks file writable. If {RUNS}/ in it is a link, remove that."


@contextmanager
def opened_runs(place: Path) -> Iterator[int]:
    """The directory of the logs in `place`, made if it is not there. It ignores itself: agents do not see it.

    It may come with a repository, so that no link is followed.
    """
    with dirfd.opened(place.resolve()) as parent, opened_folder(parent, RUNS) as runs:
        with suppress(FileExistsError), open_new(runs, ".gitignore") as file:
            file.write(b"*\n")
        yield runs


@contextmanager
def opened_folder(parent: int, name: str) -> Iterator[int]:
    """A directory in an open one, made if it is not there. Raises `OSError` if it is anything else."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    with dirfd.opened(name, parent) as folder:
        yield folder


def open_new(folder: int, name: str) -> BinaryIO:
    """A new file in an open directory. Raises `FileExistsError` if there is anything of that name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb")


class BatchTask(Contract):
    """One task of the file. Fields that it does not know are kept."""

    model_config = ConfigDict(extra="ignore")

    task_id: str
    agent: Annotated[str, Field(min_length=1)]
    """The name of a profile."""
    enabled: bool = True
    cwd: str = "."
    """Where the agent works; a relative path begins at the directory of the tasks file."""
    timeout_sec: Annotated[float, Field(gt=0, le=86_400)] = 1800.0
    max_retries: Annotated[int, Field(ge=0, le=1000)] = 0
    permission_policy: Mapping[str, bool] = {}
    """The permission prompts that are answered: `auto_press_1`, `auto_press_p`."""
    inputs: JsonObject = {}
    prompt_template: str
    verify: bool | str | tuple[str, ...] = False
    """Tests or commands that must hold after the change; `true` judges it by the project's own tests."""
    status: Status = "pending"
    attempts: Annotated[int, Field(ge=0)] = 0
    result: JsonObject | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: object) -> object:
        """A `null` is a field that is left out."""
        return {name: one for name, one in fields.items() if one is not None} if isinstance(fields, dict) else fields

    @field_validator("task_id")
    @classmethod
    def _names_a_directory(cls, task_id: str) -> str:
        if not _TASK_ID.fullmatch(task_id):
            raise ValueError("use letters, digits, '.', '_' and '-', a letter or digit first, at most 100 of them")
        return task_id

    @field_validator("permission_policy")
    @classmethod
    def _named_keys(cls, policy: Mapping[str, bool]) -> Mapping[str, bool]:
        for name in policy:
            if not name.startswith("auto_press_"):
                raise ValueError(f"there is no permission {name!r}; name a key, for example auto_press_1")
        return policy

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if not self.prompt.replace(MARKER + self.task_id, "").strip():
            raise ValueError("prompt_template has no text besides the completion marker")
        return self

    @property
    def prompt(self) -> str:
        """The prompt with its inputs, which asks for the marker."""
        try:
            rendered = render(self.prompt_template, {**self.inputs, "task_id": self.task_id, "cwd": self.cwd})
        except KeyError as error:
            raise ValueError(
                f"prompt_template has {{{error.args[0]}}}, and inputs has no such name; write {{{{ for a brace"
            ) from error
        return with_marker(rendered, self.task_id)

    @property
    def answers(self) -> tuple[str, ...]:
        """The permission prompts that the policy lets us answer."""
        return tuple(name.removeprefix("auto_") for name, allowed in self.permission_policy.items() if allowed)

    @property
    def criteria(self) -> tuple[str, ...]:
        """The tests and commands of `verify`."""
        if isinstance(self.verify, bool):
            return ()
        return (self.verify,) if isinstance(self.verify, str) else self.verify


class TasksFile:
    """A tasks file that one runner has; `open` refuses a second one. Safe for several threads."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._guard = threading.Lock()
        self._known: tuple[tuple[int, int, int] | None, tuple[BatchTask, ...]] = (None, ())
        """The tasks as they were read last, and the version of the file that has them."""

    @classmethod
    def open(cls, path: Path) -> TasksFile:
        """Take the file for this process; the system gives it back however the process ends."""
        read_tasks(path)
        target = path.resolve()
        name, flags = f".{target.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with opened_runs(target.parent) as runs:
                lock = os.open(name, flags, 0o600, dir_fd=runs)
        except OSError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The lock {target.parent / RUNS / name} cannot be made: {error.strerror}.",
                next_action=MAKE_WRITABLE,
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"Another batch works on {path}.",
                next_action="Wait until it has ended, or end it with Ctrl+C.",
            ) from None
        try:
            for left in target.parent.glob(f".{glob.escape(target.name)}.*.new"):
                left.unlink(missing_ok=True)  # a runner was killed while it wrote
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
            os.close(handle)
            Path(name).unlink()
        except OSError as error:
            os.close(lock)
            raise unwritable(path, error) from error
        return cls(path, lock)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tasks(self) -> tuple[BatchTask, ...]:
        """The tasks as the file has them now. A file that did not change is not read again."""
        try:
            stat = self.path.stat()
        except OSError:
            return read_tasks(self.path)
        version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        known, tasks = self._known
        if version != known:
            fresh = time.time_ns() - stat.st_mtime_ns < _FRESH_NS  # it may change again within the same tick
            tasks = read_tasks(self.path)
            self._known = (None if fresh else version, tasks)
        return tasks

    def task(self, task_id: str) -> BatchTask:
        """One task as the file has it now."""
        return task_of(self.tasks(), task_id)

    def update(self, task_id: str, change: Callable[[BatchTask], Mapping[str, Any]]) -> BatchTask:
        """Change `status`, `attempts` or `result` of a task, by what the file says now."""
        return self._change(task_id, change, WRITTEN)

    def edit(self, task_id: str, patch: Mapping[str, Any]) -> BatchTask:
        """Change what a task asks for, as a person would; what may be changed is `EDITABLE`."""
        return self._change(task_id, lambda task: patch, EDITABLE)

    def _change(
        self, task_id: str, change: Callable[[BatchTask], Mapping[str, Any]], allowed: Sequence[str]
    ) -> BatchTask:
        """Replace the file in one step: whatever happens, it is the old one or the new one."""
        with self._guard:
            raw = _read(self.path)
            text = raw.removeprefix("\ufeff")
            task = task_of(parse_tasks(text, self.path), task_id)
            values = dict(change(task))
            if unknown := sorted(values.keys() - set(allowed)):
                raise ValueError(f"{unknown[0]} is not changed here; what may be is {', '.join(allowed)}")
            if values:
                text = _changed(text, task_id, values)
                task = task_of(parse_tasks(text, self.path), task_id)
                _replace(self.path, (("\ufeff" if raw.startswith("\ufeff") else "") + text).encode())
            return task


def read_tasks(path: Path) -> tuple[BatchTask, ...]:
    """The tasks of a file; a mistake is an error that names the task and the field."""
    return parse_tasks(_read(path).removeprefix("\ufeff"), path)


def parse_tasks(text: str, path: Path) -> tuple[BatchTask, ...]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"it is not JSON: {error}") from error
    listed = document.get("tasks") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise _wrong(path, 'it must be an object with a list "tasks"')
    made: dict[str, BatchTask] = {}
    for number, one in enumerate(listed, 1):
        named = one.get("task_id") if isinstance(one, dict) else None
        try:
            task = BatchTask.model_validate(one)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = first["msg"].removeprefix("Value error, ")[:300]
            raise _wrong(path, f"task {named or number}: {f'{place}: ' if place else ''}{reason}") from error
        if task.task_id in made:
            raise _wrong(path, f"two tasks are called {task.task_id}")
        made[task.task_id] = task
    return tuple(made.values())


def task_of(tasks: tuple[BatchTask, ...], task_id: str) -> BatchTask:
    """The task of a name; an unknown name is refused with those that exist."""
    for task in tasks:
        if task.task_id == task_id:
            return task
    known = ", ".join(task.task_id for task in tasks[:20])
    raise CodePilotError(
        FailureKind.INVALID_SPEC, f"There is no task {task_id!r}.", next_action=f"Use one of: {known or 'none'}."
    )


def result_of(
    ended: AttemptEnded, answers: tuple[str, ...], log_file: str, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The `result` of an attempt, as the file documents it."""
    names = dict.fromkeys((*answers, *ended.keys))
    failed = None if ended.outcome == "completed" else ended.outcome
    return {
        "completed_at": rfc3339(now_us()).partition(".")[0] + "Z",
        "completion_marker_seen": ended.marker_seen,
        "exit_code": ended.exit_code,
        "failure_type": failed,
        "log_file": log_file,
        "auto_inputs": [{"key": name.removeprefix("press_"), "count": ended.keys.get(name, 0)} for name in names],
        **({"message": ended.message} if ended.message else {}),
        **(more or {}),
    }


def _changed(text: str, task_id: str, values: Mapping[str, Any]) -> str:
    tasks = json_text.members(text, json_text.first(text))["tasks"]
    for item in json_text.items(text, tasks.start):
        span = json_text.members(text, item.start)["task_id"]
        if json.loads(text[span.start : span.end]) == task_id:
            return json_text.with_members(text, item.start, values)
    raise KeyError(task_id)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise _wrong(path, f"it is larger than {MAX_BYTES >> 20} MiB")
        return raw.decode()
    except FileNotFoundError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There is no file {path}.",
            next_action=f"`codepilot spec batch > {path}` writes an example.",
        ) from error
    except OSError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{path} cannot be read: {error.strerror}.",
            next_action="Name a tasks file that you may read.",
        ) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, "it is not UTF-8") from error


def _replace(path: Path, content: bytes) -> None:
    """Replace the file durably: write a new one next to it and rename that."""
    try:
        _write_and_rename(path.resolve(), content)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> CodePilotError:
    """The failure of a write to the tasks file or a file next to it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return CodePilotError(
        FailureKind.DISK_FULL if full else FailureKind.INVALID_SPEC,
        f"{path} cannot be written: {error.strerror}.",
        next_action="Free some disk space." if full else MAKE_WRITABLE,
    )


def _write_and_rename(target: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            with suppress(OSError):
                os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _wrong(path: Path, what: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"{path} is no tasks file: {what}.",
        next_action="Correct it; `codepilot spec batch` prints an example.",
    )


EXAMPLE = """{
  "run_id": "2026-02-24-batch-001",
  "tasks": [
    {
      "task_id": "pandas-merge-001",
      "agent": "codex",
      "enabled": true,
      "cwd": "property_based_test_agent",
      "timeout_sec": 1800,
      "max_retries": 1,
      "permission_policy": {
        "auto_press_1": true,
        "auto_press_p": true
      },
      "inputs": {
        "procedure_path": "test_quality_metric/CODING_AGENT_PROCEDURE.md",
        "doc_url": "https://pandas.pydata.org/pandas-docs/version/3.0.0/reference/api/pandas.DataFrame.merge.html"
      },
      "prompt_template": "Follow '{procedure_path}' for {doc_url}. At the end print exactly: TASK_COMPLETE:{task_id}",
      "verify": false,
      "status": "pending",
      "attempts": 0,
      "result": null
    }
  ]
}
"""
