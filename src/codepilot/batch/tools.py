"""The tools with which a model works through a batch: three, and nothing else. Code classifies, never the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from codepilot.batch.runner import Batch
from codepilot.batch.tasks_file import EDITABLE, BatchTask, TasksFile
from codepilot.core.contract import JsonObject
from codepilot.core.events import Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models import Message, Model, Tool, ToolCall

_LISTED = 50
_REPLY_TOKENS = 4096
_TURNS, _TURNS_A_TASK = 20, 5
"""A driver has so many turns, and so many more for each task."""
_SYSTEM = """You work through a batch of tasks. Each task is done by a coding agent, which you start with run_agent.
Code decides how an attempt ended: its status is final. Run every task that is pending or retryable. Where a task
failed and a better prompt could help, change it with update_task, set its status to "pending" and run it again.
When nothing is left to do, say in one sentence how it went."""


def _schema(**properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": {"task_id": {"type": "string"}, **properties},
        "required": ["task_id", *properties],
        "additionalProperties": False,
    }


TOOLS = (
    Tool(
        name="run_agent",
        description="Make one attempt of a task that is pending or retryable, wait for its end, and return the task.",
        parameters=_schema(),
    ),
    Tool(
        name="get_task",
        description="Return a task: what it asks for, its status, its attempts, and the result of the last one.",
        parameters=_schema(),
    ),
    Tool(
        name="update_task",
        description=f"Change fields of a task: {', '.join(EDITABLE)}. A status can only be set to pending.",
        parameters=_schema(patch={"type": "object", "description": "The fields with their new values."}),
    ),
)


@dataclass(frozen=True)
class Answer:
    """What a call of a tool returns to the model."""

    text: str
    ok: bool = True


class BatchTools:
    """Safe for several threads: `jobs` attempts run at a time, further ones wait."""

    def __init__(self, batch: Batch, file: TasksFile, jobs: int) -> None:
        self._batch = batch
        self._file = file
        self._free = threading.Semaphore(jobs)

    def listed(self) -> str:
        """The tasks with their status, for a model that does not know them yet."""
        tasks = self._batch.chosen()
        lines = [f"{task.task_id}: {task.status}" for task in tasks[:_LISTED]]
        if len(tasks) > _LISTED:
            lines.append(f"and {len(tasks) - _LISTED} more: {' '.join(task.task_id for task in tasks[_LISTED:])}")
        return "\n".join(lines) or "There are no tasks."

    def call(self, name: str, arguments: Mapping[str, object]) -> Answer:
        """Call a tool. The model gets a message about what is wrong with a call."""
        try:
            return Answer(json.dumps(self._called(name, dict(arguments)), ensure_ascii=False))
        except CodePilotError as error:
            return Answer(f"{error.failure.message} {error.failure.advice}".strip(), ok=False)
        except ValueError as error:
            return Answer(str(error), ok=False)

    def _called(self, name: str, arguments: dict[str, object]) -> JsonObject:
        task_id, patch = arguments.pop("task_id", None), arguments.pop("patch", None)
        if not isinstance(task_id, str) or arguments:
            raise ValueError(f"{name} takes task_id" + (" and patch." if name == "update_task" else " alone."))
        task = self._batch.chosen_task(task_id)
        match name:
            case "run_agent":
                return self._shown(self._run(task))
            case "get_task":
                return self._shown(task)
            case "update_task" if isinstance(patch, Mapping):
                return self._shown(self._update(task, patch))
            case "update_task":
                raise ValueError("update_task takes a patch: an object of fields with their new values.")
        raise ValueError(f"There is no tool {name!r}; there are {', '.join(tool.name for tool in TOOLS)}.")

    def _run(self, task: BatchTask) -> BatchTask:
        if self._batch.works_on(task.task_id):
            raise ValueError(
                f"{task.task_id} is not run: an attempt of it is running; get_task says when it has ended."
            )
        with self._free:
            if self._batch.stopped:
                raise ValueError("The batch is ending: no further attempt begins.")
            return self._batch.attempt(task.task_id)

    def _update(self, task: BatchTask, patch: Mapping[str, object]) -> BatchTask:
        if patch.get("status", "pending") != "pending":
            raise ValueError("A status can only be set to pending: code decides how an attempt ended.")
        if self._batch.works_on(task.task_id):
            raise ValueError(f"An attempt of {task.task_id} is running; change it when that has ended.")
        return self._file.edit(task.task_id, patch)

    def _shown(self, task: BatchTask) -> JsonObject:
        shown: JsonObject = task.model_dump(mode="json")
        return {**shown, "running": self._batch.works_on(task.task_id)}


# A model that drives ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Driven:
    """How a model drove a batch."""

    turns: int
    usage: Usage
    message: str
    """Its last words, or why it was ended."""


def drive(model: Model, batch: Batch, tools: BatchTools, jobs: int) -> Driven:
    """Let a model call the tools until it calls none, its turns are used up, or the batch is stopped."""
    messages = [Message(role="system", content=_SYSTEM), Message(role="user", content=tools.listed())]
    turns, usage = _TURNS + _TURNS_A_TASK * len(batch.chosen()), Usage()
    with ThreadPoolExecutor(jobs, thread_name_prefix="driver") as pool:
        for turn in range(1, turns + 1):
            if batch.stopped:
                return Driven(turn - 1, usage, "It was stopped.")
            try:
                reply = model.reply(
                    messages,
                    temperature=0.0,
                    max_tokens=_REPLY_TOKENS,
                    tools=TOOLS,
                    stopped=lambda: batch.stopped,
                )
            except CodePilotError as error:
                if error.kind is FailureKind.CANCELLED and batch.stopped:
                    return Driven(turn - 1, usage, "It was stopped.")
                raise CodePilotError(
                    error.kind,
                    error.failure.message,
                    next_action="Mend that, and run the same command again: what is completed stays so.",
                ) from error
            usage = _sum(usage, reply.usage)
            if reply.fenced:
                raise CodePilotError(
                    FailureKind.INVALID_SPEC,
                    f"{model.name} cannot call tools.",
                    next_action="Choose another model with --driver, or leave --driver out.",
                )
            if not reply.tool_calls:
                return Driven(turn, usage, reply.text.strip())
            messages.append(Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls))
            messages.extend(pool.map(lambda call: _answered(tools, call), reply.tool_calls))
    return Driven(turns, usage, f"It was ended after {turns} turns.")


def _answered(tools: BatchTools, call: ToolCall) -> Message:
    answer = tools.call(call.name, call.arguments)
    return Message(role="tool", content=answer.text if answer.ok else f"Error: {answer.text}", tool_call_id=call.id)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in Usage.model_fields})
