"""The part of the façade that is about people: what they are asked, what they answered, and what the policy decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from codepilot.engine.facade.base import FacadeBase

if TYPE_CHECKING:
    from codepilot.core.run import Run
    from codepilot.engine.audit import AskedOf, AuditEntry
    from codepilot.engine.environment.prepare import Preparation
    from codepilot.engine.policy_view import Explanation, PolicySetting

Answer = Literal["once", "always", "denied"]


class People(FacadeBase):
    def approvals(self, run_id: str | None = None) -> list[AskedOf]:
        """The requests of a run with their answers, or the open requests of all runs, oldest first."""
        from codepilot.engine.audit import open_requests, requests_of

        return open_requests(self._runtime) if run_id is None else requests_of(self._runtime, self.find(run_id))

    def decide_approval(
        self, run_id: str, decision: Answer, approval_id: str = "", *, by: str = "user", reason: str = ""
    ) -> tuple[AskedOf, Run]:
        """Answer a request of a run, by default the one that it waits for; the run goes on when a worker has it.

        Returns the request with the answer that counts, which is an earlier one if there was one.
        """
        from codepilot.engine.audit import answer

        return answer(self._runtime, self.find(run_id), decision, approval_id, by=by, reason=reason)

    def linked_request(self, run_id: str, approval_id: str, signature: str) -> AskedOf | None:
        """The request that a signed link names; None if the link is wrong."""
        from codepilot.engine.service.links import linked_request

        found = linked_request(self._runtime, self._runtime.store.load(run_id), approval_id, signature)
        asked = self.approvals(run_id) if found is not None else []
        return next((one for one in asked if one.id == approval_id), None)

    def policy(self, repo: str | None = ".") -> list[PolicySetting]:
        """The effective policy for a checkout, or without any, each value with its source."""
        from codepilot.engine.policy_view import effective

        return effective(self.settings, None if repo is None else Path(repo).resolve())

    def policy_explain(
        self,
        words: Sequence[str],
        repo: str | None = ".",
        *,
        kind: str = "command",
        capability: str = "write_and_run_tests",
        interaction: str = "ask_before_risky",
        role: str = "implementer",
    ) -> Explanation:
        """What the policy for a checkout decides about a command, a tool, a path or a host, and how to change that."""
        from codepilot.core.task import Capability, InteractionMode
        from codepilot.engine.policy_view import explain

        policy = self.settings.for_repository(None if repo is None else Path(repo).resolve()).policy
        return explain(policy, words, kind, Capability(capability), InteractionMode(interaction), role)

    def look_at_dependencies(self, repo: str = ".") -> Preparation:
        """What `prepare` would install for a checkout, from where, and whether it is there already."""
        from codepilot.engine.environment.prepare import look

        return look(self._runtime, Path(repo))[0]

    def prepare(
        self,
        repo: str = ".",
        on_progress: Callable[[str], None] = lambda stage: None,
        *,
        by: str = "user",
        reason: str = "",
    ) -> Preparation:
        """Install a checkout's dependencies in a sandbox, as a person allowed; later runs find the environment."""
        from codepilot.core.task import Goal, TaskSpec
        from codepilot.engine.environment.decisions import record_decision
        from codepilot.engine.environment.prepare import look, prepare
        from codepilot.store import new_id

        found, recipe = look(self._runtime, Path(repo))
        if not found.done:
            record_decision(self._runtime, found, "once", by, reason)
            level = self.settings.sandbox.level
            task = TaskSpec(task_id=new_id("t-"), goal=Goal(natural="prepare"), repo=found.root, sandbox_level=level)
            prepare(self._runtime, task, recipe, on_progress)
        return look(self._runtime, Path(repo))[0]

    def refuse_dependencies(self, repo: str = ".", *, by: str = "user", reason: str = "") -> None:
        """Record that a person does not let `prepare` install a checkout's dependencies."""
        from codepilot.engine.environment.decisions import record_decision
        from codepilot.engine.environment.prepare import look

        record_decision(self._runtime, look(self._runtime, Path(repo))[0], "denied", by, reason)

    def audit(self, run_id: str | None = None) -> list[AuditEntry]:
        """Every request, answer and decision of the policy: of one run, or of the newest runs."""
        from codepilot.engine.audit import audit

        return audit(self._runtime, None if run_id is None else self.find(run_id))
