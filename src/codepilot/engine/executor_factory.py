"""Where a run's code is executed: in this process's sandbox, or by the executor that the configuration names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.core.run import Run
from codepilot.core.task import Capability, TaskSpec
from codepilot.engine.settings import Settings
from codepilot.executor import CreateWorkspace, Executor, LocalExecutor, NetworkSeen
from codepilot.sandbox import Least, Level, Wanted, choose, weaker
from codepilot.skills import answer_calls, count_calls
from codepilot.workspace import ObjectStore

_log = logging.getLogger(__name__)


def open_task_executor(task: TaskSpec, settings: Settings, seen: NetworkSeen | None = None) -> Executor:
    """The executor for a task, no weaker than the task and its policy demand."""
    capability, network = task.risk_profile.capability, bool(task.hosts)
    return open_executor(settings, task.sandbox_level, task.policy, capability, network, seen)


def level_of(task: TaskSpec, settings: Settings) -> Level:
    """How strongly the task's code will be confined; what cannot be had is refused here."""
    with closing(open_task_executor(task, settings)) as executor:
        return executor.level


def open_executor(
    settings: Settings,
    wanted: Wanted,
    policy: Policy,
    capability: Capability = Capability.WRITE_AND_RUN_TESTS,
    network: bool = False,
    seen: NetworkSeen | None = None,
) -> Executor:
    """`capability` and `network` bound what skills that run on the host's side may do for code inside."""
    if settings.executor.url is not None:
        if settings.network.credentials:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "[[network.credentials]] are added where the code runs, and the executor is elsewhere.",
                next_action="Configure them where the executor runs, and take them out here.",
            )
        return _remote(settings, settings.executor.url, wanted, policy)
    return LocalExecutor(
        settings.home.workspaces,
        choose(wanted, policy.least_level),
        answer=answer_calls(capability, network),
        count=count_calls,
        credentials=settings.credentials(),
        seen=seen,
    )


def _remote(settings: Settings, url: str, wanted: Wanted, policy: Policy) -> Executor:
    from codepilot.executor import RemoteExecutor

    _check_secrecy(url, allowed=settings.executor.plain_http)
    executor = RemoteExecutor(url, settings.executor_token, count_calls)
    least = least_elsewhere(wanted, policy)
    if least is not None and weaker(executor.level, least):
        executor.close()
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE,
            f"The executor at {url} confines code by {executor.level}; at least {least} is demanded.",
            next_action=f"Name an executor whose level is {least}, or lower the demand.",
        )
    return executor


def least_elsewhere(wanted: Wanted, policy: Policy) -> Least | None:
    """The weakest level that is good enough elsewhere; "best" is content with any that confines."""
    if wanted == "none":
        return policy.least_level
    demanded: Least = "landlock" if wanted == "best" else wanted
    return policy.least_level if policy.least_level and weaker(demanded, policy.least_level) else demanded


def _check_secrecy(url: str, *, allowed: bool) -> None:
    """Code and the token leave the machine in clear text only if the settings allow it."""
    split = urlsplit(url)
    nearby = split.hostname in ("localhost", "127.0.0.1", "::1")
    if split.scheme == "http" and not nearby and not allowed:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The executor at {split.hostname} would get your code and its token unencrypted.",
            next_action="Put TLS in front of it and name it by https, or set [executor] plain_http = true.",
        )


def check_place(run: Run, settings: Settings) -> None:
    """A run goes on where its workspace is."""
    if run.base_snapshot is None:
        return
    here = settings.executor.url
    if run.executor == here:
        return
    if run.executor is None:
        message, advice = "this machine", "take [executor] out of the configuration"
    else:
        message, advice = f"the executor at {run.executor}", f"set CODEPILOT_EXECUTOR_URL={run.executor}"
    raise CodePilotError(
        FailureKind.EXECUTOR_LOST,
        f"Run {run.run_id} has its workspace on {message}; the configuration names {here or 'none'} now.",
        next_action=f"To go on, {advice}, then `codepilot resume {run.run_id}`.",
    )


def seen_at(executor: Executor, objects: ObjectStore, workspace: str) -> str:
    """Where code inside will see a workspace whose path cannot be chosen."""
    request = CreateWorkspace(workspace=workspace, objects=str(objects.path), tree=objects.write_tree({}))
    executor.delete(workspace)
    inside = executor.create(request).inside
    executor.delete(workspace)
    return inside


def remover(task: TaskSpec, settings: Settings) -> Callable[[str], None]:
    """How workspaces elsewhere are removed. An executor that is away does not undo what the run achieved."""

    def remove(workspace: str) -> None:
        try:
            with closing(open_task_executor(task, settings)) as executor:
                executor.delete(workspace)
        except CodePilotError as error:
            _log.warning("the workspace %s is left at the executor: %s", workspace, error)

    return remove
