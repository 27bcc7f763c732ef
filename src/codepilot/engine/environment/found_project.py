"""The project of a run, as INIT finds it: its runner and environment, and what explains modules that are missing."""

from __future__ import annotations

from contextlib import closing

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.pipeline import pipeline_for
from codepilot.core.task import TaskKind
from codepilot.engine.base import fetch_base, local_checkout, open_objects
from codepilot.engine.execution_context import find_project, seen_at
from codepilot.engine.kinds.build import build_project
from codepilot.engine.kinds.question import question_project
from codepilot.engine.kinds.scaffold import NOTHING_MISSING, module_project
from codepilot.engine.work import Work
from codepilot.project import Dependencies, Project
from codepilot.verify import Missing


def found_project(work: Work) -> tuple[Project, Missing]:
    """The project of the task's kind."""
    if work.run.task.scaffold is not None:
        return module_project(work), NOTHING_MISSING
    if work.run.task.kind in (TaskKind.QUESTION, TaskKind.PROMPT):
        return question_project(work), NOTHING_MISSING
    return _project(work)


def _project(work: Work) -> tuple[Project, Missing]:
    """Detect the project in the base; raise if the agent does not support its language.

    With it comes what explains a module that cannot be imported, while the checkout can be read.
    """
    builds = work.run.task.kind is TaskKind.BUILD
    with closing(open_objects(work.home, work.base.repo_id)) as objects:
        fetch_base(work.runtime, work.base, objects)
        root = local_checkout(work.home, work.base, objects)
        project = (
            build_project(work, objects)
            if builds
            else find_project(
                work.run.task,
                work.base,
                root,
                work.executor,
                lambda: seen_at(work.executor, objects, work.workspace),
                work.runtime.settings,
                work.run.task.test_hosts,
            )
        )
    languages = work.agent.languages if pipeline_for(work.run.task).roles else None
    if languages is not None and project.language not in languages:
        supported = ", ".join(sorted(languages))
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {work.agent.name!r} works on {supported} only, not on {project.language} projects.",
            next_action="Choose an agent for this language, for example --agent codeact with a model.",
        )
    return project, Missing(Dependencies(root, project.folder).facts, may_be_written=work.run.task.model is not None)
