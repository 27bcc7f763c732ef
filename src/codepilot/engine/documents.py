"""From a task document to a task: validated field by field, and completed as any request is."""

from __future__ import annotations

from pydantic import ValidationError

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import tightened
from codepilot.core.task import Capability, ProposedChange, TaskKind, TaskSpec
from codepilot.core.task_document import read_task_document
from codepilot.engine.settings import Settings, document_mistake
from codepilot.engine.task import Request, make_task

FROM_DOCUMENT = (
    "constraints",
    "evaluation",
    "dry_run",
    "accept",
    "alters",
    "risk_profile",
    "priority",
    "memory",
    "notify",
    "origin",
    "path",
    "within",
    "execution_mode",
    "strategy",
)
"""What a task document may set in addition to a request."""


def read_task(text: str, settings: Settings, repo: str = ".") -> TaskSpec:
    """A task document as a task, completed as any request is. Errors name the field."""
    document: JsonObject = read_task_document(text, repo)
    if "taskId" not in document:
        document.setdefault("task_id", "t-0")
    kind = document.get("kind", document.get("type"))
    if kind == TaskKind.PROVE:
        document.setdefault("proposed", {})
    try:
        draft = TaskSpec.model_validate(document)
    except ValidationError as error:
        shown = kind if isinstance(kind, str) and kind in list(TaskKind) else TaskKind.BUGFIX
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The task document cannot be used: {document_mistake(error, TaskSpec.model_fields)}",
            next_action=f"`codepilot spec {shown}` prints an example that works.",
        ) from error
    if draft.attempt is not None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A task of kind prompt cannot be submitted by itself.",
            next_action="Write a tasks file and run `codepilot batch`; `codepilot spec batch` prints an example.",
        )
    if draft.worktree is not None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A task document cannot name a worktree.",
            next_action="Pass --worktree where the run is started.",
        )
    if draft.approved_hosts or draft.approved_test_hosts or draft.sandbox_level == "none":
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A task document cannot approve hosts or switch the sandbox off.",
            next_action="Use the options of `codepilot fix` for that.",
        )
    given, change = draft.model_fields_set, draft.proposed or ProposedChange()
    request = Request(
        repo=draft.repo,
        tests=draft.tests,
        prompt=None if draft.scaffold is not None and draft.model is None else draft.goal.natural,
        ref=draft.ref,
        python=draft.python,
        agent=draft.agent if "agent" in given else _usual_agent(draft, settings),
        capability=_asked_capability(draft),
        model=draft.model,
        fallback_model=draft.fallback_model,
        budget=draft.budget.model_dump(exclude_unset=True),
        branch=draft.branch,
        kind=draft.kind,
        scaffold=draft.scaffold,
        language=draft.language,
        diff=None if change.diff is None else change.diff.encode(),
        changed=change.ref,
    )
    task = make_task(request, settings)
    policy = tightened(task.policy, draft.policy) if "policy" in given else task.policy
    return task.model_copy(
        update={"policy": policy, **{name: getattr(draft, name) for name in FROM_DOCUMENT if name in given}}
    )


def _usual_agent(draft: TaskSpec, settings: Settings) -> str | None:
    """The agent of a document that names none: one with a model where words are all there is."""
    if draft.scaffold is not None:
        return settings.agent_with_model() if draft.model is not None else "template"
    words = draft.kind in (TaskKind.QUESTION, TaskKind.CHANGE)
    return settings.agent_with_model() if words or draft.model is not None else None


def _asked_capability(draft: TaskSpec) -> str:
    """The capability to check against what a named agent needs; to answer a question every agent only reads."""
    checked = "agent" in draft.model_fields_set and draft.kind is not TaskKind.QUESTION
    return draft.risk_profile.capability if checked else Capability.WRITE_AND_RUN_TESTS
