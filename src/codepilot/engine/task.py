"""From a request to a task, and from a task to a recorded run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codepilot.agents import Agent
from codepilot.core import DEFAULT_AGENT
from codepilot.core.build_task import check_build_task
from codepilot.core.commit import RUN, checked_branch
from codepilot.core.decide import start
from codepilot.core.events import BasePinned, EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.interactive import ExecutionMode, Strategy
from codepilot.core.policy import HOST_PATTERN
from codepilot.core.run import Run, replay
from codepilot.core.scaffold import Scaffold
from codepilot.core.task import (
    Capability,
    Goal,
    Interaction,
    InteractionMode,
    Language,
    ProposedChange,
    RiskProfile,
    TaskKind,
    TaskSpec,
)
from codepilot.engine.agent_check import require_agent
from codepilot.engine.agent_factory import choose_models, make_task_agent
from codepilot.engine.base import carry_base, pin
from codepilot.engine.kinds.module_request import module_place, new_directory, scaffold_goal
from codepilot.engine.settings import Settings, make_budget
from codepilot.engine.target import Place, understand
from codepilot.store import new_id
from codepilot.workspace import (
    default_branch,
    fork_point,
    has_password,
    is_url,
    refuse_branch,
    resolve_commit,
    shown,
)

if TYPE_CHECKING:
    from codepilot.engine.runtime import Runtime
    from codepilot.store import ClaimedStep


@dataclass(frozen=True)
class Request:
    """What a door was asked to do, before it is a task."""

    repo: str = "."
    """A checkout or a URL; or a directory, a file or a test in a checkout."""
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
    """True if others work on it: keys and packages are theirs to have."""
    budget: Mapping[str, Any] = field(default_factory=dict)
    unsafe_no_sandbox: bool = False
    hosts: tuple[str, ...] = ()
    test_hosts: tuple[str, ...] = ()
    priority: int = 0
    capability: str = Capability.WRITE_AND_RUN_TESTS
    interaction: str = InteractionMode.ASK_BEFORE_RISKY
    branch: str | None = None
    kind: TaskKind = TaskKind.BUGFIX
    accept: tuple[str, ...] = ()
    alters: tuple[str, ...] = ()
    """For tasks of kind change: existing tests that the change may edit or remove."""
    language: Language | None = None
    """For tasks of kind build: the program's language, Python by default."""
    diff: bytes | None = None
    """For tasks of kind prove: the change as a diff; or `changed` names its branch or commit, or nothing does and it is
    the uncommitted files.
    """
    changed: str | None = None
    single: bool = False
    """True if `changed` is one commit and not a branch."""
    notify: bool | None = None
    """True if its end is notified; by default if it is known here where to."""
    scaffold: Scaffold | None = None
    """For tasks of kind scaffold: the module; `repo` is what it joins, or the new directory."""
    dry_run: bool = False
    execution_mode: ExecutionMode | None = None
    """By default the one that the settings name."""
    strategy: Strategy | None = None
    worktree: str | None = None
    """Where the run's tree is laid out for its user."""


@dataclass(frozen=True)
class Begun:
    """A run, and the step of it that this process has claimed."""

    run: Run
    worker: str
    start: ClaimedStep | None
    """None if there is nothing to do, or others do it."""


def submit(
    runtime: Runtime, task: TaskSpec, run_id: str | None = None, *, by: str = "user", base: BasePinned | None = None
) -> Run:
    """Record a run of the task; doing so again under the same id changes nothing.

    Returns the run as it was recorded: a worker may have taken it since then.
    """
    run_id = run_id or new_id("r-")
    first = _first_events(runtime, task, run_id, pinned=True, base=base, by=by)
    return replay(runtime.store.create_run(run_id, first).events)


def begin(runtime: Runtime, task: TaskSpec, run_id: str | None = None, base: BasePinned | None = None) -> Begun:
    """The same for one that this process works on: its first step is ours, however many workers look for one.

    `base` is given where it is not the checkout as it is now.
    """
    run_id = run_id or new_id("r-")
    return claim_created(runtime, run_id, _first_events(runtime, task, run_id, pinned=runtime.shared, base=base))


def claim_created(runtime: Runtime, run_id: str, first: list[EventDraft]) -> Begun:
    """Begin a run with these first events for this process to work on; one that exists already is returned as it is."""
    worker = new_id("w-")
    written = runtime.store.create_run(run_id, first, worker)
    return Begun(replay(written.events), worker, written.claimed)


