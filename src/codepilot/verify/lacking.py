"""What the environment of tests lacks: modules, plugins of pytest, servers; and how a failure says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project import ModuleFacts, Project, SuiteRun

ASYNC_UNSUPPORTED = "async def functions are not natively supported"
"""pytest's message for an async test that no plugin runs."""
ASYNC_PLUGINS = ("pytest_asyncio", "anyio", "pytest_trio", "pytest_tornasync", "pytest_twisted")
NO_FIXTURE = "FixtureLookupError"
FIXTURES = {
    "benchmark": ("pytest_benchmark", "pytest_codspeed"),
    "db": ("pytest_django",),
    "event_loop": ("pytest_asyncio",),
    "freezer": ("pytest_freezer", "pytest_freezegun"),
    "mocker": ("pytest_mock",),
    "respx_mock": ("respx",),
    "snapshot": ("syrupy", "snapshottest"),
}
"""Plugins of pytest that provide a fixture, where their name does not say so."""


@dataclass(frozen=True)
class Missing:
    """What may be done about a module that cannot be imported."""

    facts: Callable[[str], ModuleFacts]
    may_be_written: bool = False
    """True if the agent can write a module that the repository and its declarations do not know."""

    def blocks(self, module: str) -> bool:
        """True if the environment lacks the module, so that no change can mend the tests."""
        found = self.facts(module)
        return found.environmental or not (found.in_repository or self.may_be_written)


def cannot_start(run: SuiteRun, project: Project, missing: Missing) -> CodePilotError:
    python = project.interpreter.executable
    if run.missing_module is None:
        last = run.message or (run.log_tail.strip().splitlines() or ["it printed nothing"])[-1]
        advice = f"Make the project's tests start by {project.runner} alone, then try again."
        if project.is_python:
            command = f"{python} -m {project.runner}"
            advice = f"Make `{command}` start by itself, then try again; --python chooses another Python."
        return CodePilotError(
            FailureKind.SUITE_CANNOT_START,
            f"The suite cannot start: {last}",
            advice,
            log_tail=run.log_tail[-2000:],
        )
    if not project.is_python:
        return CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The project needs {run.missing_module}, which is not there, and tests run without a network.",
            project.remedy,
            missing_module=run.missing_module,
        )
    what, advice = explained(missing.facts(run.missing_module), project)
    needed = next(iter(run.red), "the suite")
    return CodePilotError(
        FailureKind.SUITE_CANNOT_START,
        f"{needed} cannot be loaded: there is no module named {run.missing_module!r} for {python}. {what}",
        advice,
        missing_module=run.missing_module,
        python=python,
    )


def awaited_by_nobody(run: SuiteRun) -> str | None:
    """The first async test that failed because no plugin runs such tests."""
    return next((test for test, case in run.cases.items() if ASYNC_UNSUPPORTED in case.message), None)


def no_async_plugin(test: str, project: Project, missing: Missing) -> CodePilotError:
    facts = [found for found in map(missing.facts, ASYNC_PLUGINS) if found.declared is not None]
    if facts:
        what, advice = explained(facts[0], project)
    else:
        what = "It may be one that no file of the project declares."
        advice = "Name the interpreter that has the plugin with --python, or as .venv in the checkout."
    return CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"{test} is an async test, and {project.interpreter.executable} has no plugin of pytest that runs it. {what}",
        advice,
    )


def no_fixture(tests: Sequence[str], suite: SuiteRun, project: Project, missing: Missing) -> CodePilotError:
    """The error for tests whose fixture comes from a plugin that is not there, or from nowhere."""
    found = re.search(r"'(\w+)'", suite.cases[tests[0]].message)
    fixture = found[1] if found else "?"
    plugins = (*FIXTURES.get(fixture, ()), f"pytest_{fixture}")
    declared = next((one for one in map(missing.facts, plugins) if one.declared is not None), None)
    what, advice = explained(declared, project) if declared else ("", "Name the interpreter that has it with --python.")
    more = f" and {len(tests) - 1} more need" if len(tests) > 1 else " needs"
    message = f"{tests[0]}{more} the fixture `{fixture}`, which no conftest.py and no plugin of pytest defines. {what}"
    return CodePilotError(FailureKind.ENVIRONMENT_MISSING, message.strip(), advice)


def no_server(tests: Sequence[str], suite: SuiteRun) -> CodePilotError:
    case = suite.cases[tests[0]]
    first_line = next(iter(case.message.splitlines()), "")
    which = f"{tests[0]} and {len(tests) - 1} more fail" if len(tests) > 1 else f"{tests[0]} fails"
    return CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"{which} for lack of a server or the network: {case.error_type}{': ' if first_line else ''}{first_line[:300]}",
        "Set what the project's own tools set, another database say, in [project] env of codepilot.toml; or name a test"
        " that needs no server with --test.",
    )


def no_locale(tests: Sequence[str]) -> CodePilotError:
    """The error for tests that set a locale which is not installed."""
    which = f"{tests[0]} and {len(tests) - 1} more set" if len(tests) > 1 else f"{tests[0]} sets"
    return CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"{which} a locale that this machine does not have.",
        "Install the locales that the tests set (Debian: the package locales-all); or name another test with --test.",
    )


def explained(found: ModuleFacts, project: Project) -> tuple[str, str]:
    """What is known of a missing module, and the next step; no package is advised that the project does not name."""
    if found.in_repository:
        return "The repository holds it.", "Make it importable: see how the project's own tools set PYTHONPATH."
    version = ".".join(map(str, project.interpreter.version[:2]))
    if found.of_another_python:
        advice = "Choose the Python version of the project with --python."
        return f"It belongs to the standard library of another version than Python {version}.", advice
    if found.declared is not None:
        one = found.declared
        what = f"The project declares {one.name} in {one.where}."
        if one.prepared:
            where = f" in {project.folder}" if project.folder else ""
            return (
                what,
                f"Run `codepilot prepare`{where}, or name the Python of an environment that has it with --python.",
            )
        return what, f"Run `{one.install}` in an environment, and name its Python with --python or as .venv."
    return (
        "It is not in the repository, and no file of the project declares it.",
        "Name an interpreter that has it with --python; if it is still to be written, choose an agent with a model.",
    )
