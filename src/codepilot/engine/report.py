"""How a run stands, as one document with the paths that it has in this home."""

from __future__ import annotations

from codepilot.core.events import Event, PatchApplied, State
from codepilot.core.failures import CodePilotError, FailureKind, Origin
from codepilot.core.run import Run
from codepilot.core.task import FollowUp
from codepilot.engine.runtime import Runtime
from codepilot.store import Home
from codepilot.telemetry import Report, figures, report


def report_run(run: Run, events: list[Event], home: Home) -> Report:
    """The `--json` document of a run, with the paths it has in this home."""
    directory, workspace = home.bundles / run.run_id, home.workspaces / run.run_id
    log, patch = home.logs / f"{run.run_id}.jsonl", directory / "patch.diff"
    stays = workspace.exists() and (worth_keeping(run) or not run.terminal)
    return report(
        run,
        patch=str(patch) if patch.exists() else None,
        bundle=str(directory) if directory.exists() else None,
        workspace=str(workspace) if stays else None,
        log=str(log) if log.exists() else None,
        applied=next((event.data for event in reversed(events) if isinstance(event.data, PatchApplied)), None),
        next_steps=[event.data for event in events if isinstance(event.data, FollowUp)],
        iterations_detail=found.iterations if (found := figures(events)) else (),
    )


def document_of(runtime: Runtime, run_id: str, name: str) -> bytes:
    """The bytes of one of the run's documents; an unknown name is refused with those that it has."""
    documents = runtime.store.load(run_id).documents
    if name not in documents:
        known = f"It has: {', '.join(sorted(documents))}." if documents else "It has none."
        raise CodePilotError(FailureKind.INVALID_SPEC, f"Run {run_id} has no document {name!r}.", next_action=known)
    return runtime.artifacts.get(documents[name])


def worth_keeping(run: Run) -> bool:
    if run.state is State.DONE or run.failure is None:
        return False
    return run.failure.kind is not FailureKind.CANCELLED and run.failure.handling.origin is not Origin.INPUT
