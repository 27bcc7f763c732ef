"""An action is read before it runs: what the policy refuses goes back with its reason and counts as a violation."""

from __future__ import annotations

import re
from functools import partial

from codepilot.agents.protocol import Desk
from codepilot.core.contract import JsonObject
from codepilot.core.events import GuardrailBlocked
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills import Finding, check_action, unknown_modules

MAX_ASKED = 20
MAX_FILES = 8
"""How many modules of one action are looked for in the project, and in how many files each."""
_PLACES = ("", "src/", "lib/", "tests/")
_NO_MODULE = (FailureKind.PATH_NOT_FOUND, FailureKind.POLICY_VIOLATION, FailureKind.TOOL_INVALID_ARGS)
"""There is none, or nothing that may be read."""
_MODULE = re.compile(r"[^\W\d]\w{0,99}")


def check_code(code: str, desk: Desk, capability: Capability) -> tuple[Finding, ...]:
    """What the task's policy says about an action. The project's own modules are looked up only when one is unknown."""
    task = desk.run.task
    check = partial(
        check_action,
        code,
        task.policy.model_copy(update={"hosts": task.hosts}),
        root=desk.project.root,
        capability=capability,
        interaction=task.risk_profile.interaction.mode,
    )
    found = check()
    asked = sorted({*unknown_modules(found), *_refused_packages(found)})
    known = frozenset(name for name in asked[:MAX_ASKED] if _in_project(name, found, desk))
    return check(known) if known else found


def refused_action(found: tuple[Finding, ...]) -> tuple[JsonObject, GuardrailBlocked] | None:
    """The observation and the event of an action that may not run; None if it may."""
    refused = [one for one in found if one.refused]
    if not refused:
        return None
    told = "\n".join(str(one) for one in refused)
    message = f"[violation] The action was not run; nothing of it was done. Leave out or replace:\n{told}"
    attempt = refused[0].source or refused[0].message
    blocked = GuardrailBlocked(skill="python", rule=refused[0].rule, attempt=_storable(attempt))
    return {"status": "violation", "message": _storable(message)}, blocked


def advice_of(found: tuple[Finding, ...]) -> list[str]:
    """What is told beside the result of an action that ran."""
    return [_storable(f"line {one.line}: {one.message}.") for one in found if not one.refused]


def _refused_packages(found: tuple[Finding, ...]) -> frozenset[str]:
    """Refused modules may be the project itself: a repository of an HTTP client imports what it is."""
    rules = (one.rule for one in found if one.refused)
    return frozenset(rule.removeprefix("import.").partition(".")[0] for rule in rules if rule.startswith("import."))


def _in_project(name: str, found: tuple[Finding, ...], desk: Desk) -> bool:
    """Whether the project has a module of this name, or one of those that are imported from below it."""
    files = [f"{name}/__init__.py", f"{name}.py"]
    for one in found:
        first, *rest = one.module.split(".")
        if first == name and rest and all(_MODULE.fullmatch(part) for part in rest[:2]):
            files += [f"{'/'.join([name, *rest[:2]])}.py", f"{name}/{rest[0]}.py", f"{name}/{rest[0]}/__init__.py"]
    if not _MODULE.fullmatch(name):
        return False
    return any(_is_file(f"{place}{file}", desk) for file in dict.fromkeys(files[:MAX_FILES]) for place in _PLACES)


def _is_file(path: str, desk: Desk) -> bool:
    try:
        desk.executor.read_file(desk.workspace, path)
    except CodePilotError as error:
        if error.kind not in _NO_MODULE:
            raise
        return False
    return True


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
