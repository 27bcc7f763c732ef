"""An open step: what its handler uses, and how it records events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter

from codepilot.agents import Agent, RoleArtifact, StepContext
from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.contract import Contract, canonical_json
from codepilot.core.events import (
    BasePinned,
    Event,
    EventDraft,
    EventType,
    GuardrailBlocked,
    SandboxChosen,
    SnapshotTaken,
    State,
    TurnFinished,
    WorkspaceCreated,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MemoryKind, MemoryUse, success_rate
from codepilot.core.run import Run, evolve
from codepilot.core.task import FollowUp, TaskKind
from codepilot.engine.approvals import allowed_hosts, ask, open_again
from codepilot.engine.environment.installs import install_granted, with_environments
from codepilot.engine.execution_context import ExecutionContext, RunResources
from codepilot.engine.metrics import SNAPSHOT_SECONDS
from codepilot.engine.model_gateway import StepGateway
from codepilot.engine.monitor import OpenStep
from codepilot.engine.runtime import Runtime
from codepilot.engine.snapshot_transfer import keep_snapshot
from codepilot.executor import Executor, SnapshotInfo, Violation
from codepilot.models import Vector, Vectors
from codepilot.project import Project, SuiteRun, suite_from_json, suite_to_json
from codepilot.store import Artifacts, Claim, Home, MemoryRow, Store
from codepilot.verify import Baseline

Recorded = TypeVar("Recorded", bound=Contract)
_PROJECT = TypeAdapter(Project)


@dataclass
class Work:
    """An open step. `run` follows the events as they are recorded."""

    run: Run
    claim: Claim
    runtime: Runtime
    agent: Agent
    step: OpenStep
    resources: RunResources
    publish: Callable[[Sequence[Event]], None]
    on_text: Callable[[str], None] = lambda text: None
    on_output: Callable[[bytes], None] = lambda data: None
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while events are recorded: the agent's thread, its supervisor and its model's gateway record them."""
    _uses: dict[tuple[str, int], tuple[MemoryUse, ...]] | None = None

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def artifacts(self) -> Artifacts:
        return self.runtime.artifacts

    @property
    def home(self) -> Home:
        return self.runtime.home

    @property
    def workspace(self) -> str:
        return self.resources.workspace(self.run.run_id)

    @property
    def base(self) -> BasePinned:
        if self.run.base is None:
            raise CodePilotError(FailureKind.INTERNAL, f"Run {self.run.run_id} has no pinned base.")
        return self.run.base

    @property
    def lineage(self) -> str:
        """Under which memories are kept. A path alone would not do: other machines have other projects there."""
        return self.base.lineage or self.base.repo_id

    def record(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> Event:
        """Append an event of this step durably."""
        return self.append([self.draft(kind, data, artifacts)])[0]

    def conclude(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> Event:
        """Record a judgement, unless the step must stop: an interrupted check judges nothing."""
        self.step.raise_if_stopped()
        return self.record(kind, data, artifacts)

    def propose(self, follow_ups: Sequence[FollowUp]) -> None:
        """Record all follow-ups or none."""
        kind = EventType.FOLLOW_UP_PROPOSED
        self.append([self.draft(kind, follow_up) for follow_up in follow_ups])

    def append(self, drafts: Sequence[EventDraft]) -> list[Event]:
        refused = [self.draft(EventType.NETWORK_REFUSED, one) for one in self.resources.take_refused()]
        with self.lock:
            events = self.store.append(self.claim, [*drafts, *refused])
            if events and events[0].seq != self.run.last_seq + 1:
                self.run = self.store.load(self.run.run_id)  # a request was recorded in between
            else:
                self.run = reduce(evolve, events, self.run)
            self.step.run = self.run
            self.publish(events)
            return events

    def refresh(self) -> Run:
        """The run with what others have recorded: a person's requests."""
        with self.lock:
            self.run = self.step.run = self.store.load(self.run.run_id)
            return self.run

    def draft(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> EventDraft:
        step, attempt = self.claim.step_id, self.claim.attempt
        return EventDraft(type=kind, data=data, step_id=step, attempt=attempt, artifacts=artifacts)

    def history(self) -> list[Event]:
        """What this step has recorded so far, earlier crashed starts included."""
        events = self.store.events(self.run.run_id, step_id=self.claim.step_id)
        return [event for event in events if event.attempt == self.claim.attempt]

    def recorded(self, kind: type[Recorded]) -> Recorded | None:
        """The result that an earlier, crashed start of this step recorded; it is not computed twice."""
        return next((event.data for event in reversed(self.history()) if isinstance(event.data, kind)), None)

    def new_violations(self, found: Sequence[Violation]) -> list[GuardrailBlocked]:
        """Forbidden entries of the tree that this step has not reported yet, as one violation."""
        if not found:
            return []
        blocked = [event.data for event in self.history() if isinstance(event.data, GuardrailBlocked)]
        reported = {path for one in blocked for path in one.paths}
        new = [one for one in found if one.path not in reported]
        if not new:
            return []
        paths = tuple(one.path for one in new)
        return [GuardrailBlocked(skill="workspace", rule=new[0].rule, attempt=_listed(paths), paths=paths)]

    @property
    def executor(self) -> Executor:
        return self.resources.executor(self.run.task)

    def context(self, project: Project) -> ExecutionContext:
        """The run's execution plane, with the hosts that the task or a person allows, and the packages installed."""
        project = with_environments(project, self.run.environments)
        return self.resources.get(self.run.task, self.base, project, allowed_hosts(self))

    def snapshot(self) -> SnapshotInfo:
        """Take a snapshot of the workspace, kept on this machine only."""
        started = time.perf_counter()
        taken = self.executor.snapshot(self.workspace)
        SNAPSHOT_SECONDS.observe(time.perf_counter() - started)
        return taken

    def snapshot_events(self, taken: SnapshotInfo) -> list[EventDraft]:
        """The events that record a snapshot, which is kept for other machines if there are any."""
        data = SnapshotTaken(snapshot=taken.snapshot, tree=taken.tree)
        return [self.draft(EventType.SNAPSHOT_TAKEN, data), *keep_snapshot(self, taken.snapshot)]

    def record_sandbox(self) -> None:
        """Record which sandbox this step uses, unless the run has recorded the same."""
        chosen = SandboxChosen(level=self.executor.level, executor=self.runtime.settings.executor.url)
        if (self.run.sandbox_level, self.run.executor) != (chosen.level, chosen.executor):
            self.record(EventType.SANDBOX_CHOSEN, chosen)

    def make_workspace(self, project: Project) -> ExecutionContext:
        """Make the workspace anew from the base, and record it with its first snapshot."""
        context = self.context(project)
        context.executor.delete(self.workspace)
        path = context.create(self.workspace, self.base.tree)
        self.record(EventType.WORKSPACE_CREATED, WorkspaceCreated(workspace=self.workspace, path=path))
        self.append(self.snapshot_events(self.snapshot()))
        return context

    def settled(self) -> tuple[ExecutionContext, Baseline]:
        """The context of a run whose baseline is recorded, with its workspace in place."""
        project, baseline = recall_baseline(self.artifacts, self.run)
        install_granted(self, project)
        context = self.context(project)
        context.create(self.workspace, self.base.tree)
        return context, baseline

    def remember(self, language: str) -> Callable[[MemoryKind, str], list[MemoryRow]]:
        """Asks for what runs before this one have recorded: those on the same repository, or of the same language.

        Quirks are always those of the repository; a new program has none.
        """

        def rows(kind: MemoryKind, text: str) -> list[MemoryRow]:
            if kind == "quirk" and self.run.task.kind is TaskKind.BUILD:
                return []
            if kind != "quirk" and self.run.task.memory.across_repositories:
                return self.store.memories(kind, language=language, text=text)
            return self.store.memories(kind, repo=self.lineage, text=text)

        return rows

    def perform(
        self,
        role: State,
        context: ExecutionContext,
        baseline: Baseline,
        supervise: Callable[[StepContext], StepContext] = lambda context: context,
    ) -> RoleArtifact:
        """Let the agent work. An agent that is a program reaches its model through a gateway meanwhile.

        `supervise` adds the supervision of an interactive session to its context.
        """
        with closing(StepGateway(self)) as gateway:
            found = self.step_context(context, baseline)

            def raise_if_stopped() -> None:
                found.raise_if_stopped()
                gateway.raise_if_refused()

            metered = replace(
                found,
                model_endpoint=gateway.endpoint,
                model_active_at=gateway.active_at,
                quota_reset_at=gateway.quota_reset_at,
                raise_if_stopped=raise_if_stopped,
            )
            return self.agent.perform(role, supervise(metered))

    def success_of(self, row: MemoryRow) -> float | None:
        """The share of the runs that were shown a memory and succeeded."""
        if self._uses is None:
            self._uses = self.store.memory.uses()
        return success_rate(self._uses.get((row.run_id, row.seq), ()))

    @property
    def vectors(self) -> Callable[[Sequence[str]], Sequence[Vector]] | None:
        """Turns texts without secrets into vectors, if this machine's user configured a model for that."""
        settings = self.runtime.settings
        if settings.memory.embeddings is None:
            return None
        made = Vectors(settings.memory.embeddings, self.home.vectors, settings.environ, settings.models)
        return lambda texts: made.of([self.runtime.redact(text) for text in texts])

    def step_context(self, context: ExecutionContext, baseline: Baseline) -> StepContext:
        def record(draft: EventDraft) -> Event:
            """A finished turn and the snapshot it left are recorded together or not at all."""
            if not isinstance(draft.data, TurnFinished):
                return self.append([self.draft(draft.type, draft.data, draft.artifacts)])[0]
            taken = self.snapshot()
            blocked = self.new_violations(taken.violations)
            recorded = self.append(
                [
                    self.draft(draft.type, _with_tree(draft.data, taken.tree, blocked), draft.artifacts),
                    *(self.draft(EventType.GUARDRAIL_BLOCKED, one) for one in blocked),
                    *self.snapshot_events(taken),
                ]
            )
            return recorded[0]

        return StepContext(
            run=self.run,
            now=lambda: self.run,
            executor=context.executor,
            workspace=self.workspace,
            project=context.project,
            baseline=baseline.suite,
            history=self.history(),
            earlier=self.store.events(self.run.run_id),
            record=record,
            raise_if_stopped=self.step.raise_if_stopped,
            seconds_left=self.step.seconds_left,
            keep=lambda data: self.artifacts.put(data, ArtifactType.LOG),
            fetch=self.artifacts.get,
            copied=lambda: context.copied(self.workspace),
            stopped=lambda: self.step.urgent,
            on_text=self.on_text,
            on_output=self.on_output,
            ages=context.ages,
            directory=cache(partial(context.inside, self.workspace)),
            survey=lambda: context.survey,
            ask=partial(ask, self),
            open_again=partial(open_again, self, context.project),
            remember=self.remember(context.project.language) if self.run.task.memory.enabled else None,
            success_of=self.success_of,
            vectors=self.vectors,
        )


def _with_tree(turn: TurnFinished, tree: str, blocked: Sequence[GuardrailBlocked]) -> TurnFinished:
    """The turn with the tree it left, and what may not be in it: the agent reads that with its observation."""
    turn = turn.model_copy(update={"tree": tree})
    if not blocked:
        return turn
    found: list[JsonValue] = [f"{one.attempt} may not be there ({one.rule}): remove it" for one in blocked]
    return turn.model_copy(update={"observation": {**turn.observation, "violations": found}})


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 20} more" if len(paths) > 20 else ""
    return ", ".join(paths[:20]) + more


def keep_baseline(artifacts: Artifacts, project: Project, baseline: Baseline) -> ArtifactRef:
    """Store the project and its baseline for later steps and other processes."""
    document = {"project": _PROJECT.dump_python(project, mode="json"), "suite": suite_to_json(baseline.suite)}
    return artifacts.put(canonical_json(document).encode(), ArtifactType.REPORT)


def recall_baseline(artifacts: Artifacts, run: Run) -> tuple[Project, Baseline]:
    """The project and baseline that `keep_baseline` stored for this run."""
    if run.baseline is None or run.baseline.report is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {run.run_id} has no baseline to work against.")
    project, suite = _read_baseline(artifacts, run.baseline.report)
    baseline = Baseline(
        targets=run.baseline.targets,
        signature=run.baseline.signature,
        suite=suite,
        summary=run.baseline.before,
        suite_kind=run.baseline.suite,
        left_out=run.task.alters,
    )
    return project, baseline


def measured_suite(artifacts: Artifacts, base: BasePinned, project: Project) -> SuiteRun | None:
    """The suite of this very tree, if an earlier run of the series ran it in the same way."""
    if base.measured is None or not artifacts.has(base.measured):
        return None
    known, suite = _read_baseline(artifacts, base.measured)
    return suite if known == project and suite.status == "finished" else None


def _read_baseline(artifacts: Artifacts, ref: ArtifactRef) -> tuple[Project, SuiteRun]:
    document = json.loads(artifacts.get(ref))
    return _PROJECT.validate_python(document["project"]), suite_from_json(document["suite"])
