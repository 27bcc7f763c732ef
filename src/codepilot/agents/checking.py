"""An action is read before it runs: what the policy refuses goes back with its reason and counts as a violation."""

from __future__ import annotations

from codepilot.agents.protocol import Desk
from codepilot.core.contract import JsonObject
from codepilot.core.events import GuardrailBlocked
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills import Finding, check_action, unknown_modules

MAX_ASKED = 8
_PLACES = ("", "src/", "lib/", "tests/")
_NO_MODULE = (FailureKind.PATH_NOT_FOUND, FailureKind.POLICY_VIOLATION, FailureKind.TOOL_INVALID_ARGS)
"""There is none, or nothing that may be read."""


def check_code(code: str, desk: Desk, capability: Capability) -> tuple[Finding, ...]:
    """What the task's policy says about an action. The project's own modules are looked up only when one is unknown."""
    imports = desk.run.task.policy.imports
    root, shell = desk.project.root, capability.allows(Capability.FULL_SHELL)
    found = check_action(code, imports, root=root, shell=shell)
    asked = sorted({*unknown_modules(found), *_refused_packages(found)})
    known = frozenset(name for name in asked[:MAX_ASKED] if name.isidentifier() and _in_project(name, desk))
    return check_action(code, imports, known, root=root, shell=shell) if known else found


def refused_action(found: tuple[Finding, ...]) -> tuple[JsonObject, GuardrailBlocked] | None:
    """The observation and the event of an action that may not run; None if it may."""
    refused = [one for one in found if one.refused]
    if not refused:
        return None
    told = "\n".join(str(one) for one in refused)
    message = f"[violation] The action was not run; nothing of it was done. Leave out or replace:\n{told}"
    blocked = GuardrailBlocked(skill="python", rule=refused[0].rule, attempt=_storable(refused[0].source))
    return {"status": "violation", "message": _storable(message)}, blocked


def advice_of(found: tuple[Finding, ...]) -> list[str]:
    """What is told beside the result of an action that ran."""
    return [_storable(f"line {one.line}: {one.message}.") for one in found if not one.refused]


def _refused_packages(found: tuple[Finding, ...]) -> frozenset[str]:
    """Refused modules may be the project itself: a repository of an HTTP client imports what it is."""
    rules = (one.rule for one in found if one.refused)
    return frozenset(rule.removeprefix("import.").partition(".")[0] for rule in rules if rule.startswith("import."))


def _in_project(name: str, desk: Desk) -> bool:
    for place in _PLACES:
        for file in (f"{place}{name}/__init__.py", f"{place}{name}.py"):
            try:
                desk.executor.read_file(desk.workspace, file)
            except CodePilotError as error:
                if error.kind not in _NO_MODULE:
                    raise
            else:
                return True
    return False


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
