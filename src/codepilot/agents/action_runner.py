"""Runs one action of a role: checked before, run inside, observed after."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from codepilot.agents.approvals import ask_about, decided_inside, granted, granted_hosts, open_granted
from codepilot.agents.host_functions import HOST_FUNCTIONS, HostFunctions, with_host_functions
from codepilot.agents.protocol import StepContext
from codepilot.agents.scan_guard import unscanned
from codepilot.agents.step_conversation import StepConversation
from codepilot.agents.transcript import Turn, observation_of, too_long
from codepilot.core.artifacts import ArtifactRef, RepoMap
from codepilot.core.contract import JsonObject
from codepilot.core.events import DependencyDegraded, EventType, GuardrailBlocked, State, TurnFinished
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.permit import written_rules
from codepilot.core.task import Capability, TaskKind
from codepilot.executor import CodeResult, RunCode
from codepilot.skills import Answering, Finding, Registry, check_action, unknown_modules

PRELUDE_SEC = 30.0
MAX_CHANGED = 10
UNDEFINED = re.compile(r"^name '(\w+)' is not defined")


@dataclass
class ActionRunner:
    """Runs a role's actions in its kernel, with the functions its capability allows."""

    step: StepConversation
    registry: Registry
    capability: Capability
    loaded: bool = False
    granted: tuple[str, ...] = ()
    """What a person allowed, as the kernel knows it."""
    lacking: dict[str, str] = field(default_factory=dict)
    """Packages that a person allowed and that cannot be installed, with the reason."""

    @property
    def functions(self) -> frozenset[str]:
        """The functions that an action may call."""
        return frozenset(skill.name for skill in self.registry.available(self.capability))

    def run(self, code: str, number: int, turns: Sequence[Turn]) -> tuple[TurnFinished, tuple[ArtifactRef, ...]]:
        """Run an action, or refuse it. Returns its result and the artifact that holds the whole output."""
        step, run = self.step, self.step.run
        occasion = f"{run.step_id}/{number}"
        found = check_code(code, step.context, self.capability, granted(run, occasion), self.functions)
        if run.task.kind is TaskKind.BUILD:
            found = (*unscanned(code), *found)
        if refused := refused_action(found):
            observation, blocked = refused
            step.record(EventType.GUARDRAIL_BLOCKED, blocked)
            return TurnFinished(turn=number, observation=observation), ()
        if denial := ask_about(found, code, step, occasion):
            return TurnFinished(turn=number, observation=denial), ()
        allowed = tuple(one for one in granted(step.run, occasion) if one not in self.lacking)
        if allowed != self.granted:
            if lacking := open_granted(step, allowed):
                self.lacking.update(lacking)
                message = "\n".join((*lacking.values(), "The action was not run; nothing of it was done."))
                return TurnFinished(turn=number, observation={"status": "error", "message": message}), ()
            self.loaded, self.granted = False, allowed
        longest = min(run.task.budget.command_sec, run.task.policy.runtime_sec or run.task.budget.command_sec)
        seconds = max(1.0, min(longest, step.context.seconds_left()))
        asked = len(run.approvals)
        key = f"{run.run_id}/{run.step_id}/{run.attempt}/{number}{f'/{asked}' if asked else ''}"
        result = self._carry_out(code, turns, seconds, key, occasion)
        self.loaded = result.status in ("ok", "error") and not result.kernel_restarted
        for blocked in forbidden(result):
            step.record(EventType.GUARDRAIL_BLOCKED, blocked)
        for decided in decided_inside(result):
            step.record(EventType.POLICY_DECIDED, decided)
        observation, kept = self._observed(result, number)
        if advice := (*advice_of(found), *self._no_function(code, result)):
            observation["advice"] = [*advice]
        calls = self.registry.known(result.calls)
        return TurnFinished(turn=number, observation=observation, calls=calls), kept

    def _no_function(self, code: str, result: CodeResult) -> tuple[str, ...]:
        """What to call in place of a function that this role does not have."""
        missing = UNDEFINED.search(result.error.message) if result.error is not None else None
        if missing is None or not re.search(rf"\b{missing[1]}\s*\(", code):
            return ()
        why = "is not allowed to this role" if missing[1] in self.registry else "is no function here"
        return (f"`{missing[1]}` {why}; the functions are {', '.join(sorted(self.functions))}",)

    def _observed(self, result: CodeResult, number: int) -> tuple[JsonObject, tuple[ArtifactRef, ...]]:
        """The observation of a result. Output that is too long to show is kept as an artifact."""
        observation = observation_of(result)
        if set(observation) == {"status"} and result.status == "ok" and (changed := self._changed()) is not None:
            observation["changed"] = [*changed]
        if not (whole := too_long(result)):
            return observation, ()
        try:
            ref = self.step.context.keep(whole.encode("utf-8", "backslashreplace"))
        except CodePilotError as error:
            if error.kind is not FailureKind.ARTIFACT_STORE_UNAVAILABLE:
                raise
            consequence = f"of the output of turn {number} only the shown part is kept"
            degraded = DependencyDegraded(dependency="artifacts", consequence=consequence, failure=error.failure)
            self.step.record(EventType.DEPENDENCY_DEGRADED, degraded)
            return observation, ()
        artifact: JsonObject = ref.model_dump(mode="json")
        observation["whole"] = {"artifact": artifact, "characters": len(whole), "turn": number}
        return observation, (ref,)

    def _changed(self) -> list[str] | None:
        """The files that an action without output changed, as far as they are listed; None if that is not known."""
        run, context = self.step.run, self.step.context
        start = run.proposal if run.state is not State.IMPLEMENT and run.proposal else run.base
        before = run.tree or (start.tree if start else None)
        if before is None:
            return None
        try:
            changes = context.executor.diff(context.workspace, before).changes
        except CodePilotError:
            return None
        more = [f"and {len(changes) - MAX_CHANGED} more"] if len(changes) > MAX_CHANGED else []
        return [change.path for change in changes[:MAX_CHANGED]] + more

    def _carry_out(self, code: str, turns: Sequence[Turn], seconds: float, key: str, occasion: str) -> CodeResult:
        """Run an action, and answer what it asks of the host."""
        self._load_skills()
        functions = HostFunctions(
            self.step, turns, seconds, occasion=occasion, code=code, granted=self.granted, lacking=self.lacking
        )
        names = tuple(sorted(name for name in HOST_FUNCTIONS if name in self.registry))
        answer = with_host_functions(self.registry, functions).only(frozenset(names)).answer(self.capability)
        try:
            return self._run_code(code, seconds, key, names, answer)
        finally:
            functions.stop()

    def _load_skills(self) -> None:
        """Give the kernel the role's functions; the first time in a step, also what a workspace needs once."""
        if self.loaded:
            return
        project = self.step.context.project
        fresh = not self.step.acted and self.capability.allows(Capability.WRITE_WITH_DIFF)
        task = self.step.run.task
        facts = {
            "POLICY": written_rules(task.policy),
            "GRANTED": json.dumps(self.granted),
            "RATES": json.dumps(dict(task.policy.rates)),
            "INTERACTION": task.risk_profile.interaction.mode.value,
        }
        prelude = self.registry.prelude(
            self.capability, project.interpreter.executable, project.runner, prepare=fresh, facts=facts
        )
        loaded = self._run_code(prelude, PRELUDE_SEC, "")
        if loaded.status != "ok":
            reason = loaded.error.message if loaded.error else loaded.stderr[-500:]
            raise CodePilotError(
                FailureKind.EXECUTOR_LOST, f"The skills could not be loaded ({loaded.status}): {reason}"
            )
        self.loaded = self.step.acted = True

    def _run_code(
        self, code: str, timeout_sec: float, key: str, names: tuple[str, ...] = (), answer: Answering | None = None
    ) -> CodeResult:
        context = self.step.context
        request = RunCode(
            workspace=context.workspace, code=code, timeout_sec=timeout_sec, idempotency_key=key, host_calls=names
        )
        return context.executor.run_code(request, answer)


