"""From a batch task to the run that attempts it, and to the run that judges what an attempt changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from codepilot.core.attempt import Attempt
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import (
    Budget,
    Capability,
    Goal,
    Interaction,
    InteractionMode,
    RiskProfile,
    TaskKind,
    TaskSpec,
    split_criteria,
)
from codepilot.engine.agent_check import require_agent
from codepilot.engine.agent_factory import choose_models
from codepilot.engine.change.apply import changed_objects
from codepilot.engine.change.review import derived_id, judged_base, judging_task
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import Settings, make_budget
from codepilot.engine.task import Begun, begin
from codepilot.store import new_id
from codepilot.workspace import find_root

LONGEST_REST_SEC = 900.0
"""What an attempt may need beyond its own time: the copy before it, the patch after it."""


def attempt_task(attempt: Attempt, agent: str, cwd: Path, settings: Settings, *, model: str | None = None) -> TaskSpec:
    """An attempt as a task, on a copy of the checkout or plain directory around `cwd`, or in place."""
    directory = cwd.resolve()
    if not directory.is_dir():
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There is no directory {cwd}.",
            next_action="Correct the task's cwd; a relative one begins at the directory of the tasks file.",
        )
    if directory == Path("/"):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "The whole machine is no directory to work in.",
            next_action="Name the directory of the project as the task's cwd.",
        )
    if attempt.in_place:
        _refuse_own_files(directory, settings)
    versioned = any((one / ".git").exists() for one in (directory, *directory.parents))
    root = find_root(directory) if versioned and not attempt.in_place else directory
    settings = settings.for_repository(root)
    chosen, _ = choose_models(agent, model, None, settings)
    require_agent(agent, settings)
    seconds = attempt.timeout_sec + LONGEST_REST_SEC
    budget: Budget = make_budget(TaskKind.PROMPT, settings.budget, {"wall_sec": seconds, "step_wall_sec": seconds})
    return TaskSpec(
        task_id=new_id("t-"),
        kind=TaskKind.PROMPT,
        goal=Goal(natural=attempt.prompt),
        repo=str(root),
        path=directory.relative_to(root).as_posix().removeprefix("."),
        attempt=attempt,
        budget=budget,
        agent=agent,
        model=chosen,
        policy=settings.policy,
        memory=settings.memory,
        risk_profile=RiskProfile(
            capability=Capability.FULL_SHELL, interaction=Interaction(mode=InteractionMode.FULL_AUTONOMY)
        ),
        sandbox_level=settings.sandbox.level,
        interactive=settings.interactive,
        locks=settings.locks,
    )


def _refuse_own_files(directory: Path, settings: Settings) -> None:
    """Nothing works in place where it could change the settings or records of CodePilot or of its user."""
    own = (settings.home.path, settings.file, Path(settings.environ.get("HOME") or settings.home.path))
    for place in own:
        if place is not None and place.resolve().is_relative_to(directory):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"In place at {directory}, a program could change {place}.",
                next_action="Name a directory below it as the task's cwd, or leave --in-place out.",
            )


def judge_attempt(runtime: Runtime, run_id: str, criteria: Sequence[str]) -> Begun:
    """Begin the run that judges what an attempt changed, by the tests and commands of `criteria`."""
    run = runtime.store.load(run_id)
    if run.base is None or run.proposal is None:
        raise CodePilotError(FailureKind.INVALID_SPEC, f"Run {run_id} has no change that could be judged.")
    base, tree = run.base, run.proposal.tree
    tests, commands = split_criteria(criteria)
    with closing(changed_objects(runtime, run, base)) as objects:
        pinned = judged_base(base, objects, tree)
        patch = objects.diff(base.untouched, tree).patch
    task = judging_task(run, "Judge what was done for", base.commit, patch).model_copy(
        update={
            "attempt": None,
            "tests": tests,
            "accept": commands,
            "budget": make_budget(TaskKind.PROVE, runtime.settings.budget),
        }
    )
    return begin(runtime, task, derived_id(run_id, tree), pinned)
