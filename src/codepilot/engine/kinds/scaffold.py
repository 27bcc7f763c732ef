"""Tasks of kind scaffold: a new module from a template, alone or in an existing build, judged by its own tests."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from codepilot.core.artifacts import Gate, PolicyCheck, TestResult, TestSummary
from codepilot.core.decide import Failed
from codepilot.core.events import PatchProposed, ProofRecorded
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.project_settings import ProjectSettings
from codepilot.core.scaffold import Ecosystem, Scaffold
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.change.proposal import check_change
from codepilot.engine.execution_context import ExecutionContext, seen_at
from codepilot.engine.work import Work
from codepilot.project import ModuleFacts, Project, SuiteRun, check_level, detect, locate
from codepilot.project.scaffold import Module, Surroundings, Tree, installed_versions, make_module
from codepilot.project.toolchain import maven_places
from codepilot.verify import Baseline, Missing, run_gate, run_suite_baseline, tree_checks
from codepilot.workspace import Entry, ObjectStore, lay_out

FILE = "100644"
CONFIRMED_LEAST, MOST = 0.7, 0.98
FETCH = "Run `mvn test` once in a project that uses JUnit, so that ~/.m2/repository has JUnit and Surefire."
NOTHING_MISSING = Missing(lambda name: ModuleFacts(name, in_repository=False), may_be_written=True)
REVIEWED = frozenset(
    {"no_violations", "patch_within_size_limit", "no_disabled_tests", "new_tests_assert", "no_test_detection"}
    | {"no_hardcoded_secrets", "no_debug_left", "generated_code"}
)
"""The deterministic checks that a module filled in by a model must pass."""


def module_tree(work: Work, project: Project | None = None, pytest: bool = True) -> tuple[Module, str]:
    """The module's files, and the base with them as a tree. The same base and machine give the same tree."""
    wanted = _wanted(work)
    with closing(open_objects(work.home, work.base.repo_id)) as objects:
        fetch_base(work.runtime, work.base, objects)
        entries = objects.read_tree(work.base.tree)
        around = _surroundings(work, wanted, project, pytest)
        tree = _readable(objects, entries) if wanted.join else None
        module = make_module(wanted, around, tree, work.run.task.path, wanted.out)
        with objects.writer() as writer:
            for path, content in module.files.items():
                mode = entries[path].mode if path in entries else FILE
                entries[path] = Entry(mode, writer.add("blob", content))
        return module, objects.write_tree(entries)


def _wanted(work: Work) -> Scaffold:
    if work.run.task.scaffold is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {work.run.run_id} makes no module.")
    return work.run.task.scaffold


def _readable(objects: ObjectStore, entries: dict[str, Entry]) -> Tree:
    known = dict(entries)

    def read(path: str) -> bytes | None:
        entry = known.get(path)
        return objects.read_blob(entry.oid) if entry is not None and entry.mode in (FILE, "100755") else None

    return Tree(known.keys(), read)


def _surroundings(work: Work, wanted: Scaffold, project: Project | None, pytest: bool) -> Surroundings:
    """What this machine has for the template."""
    if project is not None:
        pytest = project.runner == "pytest"
    around = Surroundings(pytest=pytest)
    if project is not None and wanted.ecosystem is Ecosystem.PYTHON:
        version = project.interpreter.version
        around = replace(around, python=min(around.python, (version[0], version[1])))
    if wanted.ecosystem is Ecosystem.MAVEN:
        repository, java = maven_places(Path(work.run.task.repo), work.runtime.settings.environ)
        around = replace(around, maven=installed_versions(repository, java))
    return around


def module_project(work: Work) -> Project:
    """How the module is tested, as its own files and this machine say. Python tests are unittest's without pytest."""
    try:
        return _detected(work, pytest=True)
    except CodePilotError as error:
        if error.kind is not FailureKind.ENVIRONMENT_MISSING:
            raise
        if _wanted(work).ecosystem is Ecosystem.PYTHON:
            return _detected(work, pytest=False)
        if _wanted(work).ecosystem is Ecosystem.MAVEN and not _wanted(work).join:
            raise CodePilotError(error.kind, error.failure.message, next_action=FETCH) from error
        raise


def _detected(work: Work, *, pytest: bool) -> Project:
    wanted, base, executor = _wanted(work), work.base, work.executor
    module, tree = module_tree(work, pytest=pytest)
    checkout = Path(base.checkout) if base.checkout and wanted.join and Path(base.checkout).is_dir() else None
    with closing(open_objects(work.home, base.repo_id)) as objects:
        root = lay_out(objects, tree, work.home.repos / f"{base.repo_id}-{tree[:16]}.checkout")
        inside = base.checkout if base.checkout and executor.remaps else seen_at(executor, objects, work.workspace)
    settings = work.runtime.settings.for_repository(checkout)
    runner = "auto" if wanted.ecosystem is Ecosystem.PYTHON else wanted.ecosystem.value
    chosen = ProjectSettings(python=settings.project.python, env=settings.project.env, runner=runner)  # type: ignore[arg-type]
    folder = locate(root, root / module.folder) if wanted.ecosystem is Ecosystem.MAVEN else module.folder
    project = detect(
        root,
        folder=folder,
        python=work.run.task.python,
        environ=settings.environ,
        inside=inside,
        settings=chosen,
        named_by_user=chosen.python == work.runtime.settings.for_repository(None).project.python,
        environment=checkout,
    )
    check_level(project, executor.remaps, inside)
    return project