def _first_events(
    runtime: Runtime, task: TaskSpec, run_id: str, *, pinned: bool, base: BasePinned | None = None, by: str = "user"
) -> list[EventDraft]:
    """A checkout is `pinned` now where it may be another by the time that a worker comes, or cannot be seen by it."""
    if not re.fullmatch(r"r-[a-z0-9][a-z0-9-]{0,60}", run_id) or run_id.endswith(("-base", "-proof", "-copy")):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{run_id!r} cannot be the id of a run.",
            next_action="Use r- and small letters, digits and hyphens, for example r-ci-4711.",
        )
    drafts = start(task, run_id, by)
    if base is not None or ((pinned or task.proposed) and not is_url(task.repo)):
        base = carry_base(runtime, base or pin(task, runtime.home, runtime.settings.service.repository_hosts))
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
    made, builds = request.scaffold, request.kind is TaskKind.BUILD
    if builds:
        check_build_task(request.prompt or "")
    empty = made is not None and not made.join
    if builds:
        place = Place(Path(request.repo).expanduser().absolute())
    else:
        place = understand(request.repo, request.tests) if made is None else module_place(made, request.repo)
    root = place.root if builds or place.root is None else _checked_root(place.root, request.ref)
    settings = settings.for_repository(root)
    _check_asked(request)
    name = request.agent or (settings.agent_with_model() if builds else settings.agents.default)
    model, fallback = choose_models(name, request.model, request.fallback_model, settings)
    here = not request.elsewhere
    agent = make_task_agent(name, model, fallback, settings, here=here)
    if here:
        require_agent(name, settings)
    level: Literal["best", "bubblewrap", "landlock", "none"] = settings.sandbox.level
    ref, proposed = named_change(request, root) if request.kind is TaskKind.PROVE else (request.ref, None)
    return TaskSpec(
        task_id=new_id("t-"),
        kind=request.kind,
        goal=_goal(request, place),
        repo=new_directory(request.repo) if empty else request.repo if root is None else os.fspath(root),
        scaffold=request.scaffold,
        dry_run=request.dry_run,
        ref=ref,
        proposed=proposed,
        accept=request.accept,
        alters=request.alters,
        language=(request.language or "python") if builds else None,
        path=place.path,
        within=place.within,
        tests=place.tests,
        budget=make_budget(request.kind, settings.budget, request.budget),
        agent=name,
        model=model,
        fallback_model=fallback,
        python=absolute(request.python),
        policy=settings.policy,
        memory=settings.memory,
        approved_hosts=_hosts(request.hosts),
        approved_test_hosts=_hosts(request.test_hosts),
        priority=request.priority,
        risk_profile=RiskProfile(
            capability=_capability(request.capability, agent),
            interaction=Interaction(mode=InteractionMode(request.interaction)),
        ),
        sandbox_level="none" if request.unsafe_no_sandbox else level,
        branch=_branch(request, root),
        notify=_notified(request, settings),
        execution_mode=request.execution_mode or settings.interactive.execution_mode,
        strategy=request.strategy,
        interactive=settings.interactive,
        locks=settings.locks,
        worktree=request.worktree and os.path.abspath(Path(request.worktree).expanduser()),  # noqa: PTH100
    )


_BEYOND_REPAIR = {TaskKind.BUILD: "build a program", TaskKind.QUESTION: "answer a question"}


def _check_asked(request: Request) -> None:
    """Raise for an agent that cannot do what is asked, and for an empty criterion."""
    beyond = _BEYOND_REPAIR.get(request.kind)
    if request.kind is TaskKind.CHANGE and not request.tests:
        beyond = "make a change that no failing test describes"
    if request.agent == DEFAULT_AGENT and beyond:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {DEFAULT_AGENT!r} searches for repairs of failing tests: it cannot {beyond}.",
            next_action="Choose an agent that asks a model, for example --agent codeact.",
        )
    if any(not one.strip() for one in request.accept):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A criterion of --accept is empty.",
            next_action="Name a test that fails now, or a command that must succeed after the change.",
        )


def named_change(request: Request, root: Path | None) -> tuple[str | None, ProposedChange]:
    """The change to judge, and the commit that it is judged on: where its branch began, its parent, or HEAD."""
    if request.diff is not None:
        return request.ref, ProposedChange(diff=_text(request.diff))
    if root is None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A branch or commit of a URL cannot be judged.",
            next_action="Clone the repository and name the clone, or pass the change with --diff.",
        )
    if request.changed is None:
        return request.ref or resolve_commit(root), ProposedChange()
    changed = resolve_commit(root, request.changed)
    if request.ref is not None:
        base = resolve_commit(root, request.ref)
    elif request.single:
        base = _parent(root, changed)
    else:
        head = resolve_commit(root)
        base = fork_point(root, changed, head if head != changed else default_branch(root) or head)
    return base, ProposedChange(ref=changed)


def _parent(root: Path, commit: str) -> str:
    try:
        return resolve_commit(root, f"{commit}^")
    except CodePilotError as error:
        raise CodePilotError(
            error.kind,
            f"{commit[:12]} is the first commit that this checkout knows: there is no parent to judge it on.",
            next_action="Name the commit that it is judged on with --onto REV; of a shallow clone, fetch more history.",
        ) from error


def _text(diff: bytes) -> str:
    try:
        return diff.decode()
    except UnicodeDecodeError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "The diff is not UTF-8.",
            next_action="Commit the change to a branch, and name it with --branch.",
        ) from error


def _goal(request: Request, place: Place) -> Goal:
    """The task in words. An empty prompt is refused: a script's variable may have been empty."""
    if request.scaffold is not None:
        return scaffold_goal(request.scaffold, request.prompt)
    if request.prompt is None and request.kind is TaskKind.PROVE:
        return Goal(natural="Judge a change that exists")
    if request.prompt is None:
        return Goal(natural=default_goal(place.tests, place.within))
    if not request.prompt.strip():
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "The description of the change is empty." if request.kind is TaskKind.CHANGE else "--prompt is empty.",
            next_action="Say what should be true afterwards."
            if request.kind is TaskKind.CHANGE
            else "Say what should be true afterwards, or leave --prompt out: the failing test says it then.",
        )
    return Goal(natural=request.prompt.strip())


def _branch(request: Request, root: Path | None) -> str | None:
    """One that cannot be made is refused before anything is spent; who submits the same again finds it there."""
    if request.branch is None:
        return None
    if request.dry_run:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "A dry run commits nothing, and --branch names a branch for a commit.",
            next_action="Leave one of --dry-run and --branch out.",
        )
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


def _checked_root(root: Path, ref: str | None) -> Path:
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


def default_goal(tests: tuple[str, ...], within: tuple[str, ...] = ()) -> str:
    """The goal of a request without a prompt."""
    if tests:
        return f"Make {', '.join(tests)} pass"
    return f"Make the first failing test{' of ' + ', '.join(within) if within else ''} pass"