MAX_ASKED = 20
MAX_FILES = 8
"""Limits on the modules of one action that are looked up in the project, and on the files tried for each."""
_PLACES = ("", "src/", "lib/", "tests/")
_NO_MODULE = (FailureKind.PATH_NOT_FOUND, FailureKind.POLICY_VIOLATION, FailureKind.TOOL_INVALID_ARGS)
"""There is none, or nothing that may be read."""
_MODULE = re.compile(r"[^\W\d]\w{0,99}")


def check_code(
    code: str,
    context: StepContext,
    capability: Capability,
    allowed: tuple[str, ...] = (),
    tools: frozenset[str] | None = None,
) -> tuple[Finding, ...]:
    """The policy's findings about an action. The project's modules are looked up only if one is unknown.

    `allowed` is what a person granted, `tools` are the names that are tools.
    """
    task = context.run.task
    check = partial(
        check_action,
        code,
        task.policy.model_copy(update={"hosts": (*task.hosts, *granted_hosts(context.now()))}),
        granted=allowed,
        tools=tools,
        root=context.project.root,
        capability=capability,
        interaction=task.risk_profile.interaction.mode,
    )
    found = check()
    asked = sorted({*unknown_modules(found), *_refused_packages(found)})
    known = frozenset(name for name in asked[:MAX_ASKED] if _in_project(name, found, context))
    return check(known) if known else found


