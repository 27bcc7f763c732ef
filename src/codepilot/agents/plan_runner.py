"""Runs a plan: node after node as their dependencies allow, each by a role or as one call of a tool.

What is done is on record, so that an interrupted run of a plan goes on with the node it was at. A node that only
repeats what fails is halted with all that waits for it; the others run before that is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codepilot.agents.action_runner import ActionRunner
from codepilot.agents.roles import Role, Sections
from codepilot.agents.step_conversation import StepConversation
from codepilot.agents.transcript import Turn, bounded, turns_of
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.breaker import halted, halts_a_part
from codepilot.core.contract import Contract, JsonObject, canonical_json
from codepilot.core.events import ChildJoined, EventType, NodeChanged, TurnStarted, Usage
from codepilot.core.failures import CodePilotError, Failure, FailureKind, Origin
from codepilot.core.parallel import begin_now
from codepilot.core.plan import NodeStatus, PlanNode, ready_nodes, waiting_for

MAX_NOTE = 2_000
BESIDE_OTHERS = "Others work on the other parts at the same time, in workspaces of their own: leave those to them."
MERGED = "Their change is in the files now; add yours to it."

Talk = Callable[[Role, str, Sections], Contract]
"""Let a role work on a node with the prompt sections about it. Returns the role's artifact."""


