"""Tasks of kind question: an agent reads the repository, and its answer is an artifact. Nothing is changed."""

from __future__ import annotations

from contextlib import closing

from codepilot.core.artifacts import Answer, ArtifactType
from codepilot.core.decide import Failed, Outcome, Succeeded
from codepilot.core.events import ArtifactStored, EventType, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.engine.base import fetch_base, local_checkout, open_objects
from codepilot.engine.execution_context import find_project, plain_project, seen_at
from codepilot.engine.work import Work
from codepilot.project import Project

_UNTESTED = (FailureKind.NO_TEST_RUNNER, FailureKind.ENVIRONMENT_MISSING, FailureKind.INVALID_SPEC)


def question_project(work: Work) -> Project:
    """The project, if one is found; else any Python reads the files."""
    task, base, settings = work.run.task, work.base, work.runtime.settings
    with closing(open_objects(work.home, base.repo_id)) as objects:
        fetch_base(work.runtime, base, objects)
        root = local_checkout(work.home, base, objects)

        def inside() -> str:
            return seen_at(work.executor, objects, work.workspace)

        try:
            return find_project(task, base, root, work.executor, inside, settings, task.test_hosts)
        except CodePilotError as error:
            if error.kind not in _UNTESTED:
                raise
            return plain_project(base, root, work.executor, inside, settings)


def answer(work: Work) -> Outcome:
    """IMPLEMENT: the agent answers, and the workspace must be as it was."""
    if work.run.documents.get("answer") is not None:
        return Succeeded("answered")
    context, baseline = work.settled()
    given = work.perform(State.IMPLEMENT, context, baseline)
    if not isinstance(given, Answer):
        message = f"The agent {work.agent.name!r} returned {type(given).__name__} instead of an answer."
        return Failed(Failure(kind=FailureKind.MODEL_BAD_REPLY, message=message))
    if context.executor.diff(work.workspace, work.base.tree).changes:
        message = "The agent changed files, and the task only reads."
        return Failed(Failure(kind=FailureKind.POLICY_VIOLATION, message=message))
    sources = "".join(f"\n- {one}" for one in given.sources)
    text = given.answer.strip() + (f"\n\nSources:{sources}" if sources else "") + "\n"
    kept = work.artifacts.put(text.encode("utf-8", "backslashreplace"), ArtifactType.REPORT)
    work.record(EventType.ARTIFACT_STORED, ArtifactStored(name="answer", artifact=kept), (kept,))
    return Succeeded("answered")
