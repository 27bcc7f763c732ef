"""Functions of an action that the host answers: earlier output, and repairs that need no model.

The action blocks on the answer. A search works in a copy of the workspace: files and kernel variables stay as they are.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codepilot.agents.step_conversation import StepConversation
from codepilot.agents.transcript import Turn, whole_of
from codepilot.core.approval import OPERATIONS, ApprovalNeeded
from codepilot.core.contract import JsonObject
from codepilot.core.events import EventType, RepairsSought
from codepilot.core.failures import CodePilotError, FailureKind, Origin
from codepilot.core.policy import HOST_PATTERN
from codepilot.core.task import Capability
from codepilot.core.text import decoded
from codepilot.project import is_test
from codepilot.repair import SearchRequest, search
from codepilot.skills import PatchError, Registry, SkillPolicy, Target, patch_tree
from codepilot.verify import configures_runner

MOST_SEC = 60.0
MOST = 20


@dataclass
class HostFunctions:
    """The functions that one action may call. `stop` ends a search whose action is over."""

    step: StepConversation
    turns: Sequence[Turn] = ()
    seconds: float = MOST_SEC
    occasion: str = ""
    """Distinguishes the requests of this action from those of other actions."""
    code: str = ""
    granted: tuple[str, ...] = ()
    """What was allowed before the action began."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Packages that were allowed and cannot be installed, with the reason."""
    raised: BaseException | None = None
    """The reason why the step must stop, noticed while the action waited."""
    _sought: list[RepairsSought] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _searching: threading.Lock = field(default_factory=threading.Lock)

    def read_output(self, turn: int, offset: int = 0, length: int = 8000) -> str:
        """A part of the whole output of an earlier turn of yours, such as read_output(3, 8000)."""
        found = next((one for one in self.turns if one.number == turn), None)
        if found is None:
            wrong = f"there is no earlier turn {turn} in this conversation"
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, wrong)
        return whole_of(found, self.step.context.fetch)[offset : offset + length]

    def request_permission(self, operation: str, subject: str, why: str) -> bool:
        """Ask a person to allow what is refused otherwise; the answer counts for this action.

        `operation` is "network" (the subject is a host), "command" (a whole command) or "install" (packages with spaces
        between). False means no: do it another way.
        """
        asked = {"network": "network", "command": "command", "install": "install"}.get(operation)
        if asked is None or not subject.strip():
            wrong = "the operation is network, command or install, and the subject is not empty"
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, wrong)
        if asked == "network" and not re.fullmatch(HOST_PATTERN, subject):
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, "the subject is a host's name, like pypi.org")
        try:
            allowed = self.step.context.ask(
                OPERATIONS[asked], subject, risk="medium", reasons=(why,), snippet=self.code, occasion=self.occasion
            )
        except ApprovalNeeded as needed:
            self.raised = needed
            again = "The run waits for the answer; this action begins again then."
            raise CodePilotError(FailureKind.DENIED, again) from None
        if allowed and subject in self.lacking:
            raise CodePilotError(FailureKind.TOOL_FAILED, self.lacking[subject])
        if allowed and asked != "command" and subject not in self.granted:
            later = f"{subject} is allowed from your next action on: use it there."
            raise CodePilotError(FailureKind.TOOL_FAILED, later)
        return allowed

    def find_repairs(
        self, tests: list[str] | None = None, limit: int = 5, proposals: list[str] | None = None
    ) -> list[JsonObject]:
        """Search small Python edits that make the failing tests pass, without a model: takes up to a minute.

        Gives the best first, each with path, diff (for apply_patch), rationale and confidence; nothing is changed.
        `proposals` are diffs of your own, each of one file: they are tried and ranked with the others.
        """
        with self._searching:
            return self._found(tuple(tests or ()), tuple(proposals or ()))[: max(0, limit)]

    def stop(self) -> None:
        """The action is over. What was searched for goes on record, and a reason to stop is raised."""
        self._over.set()
        for sought in self._sought:
            self.step.record(EventType.REPAIRS_SOUGHT, sought)
        self._sought.clear()
        if self.raised is not None:
            raise self.raised

    def _found(self, tests: tuple[str, ...], diffs: tuple[str, ...]) -> list[JsonObject]:
        context = self.step.context
        targets = tests or context.targets
        try:
            proposed = tuple(self._changed(diff) for diff in diffs)
            with context.copied() as workspace:
                result = search(
                    SearchRequest(
                        executor=context.executor,
                        workspace=workspace,
                        project=context.project,
                        targets=targets,
                        baseline=context.baseline,
                        ages=context.ages,
                        seconds=max(1.0, min(MOST_SEC, context.seconds_left() / 2, self.seconds * 0.8)),
                        on_progress=lambda progress: self._raise_if_over(),
                        proposed=proposed,
                    )
                )
        except PatchError as error:
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, str(error)) from error
        except CodePilotError as error:
            if error.failure.handling.origin is Origin.PLATFORM:
                self.raised = error
            else:
                reason = error.failure.message
                self._sought.append(RepairsSought(by="agent", tests=targets, tried=0, found=0, reason=reason))
            raise
        except BaseException as error:
            self.raised = self.raised or error
            raise
        offered = result.candidates[:MOST]
        sought = RepairsSought(
            by="agent",
            tests=targets,
            tried=result.tried,
            found=len(result.candidates),
            confidence=offered[0].confidence if offered else 0.0,
            reason=result.reason,
        )
        self._sought.append(sought)
        fields = ("path", "diff", "rationale", "confidence")
        return [{name: getattr(candidate, name) for name in fields} for candidate in offered]

    def _raise_if_over(self) -> None:
        if self._over.is_set():
            raise CodePilotError(FailureKind.TOOL_TIMEOUT, "The action ended before the search did.")
        self.step.context.raise_if_stopped()

    def _changed(self, diff: str) -> tuple[str, bytes]:
        """The one file that the diff changes, and what it would hold then."""
        context = self.step.context
        encodings: dict[str, str] = {}

        def read(path: str) -> str | None:
            try:
                text, encodings[path] = decoded(context.executor.read_file(context.workspace, path))
                return text
            except CodePilotError as error:
                if error.failure.handling.origin is Origin.PLATFORM:
                    raise
                if error.kind is FailureKind.PATH_NOT_FOUND:
                    return None
                raise PatchError(error.failure.message) from error

        files = patch_tree(diff, read).files
        path, text = next(iter(files.items()), ("", None))
        if len(files) != 1 or text is None or read(path) is None:
            raise PatchError("a proposal changes one file that exists")
        if is_test(path) or configures_runner(path):
            raise PatchError(f"{path} judges the repair: a proposal may not change it")
        try:
            data = text.encode(encodings[path])
            ast.parse(data)
        except UnicodeEncodeError as error:
            wrong = f"{path} is {error.encoding} and cannot hold {text[error.start]!r}"
            raise PatchError(wrong) from error
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise PatchError(f"{path} would not be Python any more: {error}") from error
        return path, data


_POLICIES = {
    "request_permission": SkillPolicy(target=Target.LOCAL, timeout_sec=60.0, retries=1),
    "read_output": SkillPolicy(target=Target.LOCAL, timeout_sec=30.0, retries=1),
    "find_repairs": SkillPolicy(
        target=Target.LOCAL, timeout_sec=3 * MOST_SEC, needs=Capability.WRITE_AND_RUN_TESTS, retries=1
    ),
}
HOST_FUNCTIONS = frozenset(_POLICIES)


def with_host_functions(registry: Registry, functions: HostFunctions) -> Registry:
    """The skills with those that the agent's side answers."""
    extended = registry.only(frozenset(skill.name for skill in registry) - HOST_FUNCTIONS)
    for name, policy in _POLICIES.items():
        body: Callable[..., Any] = getattr(functions, name)
        extended.skill(policy)(body)
    return extended
