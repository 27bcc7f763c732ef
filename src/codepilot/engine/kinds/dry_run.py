"""What a dry run leaves: its plan, the commands that it ran in the sandbox, and its diff, as artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from codepilot.core.artifacts import ArtifactRef, ArtifactType, TestResult
from codepilot.core.commit import branch_name
from codepilot.core.contract import JsonObject, canonical_json
from codepilot.core.events import (
    ArtifactStored,
    BaselineRecorded,
    Event,
    EventDraft,
    EventType,
    PatchProposed,
    RunFinished,
    TurnStarted,
)
from codepilot.core.pipeline import gates_of, pipeline_of
from codepilot.core.run import Run
from codepilot.engine.runtime import Runtime
from codepilot.project import suite_from_json


def record_rehearsal(run: Run, runtime: Runtime) -> None:
    """Store the documents of an ended dry run once for each of its ends."""
    events = runtime.store.events(run.run_id)
    ended = max((event.seq for event in events if isinstance(event.data, RunFinished)), default=0)
    if any(isinstance(event.data, ArtifactStored) and event.seq > ended for event in events):
        return
    documents = [
        ("plan", ArtifactType.PLAN, canonical_json(plan_of(run)).encode()),
        ("commands", ArtifactType.LOG, _lines(commands_of(run, events, runtime))),
        ("diff", ArtifactType.PATCH, _diff(run, events, runtime)),
    ]
    stored = [(name, runtime.artifacts.put(data, kind)) for name, kind, data in documents]

    def record(current: Run) -> list[EventDraft]:
        return [_draft(current, name, ref) for name, ref in stored]

    runtime.store.control(run.run_id, record)


def _draft(run: Run, name: str, ref: ArtifactRef) -> EventDraft:
    data = ArtifactStored.model_validate({"name": name, "artifact": ref})
    return EventDraft(
        type=EventType.ARTIFACT_STORED, data=data, step_id=run.step_id, attempt=run.attempt, artifacts=(ref,)
    )


def plan_of(run: Run) -> JsonObject:
    """What the task does, in order, and what a run that is no dry run would do outside the sandbox."""
    task = run.task
    left: list[str] = []
    if run.proposal is not None and not run.proposal.refused_by:
        left.append(f"write {len(run.proposal.patch.touched_files)} file(s) to {task.repo}")
    if task.branch is not None:
        left.append(f"commit the change to the branch {branch_name(task.branch, run.run_id)}")
    return {
        "run_id": run.run_id,
        "kind": task.kind.value,
        "goal": task.goal.natural,
        "states": [state.value for state in pipeline_of(task.kind).states],
        "gates": list(gates_of(task)),
        "plan": None if run.plan is None else run.plan.model_dump(mode="json"),
        "not_done": list(left),
    }


def commands_of(run: Run, events: Sequence[Event], runtime: Runtime) -> Iterator[JsonObject]:
    """The commands and code actions of the run, in order. All of them ran in the sandbox."""
    for event in events:
        data = event.data
        if isinstance(data, BaselineRecorded) and data.report is not None:
            suite = suite_from_json(json.loads(runtime.artifacts.get(data.report))["suite"])
            if suite.cmd:
                yield {"seq": event.seq, "command": list(suite.cmd), "exit_code": suite.exit_code}
        elif isinstance(data, TurnStarted):
            yield {"seq": event.seq, "action": data.action}
        elif isinstance(data, TestResult):
            yield {"seq": event.seq, "command": list(data.cmd), "exit_code": data.exit_code}
            for gate in (gate for gate in data.gates if gate.name == "command"):
                yield {"seq": event.seq, "command": gate.evidence, "result": gate.after}


def _lines(documents: Iterator[JsonObject]) -> bytes:
    return b"".join(canonical_json(one).encode() + b"\n" for one in documents)


def _diff(run: Run, events: Sequence[Event], runtime: Runtime) -> bytes:
    proposed = [event.data for event in events if isinstance(event.data, PatchProposed)]
    return runtime.artifacts.get(proposed[-1].diff) if proposed else b""