def module_baseline(work: Work, context: ExecutionContext, wanted: Scaffold) -> Baseline:
    """The tests before the module: those of the whole reactor that it joins, none elsewhere."""
    nothing = SuiteRun(status="finished", cases={}, collected=(), cmd=(), exit_code=0, duration_sec=0.0, log_tail="")
    if wanted.join and wanted.ecosystem is Ecosystem.MAVEN:
        command_sec = work.run.task.budget.command_sec
        found = run_suite_baseline(context.executor, work.workspace, context.project, command_sec)
        if found.suite.status == "finished":
            return found
        if found.suite.status != "no_tests":
            why = found.suite.message or (found.suite.log_tail.strip().splitlines() or ["it printed nothing"])[-1]
            raise CodePilotError(
                FailureKind.SUITE_CANNOT_START,
                f"The build that the module is to join does not work by itself: {why}",
                next_action=context.project.remedy,
                log_tail=found.suite.log_tail[-2000:],
            )
    return Baseline((), "", nothing, TestSummary(), "full")


def own_tests_gate(baseline: Baseline, result: TestResult) -> Gate:
    """Tests of the module itself ran, in addition to those that were there, and pass."""
    fresh = result.summary.passed - baseline.summary.passed
    return Gate(
        name="own_tests",
        before="no module",
        after=f"{max(0, fresh)} of its tests pass",
        ok=result.passed and fresh > 0,
        evidence="no test of the module ran" if result.passed and fresh <= 0 else "the module's own tests",
    )


def template_fails(work: Work, context: ExecutionContext, result: TestResult) -> Failed:
    """End the run: the same template would fail again. Mostly the machine lacks what the build needs."""
    first = result.errors[0] if result.errors else None
    why = f"{first.test}: {first.message or first.error_type}" if first is not None else "no test ran"
    lacks = context.project.driver and not result.summary.passed and not result.regressions
    return Failed(
        Failure(
            kind=FailureKind.GATE_FAILED if not lacks else FailureKind.SUITE_CANNOT_START,
            message=f"The module from the template does not pass its gates here: {why}",
            next_action=(FETCH if _wanted(work).ecosystem is Ecosystem.MAVEN else context.project.remedy)
            if lacks
            else "",
            details={"log_tail": result.log_tail[-2000:]},
        )
    )


def prove_module(work: Work, context: ExecutionContext, baseline: Baseline, proposal: PatchProposed) -> ProofRecorded:
    """Build the tree again from base and patch on a clean copy, and run its tests there."""
    objects, executor, place = context.objects, context.executor, f"{work.workspace}-proof"
    built = objects.apply(work.base.tree, work.artifacts.get(proposal.diff))
    checks = [one for one in tree_checks(objects, work.base.tree, built, proposal.tree) if "judged" not in one.name]
    if work.run.task.model is not None:
        checks += _reviewed(work, context, built)
    executor.delete(place)
    try:
        executor.create(context.request(place, built))
        result = run_gate(executor, place, context.project, baseline, work.run.task.budget.command_sec)
    finally:
        executor.delete(place)
    own = own_tests_gate(baseline, result)
    checks.append(PolicyCheck(name="own_tests_pass", ok=own.ok is True, evidence=f"{own.after}: {own.evidence}"))
    checks.append(
        PolicyCheck(name="nothing_else_broke", ok=not result.regressions, evidence=", ".join(result.regressions))
    )
    broken = [f"{check.name}: {check.evidence}" for check in checks if not check.ok]
    passed = result.summary.passed - baseline.summary.passed
    share = (passed + 1) / (passed + 2)
    return ProofRecorded(
        ok=not broken,
        verdict=None if broken else "confirmed",
        confidence=0.0 if broken else round(min(MOST, max(CONFIRMED_LEAST, share)), 2),
        confidence_parts={} if broken else {"own_tests": round(share, 3)},
        checks=tuple(checks),
        after=result.summary,
        suite=result.suite,
        reason="; ".join(broken) or f"{passed} tests of the module pass on a clean copy",
    )


def _reviewed(work: Work, context: ExecutionContext, built: str) -> list[PolicyCheck]:
    """The checks of what a model wrote: within the module, and by the rules of every change."""
    module, template = module_tree(work, context.project)
    above = f"{module.folder}/" if module.folder else ""
    outside = [path for path, _, _ in context.objects.changes(template, built) if not path.startswith(above)]
    kept = PolicyCheck(name="only_the_module_was_filled_in", ok=not outside, evidence=", ".join(outside[:5]))
    return [kept, *(one for one in check_change(work, context).policy_checks if one.name in REVIEWED)]
