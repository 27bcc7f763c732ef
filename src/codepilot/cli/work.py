"""The commands that give work: fix, submit, demo."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from codepilot.cli.drive import start
from codepilot.cli.options import (
    WORK,
    AgentOption,
    ApplyFlag,
    ArtifactsOption,
    BranchOption,
    BudgetOption,
    CapabilityName,
    CapabilityOption,
    DetachFlag,
    FallbackOption,
    HostOption,
    IdOption,
    JsonFlag,
    ModelOption,
    NotifyFlag,
    PlausibleFlag,
    PriorityOption,
    PromptOption,
    PythonOption,
    RefOption,
    RepoArg,
    StoreOption,
    TestHostOption,
    TestOption,
    UnsafeFlag,
)
from codepilot.cli.output import plain, say

_FIX = """Examples: codepilot fix · codepilot fix --test tests/test_x.py::test_y --budget wall_sec=600 ·
codepilot fix --agent codeact --model anthropic:claude-sonnet-4-6 --prompt 'Totals include tax'"""
_SUBMIT = "Example: codepilot submit https://example.org/shop.git --test tests/test_x.py::test_y --priority 10"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WORK, epilog=_FIX)(fix)
    app.command(rich_help_panel=WORK, epilog=_SUBMIT)(submit)
    app.command(rich_help_panel=WORK)(demo)


def fix(
    repo: RepoArg = ".",
    test: TestOption = None,
    prompt: PromptOption = None,
    ref: RefOption = None,
    python: PythonOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    fallback_model: FallbackOption = None,
    budget: BudgetOption = None,
    apply: ApplyFlag = False,
    branch: BranchOption = None,
    accept_plausible: PlausibleFlag = False,
    allow_host: HostOption = None,
    allow_test_host: TestHostOption = None,
    capability: CapabilityOption = CapabilityName.write_and_run_tests,
    unsafe_no_sandbox: UnsafeFlag = False,
    notify: NotifyFlag = None,
    priority: PriorityOption = 0,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    detach: DetachFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Repair a failing test and prove the change."""
    from codepilot.engine import CodePilot, Request, Settings

    with CodePilot(Settings.load(flags={"store": store, "artifacts": artifacts})) as pilot:
        request = Request(
            repo=repo,
            tests=tuple(test or ()),
            prompt=prompt,
            ref=ref,
            python=python,
            agent=agent,
            model=pilot.model_named(model),
            fallback_model=fallback_model,
            elsewhere=detach,
            budget=parse_budget(budget or ()),
            unsafe_no_sandbox=unsafe_no_sandbox,
            hosts=tuple(allow_host or ()),
            test_hosts=tuple(allow_test_host or ()),
            priority=priority,
            capability=capability.value,
            branch=branch,
            notify=notify,
        )
        if not detach:
            start(pilot, request, run_id, apply=apply, accept_plausible=accept_plausible, as_json=as_json)
            return
        if apply:
            raise typer.BadParameter("A worker does not write into your checkout.", param_hint="--apply")
        queued = pilot.submit(request, run_id).run_id
        say(json.dumps({"schema_version": 1, "run_id": queued}) if as_json else queued)
        if pilot.warning:
            say(pilot.warning, err=True)


def submit(**options: object) -> None:
    """Queue a task for workers and print the run's id.

    The same as `fix --detach`.
    """
    fix(**options, detach=True)  # type: ignore[arg-type]


_ONLY_FIX = ("apply", "accept_plausible", "detach")
_signature = inspect.signature(fix, eval_str=True)
submit.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[one for name, one in _signature.parameters.items() if name not in _ONLY_FIX]
)


def demo(as_json: JsonFlag = False) -> None:
    """Repair a real bug in a small example project, offline."""
    from codepilot.engine import CodePilot, Request, Settings

    with CodePilot(Settings.load()) as pilot:
        checkout = prepare_example(pilot.settings.home.ensure().path / "demo", pilot.settings.environ)
        if not as_json:
            say(plain(f"A small library with a test suite and one bug: {checkout}"))
        asked = "Free slots must not overlap bookings that lie inside longer ones"
        start(pilot, Request(repo=str(checkout), prompt=asked), as_json=as_json)


_GIT = ("git", "-c", "user.name=CodePilot", "-c", "user.email=demo@codepilot.invalid", "-c", "commit.gpgsign=false")


def prepare_example(directory: Path, environ: Mapping[str, str]) -> Path:
    """A fresh git checkout of the example below `directory`; an earlier one is replaced."""
    import os
    import shutil
    import subprocess
    from importlib.resources import as_file, files

    checkout = directory / "agenda"
    if checkout.exists():
        shutil.rmtree(checkout)
    directory.mkdir(parents=True, exist_ok=True)
    with as_file(files("codepilot.cli") / "example") as example:
        shutil.copytree(example, checkout, ignore=shutil.ignore_patterns("__pycache__"))
    kept = {
        "PATH": environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "Agenda 1.0")):
        subprocess.run([*_GIT, *arguments], cwd=checkout, env=kept, check=True, capture_output=True)
    return checkout


def parse_budget(pairs: Sequence[str]) -> dict[str, float]:
    """`KEY=VALUE` pairs as numbers."""
    values: dict[str, float] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if number != number:
            from codepilot.core.failures import CodePilotError, FailureKind

            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"--budget {pair!r} is not KEY=VALUE with a number.",
                next_action="For example: --budget wall_sec=600 --budget iterations=3.",
            )
        values[key.strip()] = number
    return values