@dataclass
class PlanRunner:
    """Runs the plan of a run."""

    step: StepConversation
    roles: Mapping[str, Role]
    """Roles by name; the empty name is the default role."""
    talk: Talk
    runner: Callable[[], ActionRunner]
    """Makes the runner of tool nodes."""
    done: list[NodeChanged] = field(init=False)
    failed: list[NodeChanged] = field(init=False)

    def __post_init__(self) -> None:
        changed = [
            (event.type, event.data) for event in self.step.context.history if isinstance(event.data, NodeChanged)
        ]
        earlier = (event.data for event in self.step.context.earlier if event.type is EventType.NODE_SUCCEEDED)
        plan = self.step.context.run.plan
        kept = {node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED} if plan else set()
        done = {data.node: data for data in earlier if isinstance(data, NodeChanged) and data.node in kept}
        self.done = list(
            (done | {data.node: data for kind, data in changed if kind is EventType.NODE_SUCCEEDED}).values()
        )
        self.failed = [data for kind, data in changed if kind is EventType.NODE_FAILED]

    def candidate(self) -> PatchCandidate:
        """Run every node, or those before independent parts, which the engine has worked on side by side.

        Returns everything that was done as one change.
        """
        self._fail_as_before()
        while (plan := self.step.run.plan) is not None and (ready := ready_nodes(plan)):
            if begin_now(self.step.run):
                break  # independent parts become child runs
            self._do(ready[0])
        if plan is not None and (dead_end := halted(plan, self.failed)) is not None:
            raise CodePilotError.of(dead_end)
        offered = [PatchCandidate.model_validate(node.result) for node in self.done if self._offers(node)]
        rationale = "\n".join(one.rationale for one in offered) or "\n".join(node.note for node in self.done)
        confidence = min((one.confidence for one in offered if one.confidence), default=0.0)
        suspect = next((one.suspect for one in offered if one.suspect), None)
        return PatchCandidate(diff="", touched_files=(), rationale=rationale, confidence=confidence, suspect=suspect)

    def _fail_as_before(self) -> None:
        """Raise the failure of a node that ended the plan before a restart; a halted node does not end it."""
        for failed in self.failed:
            if failed.failure is not None and not halts_a_part(self.step.run.plan, failed.failure):
                raise CodePilotError.of(failed.failure)

    def _offers(self, done: NodeChanged) -> bool:
        role = self.roles.get(done.role)
        return role is not None and role.output is PatchCandidate

    def _do(self, node: PlanNode) -> None:
        role = None if node.kind == "tool" else self.roles.get(node.role)
        named = NodeChanged(node=node.id, role=role.name if role else node.tool or node.role, note=node.title)
        if node.status is NodeStatus.PENDING:
            self.step.record(EventType.NODE_STARTED, named)
        try:
            done = self._call(node, named) if role is None else self._by(role, node, named)
        except CodePilotError as error:
            if error.failure.handling.origin is Origin.WORK:
                self._fail(named, error.failure)
            if not halts_a_part(self.step.run.plan, error.failure):
                raise
        else:
            self.step.record(EventType.NODE_SUCCEEDED, done)
            self.done.append(done)

    def _fail(self, named: NodeChanged, failure: Failure) -> None:
        plan = self.step.run.plan
        blocked = waiting_for(plan, named.node) if plan is not None else ()
        failed = named.model_copy(update={"failure": failure, "blocked": blocked})
        self.step.record(EventType.NODE_FAILED, failed)
        self.failed.append(failed)

    def _by(self, role: Role, node: PlanNode, named: NodeChanged) -> NodeChanged:
        made = self.talk(role, node.id, self._part(node))
        result: JsonObject = made.model_dump(mode="json")
        rationale = result.get("rationale")
        note = rationale if isinstance(rationale, str) else canonical_json(result)
        return named.model_copy(update={"note": bounded(note, MAX_NOTE), "result": result})

    def _part(self, node: PlanNode) -> Sections:
        """The prompt sections about a node's place in the plan."""
        plan = self.step.run.plan
        child = self.step.run.task.parent_run_id is not None
        if plan is None or (len(plan.nodes) < 2 and not child):
            return {}
        titles = {each.id: each.title or each.tool or each.id for each in plan.nodes}
        done = "\n".join(f"- {titles[one.node]} ({one.role}): {one.note}" for one in self.done)
        part = f"{node.id}: {titles[node.id]}"
        if child:
            part = f"{part}\n{BESIDE_OTHERS}"
        return {"Done so far": done, "Your part of the plan": part, "Conflict": self._conflict(node)}

    def _conflict(self, node: PlanNode) -> str:
        """Why the node is done again on what others have made."""
        events = (*self.step.context.earlier, *self.step.context.history)
        joined = [event.data for event in events if isinstance(event.data, ChildJoined) and event.data.node == node.id]
        if not joined or joined[-1].outcome != "conflict":
            return ""
        paths = ", ".join(joined[-1].conflicts)
        return f"Your earlier change conflicted with another part's in {paths}. {MERGED}"

    def _call(self, node: PlanNode, named: NodeChanged) -> NodeChanged:
        """Run a tool's node as the skill that it names; an error there is the node's failure."""
        runner = self.runner()
        if node.kind != "tool" or node.tool not in runner.registry:
            wrong = f"Nobody here can do node {node.id} of the plan ({node.tool or node.role})."
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, wrong)
        past = turns_of(self.step.context.history, node.id)
        observed = past[-1].observation if past else None
        shown = past[-1].observed if past else ""
        if observed is None:
            observed, shown = self._run(node, runner, past[-1] if past and past[-1].waits else None)
        if observed.get("status") != "ok":
            raise CodePilotError(FailureKind.TOOL_FAILED, f"Node {node.id} of the plan failed: {bounded(shown, 500)}")
        return named.model_copy(update={"note": bounded(shown, MAX_NOTE), "result": {"status": "ok"}})

    def _run(self, node: PlanNode, runner: ActionRunner, asked: Turn | None) -> tuple[JsonObject, str]:
        """Run a tool's node; `asked` is the turn in which a person was asked for it."""
        self.step.context.raise_if_stopped()
        number = asked.number if asked else self.step.turns + 1
        code = f"{node.tool}(**{node.args!r})"
        action: JsonObject = {"tool": node.tool, "args": node.args, "code": code, "node": node.id}
        if asked is None:
            self.step.require_turn()
            self.step.start_turn(TurnStarted(turn=number, action=action, usage=Usage(turns=1)))
        finished, kept = runner.run(code, number, ())
        recorded = self.step.finish_turn(finished, kept)
        self.step.require_progress(recorded)
        return recorded.observation, Turn(number, "", observation=recorded.observation).observed
