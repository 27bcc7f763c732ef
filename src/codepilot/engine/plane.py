"""Where a run's code is executed: in this process's sandbox, or by the executor that the configuration names."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.core.task import Capability, TaskSpec
from codepilot.engine.settings import TOKEN_VARIABLE, load_settings
from codepilot.executor import CreateWorkspace, Executor, LocalExecutor
from codepilot.sandbox import Credential, Level, Wanted, choose, weaker
from codepilot.skills import answer_calls, count_calls
from codepilot.store import Home
from codepilot.workspace import ObjectStore, remove_workspace

_log = logging.getLogger(__name__)


def open_plane(task: TaskSpec, home: Home) -> Executor:
    """The executor for a task, no weaker than the task and its policy demand."""
    return open_executor(home, task.sandbox_level, task.policy, task.risk_profile.capability)


def level_of(task: TaskSpec, home: Home) -> Level:
    """How strongly the task's code will be confined; what cannot be had is refused here."""
    with closing(open_plane(task, home)) as executor:
        return executor.level


def open_executor(
    home: Home,
    wanted: Wanted,
    policy: Policy,
    capability: Capability = Capability.WRITE_AND_RUN_TESTS,
) -> Executor:
    """`capability` is the most that skills which run on the host's side may do for code inside."""
    settings = load_settings(None, os.environ)
    if settings.executor.url is not None:
        return _remote(settings.executor.url, wanted, policy)
    return LocalExecutor(
        home.workspaces,
        choose(wanted, policy.least_level),
        answer=answer_calls(capability),
        count=count_calls,
        credentials=tuple(Credential(**vars(one)) for one in settings.network.credentials),
    )


def _remote(url: str, wanted: Wanted, policy: Policy) -> Executor:
    from codepilot.executor import RemoteExecutor

    executor = RemoteExecutor(url, os.environ.get(TOKEN_VARIABLE), count_calls)
    least = wanted if wanted in ("bubblewrap", "landlock") else policy.least_level
    if least is not None and weaker(executor.level, least):
        executor.close()
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE,
            f"The executor at {url} confines code by {executor.level}; at least {least} is demanded.",
            next_action=f"Name an executor whose level is {least}, or lower the demand.",
        )
    return executor


def seen_at(executor: Executor, objects: ObjectStore, workspace: str) -> str:
    """Where code inside will see a workspace whose path cannot be chosen."""
    request = CreateWorkspace(workspace=workspace, objects=str(objects.path), tree=objects.write_tree({}))
    executor.delete(workspace)
    inside = executor.create(request).inside
    executor.delete(workspace)
    return inside


def remover(task: TaskSpec, home: Home) -> Callable[[str], None]:
    """How workspaces of an ended run are removed. An executor that is away does not undo what the run achieved."""
    if load_settings(None, os.environ).executor.url is None:
        return lambda workspace: remove_workspace(home.workspaces / workspace)

    def remove(workspace: str) -> None:
        try:
            executor = open_plane(task, home)
            executor.delete(workspace)
            executor.close()
        except CodePilotError as error:
            _log.warning("the workspace %s is left at the executor: %s", workspace, error)

    return remove
