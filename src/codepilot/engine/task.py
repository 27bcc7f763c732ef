"""From a request to a task, and from a task to a recorded run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codepilot.agents import Agent
from codepilot.core.commit import RUN, checked_branch
from codepilot.core.decide import start
from codepilot.core.events import EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import HOST_PATTERN
from codepilot.core.run import Run, replay
from codepilot.core.task import Capability, Goal, RiskProfile, TaskKind, TaskSpec
from codepilot.engine.agent_factory import choose_models, make_task_agent
from codepilot.engine.base import carry_base, pin
from codepilot.engine.settings import Settings, make_budget
from codepilot.store import new_id
from codepilot.workspace import find_root, has_password, is_url, refuse_branch, resolve_commit, shown

if TYPE_CHECKING:
    from codepilot.engine.runtime import Runtime
    from codepilot.store import ClaimedStep


@dataclass(frozen=True)
class Request:
    """What a door was asked to do, before it is a task."""

    repo: str = "."
    tests: tuple[str, ...] = ()
    prompt: str | None = None
    """What is asked in words; the tests may say it all."""
    ref: str | None = None
    python: str | None = None
    agent: str | None = None
    """By default the one that the settings name."""
    model: str | None = None
    fallback_model: str | None = None
    elsewhere: bool = False
    """Whether others work on it: keys and packages are theirs to have."""
    budget: Mapping[str, Any] = field(default_factory=dict)
    unsafe_no_sandbox: bool = False
    hosts: tuple[str, ...] = ()
    test_hosts: tuple[str, ...] = ()
    priority: int = 0
    capability: str = Capability.WRITE_AND_RUN_TESTS
    branch: str | None = None
    notify: bool | None = None
    """Whether its end is notified; by default if it is known here where to."""


@dataclass(frozen=True)
class Begun:
    """A run that whoever asked for it works on: the run as it was asked for, and what its worker holds of it."""

    run: Run
    worker: str
    start: ClaimedStep | None
    """None if there is nothing to do, or others do it."""


def submit(runtime: Runtime, task: TaskSpec, run_id: str | None = None) -> Run:
    """Record a run of the task; doing so again under the same id changes nothing.

    Returns the run as it was recorded: a worker may have taken it since then.
    """
    run_id = run_id or new_id("r-")
    return replay(runtime.store.create_run(run_id, _first_events(runtime, task, run_id, pinned=True)).events)


def begin(runtime: Runtime, task: TaskSpec, run_id: str | None = None) -> Begun:
    """The same for one that this process works on: its first step is ours, however many workers look for one."""
    run_id, worker = run_id or new_id("r-"), new_id("w-")
    first = _first_events(runtime, task, run_id, pinned=runtime.shared)
    written = runtime.store.create_run(run_id, first, worker)
    return Begun(replay(written.events), worker, written.claimed)


def _first_events(runtime: Runtime, task: TaskSpec, run_id: str, *, pinned: bool) -> list[EventDraft]:
    """A checkout is `pinned` now where it may be another by the time that a worker comes, or cannot be seen by it."""
    if not re.fullmatch(r"r-[a-z0-9][a-z0-9-]{0,60}", run_id) or run_id.endswith(("-base", "-proof", "-copy")):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{run_id!r} cannot be the id of a run.",
            next_action="Use r- and small letters, digits and hyphens, for example r-ci-4711.",
        )
    drafts = start(task, run_id)
    if pinned and not is_url(task.repo):
        base = carry_base(runtime, pin(task, runtime.home))
        drafts.insert(1, EventDraft(type=EventType.BASE_PINNED, data=base, artifacts=base.carried))
    return drafts


def make_task(request: Request, settings: Settings) -> TaskSpec:
    """The request as a contract, with the configuration chain applied; what cannot work is refused here."""
    if is_url(request.repo) and has_password(request.repo):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "The URL holds a password, which would be kept with the run.",
            next_action="Leave it out and let a git credential helper or an SSH key supply it.",
        )
    root = None if is_url(request.repo) else _local_root(request.repo, request.ref)
    settings = settings.for_repository(root)
    name = request.agent or settings.agents.default
    model, fallback = choose_models(name, request.model, request.fallback_model, settings)
    here = not request.elsewhere
    agent = make_task_agent(name, model, fallback, settings, here=here)
    level: Literal["best", "bubblewrap", "landlock", "none"] = settings.sandbox.level
    return TaskSpec(
        task_id=new_id("t-"),
        kind=TaskKind.BUGFIX,
        goal=_goal(request),
        repo=request.repo if root is None else os.fspath(root),
        ref=request.ref,
        tests=request.tests,
        budget=make_budget(TaskKind.BUGFIX, settings.budget, request.budget),
        agent=name,
        model=model,
        fallback_model=fallback,
        python=absolute(request.python),
        policy=settings.policy,
        memory=settings.memory,
        approved_hosts=_hosts(request.hosts),
        approved_test_hosts=_hosts(request.test_hosts),
        priority=request.priority,
        risk_profile=RiskProfile(capability=_capability(request.capability, agent)),
        sandbox_level="none" if request.unsafe_no_sandbox else level,
        branch=_branch(request, root),
        notify=_notified(request, settings),
    )


def _goal(request: Request) -> Goal:
    """Words that were meant to be there and are not are a mistake, for instance an empty variable of a script."""
    if request.prompt is None:
        return Goal(natural=default_goal(request.tests))
    if not request.prompt.strip():
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "--prompt says nothing.",
            next_action="Say what should be true afterwards, or leave --prompt out: the failing test says it then.",
        )
    return Goal(natural=request.prompt.strip())


def _branch(request: Request, root: Path | None) -> str | None:
    """One that cannot be made is refused before anything is spent; who submits the same again finds it there."""
    if request.branch is None:
        return None
    name = checked_branch(request.branch, RUN)
    if root is None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "--branch needs a checkout: the clone of a URL is not yours to push from.",
            next_action="Name a checkout of the repository, or take the change from its bundle.",
        )
    if not request.elsewhere:
        refuse_branch(root, name)
    return request.branch


def _notified(request: Request, settings: Settings) -> bool:
    known = settings.notify.url is not None
    if request.notify and not known and not request.elsewhere:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "--notify: it is not known where to.",
            next_action="Set [notify] url in your own codepilot.toml, or CODEPILOT_NOTIFY_URL.",
        )
    return known if request.notify is None else request.notify


def _capability(name: str, agent: Agent) -> Capability:
    if name not in list(Capability):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There is no capability called {name!r}.",
            next_action=f"Use one of: {', '.join(Capability)}.",
        )
    if not Capability(name).allows(agent.needs):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {agent.name!r} can do nothing with the capability {name}.",
            next_action=f"Give it at least {agent.needs}, or choose another agent.",
        )
    return Capability(name)


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        if not re.fullmatch(HOST_PATTERN, host):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"--allow-host {host!r} is not a host.",
                next_action="Name a host without scheme or path: pypi.org, *.example.org or localhost:8080.",
            )
    return hosts


def _local_root(repo: str, ref: str | None) -> Path:
    root = find_root(Path(repo).expanduser())
    if (path := shown(str(root))) != str(root):
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"The path '{path}' is not UTF-8.", next_action="Rename the directory."
        )
    resolve_commit(root, ref)
    return root


def absolute(python: str | None) -> str | None:
    """A path stays a path (symlinks kept: they lead into virtual environments); a bare name is looked up later."""
    if python is None or os.sep not in python:
        return python
    return os.path.abspath(Path(python).expanduser())  # noqa: PTH100 - resolve() would leave the environment


def default_goal(tests: tuple[str, ...]) -> str:
    """What is asked where nobody said it in words."""
    return f"Make {', '.join(tests)} pass" if tests else "Make the first failing test pass"
