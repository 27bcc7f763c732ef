"""A run as the spans of a trace: the run, its steps, and in them the calls of models and the turns with their tools."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from codepilot.core.events import (
    Event,
    EventType,
    ModelAsked,
    RunFinished,
    State,
    StepFailed,
    StepQueued,
    StepStarted,
    TurnFinished,
    TurnStarted,
    Usage,
)
from codepilot.core.run import Run
from codepilot.telemetry import span_names as names

Value = str | int | float


@dataclass(frozen=True)
class Moment:
    """Something that happened in a span."""

    name: str
    at: int
    attributes: Mapping[str, Value]


@dataclass(frozen=True)
class Span:
    """A span with times in microseconds. Its ids are made of those of the run and its events."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start: int
    end: int
    attributes: Mapping[str, Value]
    error: str = ""
    moments: tuple[Moment, ...] = ()


@dataclass
class _Open:
    """A step while its events are read, with the call and the turn that are open in it."""

    span: Span
    asked: tuple[Event, ModelAsked] | None = None
    turn: Event | None = None
    children: list[Span] = field(default_factory=list)


_ENDS = {
    EventType.STEP_SUCCEEDED: "succeeded",
    EventType.STEP_FAILED: "failed",
    EventType.STEP_SKIPPED: "skipped",
    EventType.RUN_PAUSED: "paused",
    EventType.RUN_BLOCKED: "blocked",
    EventType.RUN_FINISHED: "cancelled",
}


def trace_id(run_id: str) -> int:
    return _id(run_id, size=16)


def spans(run: Run, events: Sequence[Event]) -> list[Span]:
    """The spans of a run: itself first, then its steps in their order, each with what it contains."""
    trace = trace_id(run.task.parent_run_id or run.run_id)
    root = _root(run, events, trace)
    states: dict[str | None, State] = {}
    found, step = [root], None
    for event in events:
        if isinstance(event.data, StepQueued):
            states[event.step_id] = event.data.state
        elif isinstance(event.data, StepStarted):
            found += _closed(step, event.at, "lost")  # one without an end follows a crash
            step = _Open(_step(root, event, states.get(event.step_id, State.INIT), event.data))
        elif step is not None and event.type in _ENDS:
            error = event.data.failure.kind.value if isinstance(event.data, StepFailed) else ""
            found += _closed(step, event.at, _ENDS[event.type], error)
            step = None
        elif step is not None:
            _read(step, event)
    return found + _closed(step, events[-1].at, "lost")


def _root(run: Run, events: Sequence[Event], trace: int) -> Span:
    ended = next((one for one in reversed(events) if isinstance(one.data, RunFinished)), events[-1])
    attributes: dict[str, Value] = {
        names.OPERATION: "invoke_agent",
        names.AGENT: run.task.agent,
        names.RUN_ID: run.run_id,
        names.TASK_ID: run.task.task_id,
        names.KIND: run.task.kind.value,
        names.VERDICT: run.verdict or "none",
        names.ITERATIONS: run.spent.iterations,
        names.TOKENS: run.spent.tokens,
    }
    if run.spent.known_cost_usd is not None:
        attributes[names.COST] = run.spent.known_cost_usd
    if run.task.model:
        attributes[names.MODEL] = run.task.model
    failure = run.failure.kind.value if run.failure else ""
    parent = None if run.task.parent_run_id is None else _id(run.task.parent_run_id)
    name = f"{names.RUN} {run.task.kind.value}"
    return Span(name, trace, _id(run.run_id), parent, events[0].at, ended.at, attributes, failure)


def _step(root: Span, event: Event, state: State, started: StepStarted) -> Span:
    attributes: dict[str, Value] = {
        names.RUN_ID: event.run_id,
        names.STEP_ID: event.step_id or "",
        names.ATTEMPT: event.attempt,
        names.WORKER: started.worker,
    }
    name = f"{names.STEP} {state.value}"
    return Span(name, root.trace_id, _id(event.event_id), root.span_id, event.at, event.at, attributes)


def _closed(step: _Open | None, at: int, status: str, error: str = "") -> list[Span]:
    if step is None:
        return []
    attributes = {**step.span.attributes, names.STATUS: status}
    return [replace(step.span, end=at, attributes=attributes, error=error), *step.children]


def _read(step: _Open, event: Event) -> None:
    usage = getattr(event.data, "usage", None)
    if step.asked is not None and isinstance(usage, Usage):
        step.children.append(_chat(step, *step.asked, event, usage))
        step.asked = None
    match event.data:
        case ModelAsked() as asked:
            step.asked = (event, asked)
        case TurnStarted():
            step.turn = event
        case TurnFinished() as turn if step.turn is not None:
            step.children.append(_turn(step, step.turn, event, turn))
            step.turn = None


def _chat(step: _Open, begun: Event, asked: ModelAsked, ended: Event, usage: Usage) -> Span:
    attributes: dict[str, Value] = {
        names.OPERATION: "chat",
        names.MODEL: asked.model,
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
    }
    return _child(step, f"{names.CHAT} {asked.model}", begun, ended, attributes)


def _turn(step: _Open, begun: Event, ended: Event, turn: TurnFinished) -> Span:
    calls = tuple(
        Moment(
            names.TOOL,
            ended.at,
            {names.TOOL_NAME: one.skill, names.CALL_STATUS: one.status, names.CALL_MS: one.duration_ms},
        )
        for one in turn.calls
    )
    return replace(_child(step, names.TURN, begun, ended, {names.NUMBER: turn.turn}), moments=calls)


def _child(step: _Open, name: str, begun: Event, ended: Event, attributes: Mapping[str, Value]) -> Span:
    return Span(name, step.span.trace_id, _id(begun.event_id), step.span.span_id, begun.at, ended.at, attributes)


def _id(*parts: str, size: int = 8) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:size]) or 1