def refused_action(found: tuple[Finding, ...]) -> tuple[JsonObject, GuardrailBlocked] | None:
    """The observation and the event of an action that may not run; None if it may."""
    refused = [one for one in found if one.refused]
    if not refused:
        return None
    findings = "\n".join(str(one) for one in refused)
    message = f"[violation] The action was not run; nothing of it was done. Leave out or replace:\n{findings}"
    attempt = refused[0].source or refused[0].message
    blocked = GuardrailBlocked(skill="python", rule=refused[0].rule, attempt=_storable(attempt))
    return {"status": "violation", "message": _storable(message)}, blocked


def advice_of(found: tuple[Finding, ...]) -> list[str]:
    """Advice that is shown with the result of an action that ran."""
    return [_storable(f"line {one.line}: {one.message}.") for one in found if not one.refused]


def _refused_packages(found: tuple[Finding, ...]) -> frozenset[str]:
    """Refused modules may be the project itself: a repository of an HTTP client imports what it is."""
    rules = (one.rule for one in found if one.refused)
    return frozenset(rule.removeprefix("import.").partition(".")[0] for rule in rules if rule.startswith("import."))


def _in_project(name: str, found: tuple[Finding, ...], context: StepContext) -> bool:
    """True if the project has a module of this name or one of the imported submodules."""
    files = [f"{name}/__init__.py", f"{name}.py"]
    for one in found:
        first, *rest = one.module.split(".")
        if first == name and rest and all(_MODULE.fullmatch(part) for part in rest[:2]):
            files += [f"{'/'.join([name, *rest[:2]])}.py", f"{name}/{rest[0]}.py", f"{name}/{rest[0]}/__init__.py"]
    if not _MODULE.fullmatch(name):
        return False
    return any(_is_file(f"{place}{file}", context) for file in dict.fromkeys(files[:MAX_FILES]) for place in _PLACES)


def _is_file(path: str, context: StepContext) -> bool:
    try:
        context.executor.read_file(context.workspace, path)
    except CodePilotError as error:
        if error.kind not in _NO_MODULE:
            raise
        return False
    return True


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


MAX_RECORDED = 10
"""The limit on recorded violations of one action; policies end a run long before."""


def forbidden(result: CodeResult) -> list[GuardrailBlocked]:
    """One event for each violation the kernel reports, and one for an error that none of its calls explains."""
    violations = [
        call.violation or f"[violation] {call.skill}" for call in result.calls if call.status == "policy_violation"
    ]
    raised = result.error is not None and result.error.type.endswith("PolicyError")
    message = result.error.message if result.error is not None else result.stderr[-200:]
    if (raised and message[:500] not in violations) or (result.status == "violation" and not violations):
        violations.append(message)
    return [_blocked(text) for text in violations[:MAX_RECORDED]]


def _blocked(text: str) -> GuardrailBlocked:
    rule, _, attempt = text.partition("] ") if text.startswith("[") else ("violation", "", text)
    return GuardrailBlocked(skill=attempt.partition(":")[0][:100], rule=rule.lstrip("[")[:200], attempt=attempt[:500])


NOT_FOUND = "127"
_PROGRAM = re.compile(r'"cmd": \["((?:[^"\\]|\\.)*)"')


def require_tools(repo_map: RepoMap | None, turn: TurnFinished) -> None:
    """Raise if a command of the repository map is not installed: the map is wrong."""
    if repo_map is None:
        return
    named = {command[0] for command in (repo_map.build_cmd, repo_map.test_cmd, repo_map.lint_cmd) if command}
    for call in turn.calls:
        program = _PROGRAM.search(call.arguments) if call.exit == NOT_FOUND else None
        if program and program.group(1) in named:
            raise CodePilotError(
                FailureKind.TOOL_MISSING,
                f"{program.group(1)}, which the map of the repository names, is not installed here (exit code 127).",
                tool=program.group(1),
            )
