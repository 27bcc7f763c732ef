"""Walks a plan: node after node as their dependencies allow, each by a role or as one call of a tool.

What is done is on record, so that a walk which was interrupted goes on with the node it was at. A node that only
repeats what fails is halted with all that waits for it, and the others are walked before that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codepilot.agents.acting import Hands
from codepilot.agents.roles import Role, Sections
from codepilot.agents.seat import Seat
from codepilot.agents.transcript import Turn, bounded, turns_of
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.breaker import halted, halts_a_part
from codepilot.core.contract import Contract, JsonObject, canonical_json
from codepilot.core.events import EventType, NodeChanged, TurnStarted, Usage
from codepilot.core.failures import CodePilotError, Failure, FailureKind, Origin
from codepilot.core.plan import NodeStatus, PlanNode, ready_nodes, waiting_for

MAX_NOTE = 2_000

Talk = Callable[[Role, str, Sections], Contract]
"""Let a role work on a node, told of its part: what it gives back."""


@dataclass
class Walk:
    """One way through the plan of a run."""

    seat: Seat
    roles: Mapping[str, Role]
    """By name; the one without a name is everybody's who has none."""
    talk: Talk
    hands: Callable[[], Hands]
    """What carries out the tools."""
    done: list[NodeChanged] = field(init=False)
    failed: list[NodeChanged] = field(init=False)

    def __post_init__(self) -> None:
        changed = [(event.type, event.data) for event in self.seat.desk.history if isinstance(event.data, NodeChanged)]
        earlier = (event.data for event in self.seat.desk.earlier if event.type is EventType.NODE_SUCCEEDED)
        plan = self.seat.desk.run.plan
        kept = {node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED} if plan else set()
        done = {data.node: data for data in earlier if isinstance(data, NodeChanged) and data.node in kept}
        self.done = list(
            (done | {data.node: data for kind, data in changed if kind is EventType.NODE_SUCCEEDED}).values()
        )
        self.failed = [data for kind, data in changed if kind is EventType.NODE_FAILED]

    def candidate(self) -> PatchCandidate:
        """Work on every node, and tell of all that was done as one change."""
        self._fail_as_before()
        while (plan := self.seat.run.plan) is not None and (ready := ready_nodes(plan)):
            self._do(ready[0])
        if plan is not None and (dead_end := halted(plan, self.failed)) is not None:
            raise CodePilotError.of(dead_end)
        offered = [PatchCandidate.model_validate(node.result) for node in self.done if self._offers(node)]
        rationale = "\n".join(one.rationale for one in offered) or "\n".join(node.note for node in self.done)
        confidence = min((one.confidence for one in offered if one.confidence), default=0.0)
        return PatchCandidate(diff="", touched_files=(), rationale=rationale, confidence=confidence)

    def _fail_as_before(self) -> None:
        """A node that failed has ended the walk, also if nobody was left to say so; one that was halted has not."""
        for failed in self.failed:
            if failed.failure is not None and not halts_a_part(self.seat.run.plan, failed.failure):
                raise CodePilotError.of(failed.failure)

    def _offers(self, done: NodeChanged) -> bool:
        role = self.roles.get(done.role)
        return role is not None and role.output is PatchCandidate

    def _do(self, node: PlanNode) -> None:
        role = None if node.kind == "tool" else self.roles.get(node.role)
        named = NodeChanged(node=node.id, role=role.name if role else node.tool or node.role, note=node.title)
        if node.status is NodeStatus.PENDING:
            self.seat.record(EventType.NODE_STARTED, named)
        try:
            done = self._call(node, named) if role is None else self._by(role, node, named)
        except CodePilotError as error:
            if error.failure.handling.origin is Origin.WORK:
                self._fail(named, error.failure)
            if not halts_a_part(self.seat.run.plan, error.failure):
                raise
        else:
            self.seat.record(EventType.NODE_SUCCEEDED, done)
            self.done.append(done)

    def _fail(self, named: NodeChanged, failure: Failure) -> None:
        plan = self.seat.run.plan
        blocked = waiting_for(plan, named.node) if plan is not None else ()
        failed = named.model_copy(update={"failure": failure, "blocked": blocked})
        self.seat.record(EventType.NODE_FAILED, failed)
        self.failed.append(failed)

    def _by(self, role: Role, node: PlanNode, named: NodeChanged) -> NodeChanged:
        made = self.talk(role, node.id, self._part(node))
        result: JsonObject = made.model_dump(mode="json")
        told = result.get("rationale")
        note = told if isinstance(told, str) else canonical_json(result)
        return named.model_copy(update={"note": bounded(note, MAX_NOTE), "result": result})

    def _part(self, node: PlanNode) -> Sections:
        """What a role is told of its place in the plan."""
        plan = self.seat.run.plan
        if plan is None or len(plan.nodes) < 2:
            return {}
        titles = {each.id: each.title or each.tool or each.id for each in plan.nodes}
        done = "\n".join(f"- {titles[one.node]} ({one.role}): {one.note}" for one in self.done)
        return {"Done so far": done, "Your part of the plan": f"{node.id}: {titles[node.id]}"}

    def _call(self, node: PlanNode, named: NodeChanged) -> NodeChanged:
        """Run a tool's node as the skill that it names; an error there is the node's failure."""
        hands = self.hands()
        if node.kind != "tool" or node.tool not in hands.registry:
            wrong = f"Nobody here can do node {node.id} of the plan ({node.tool or node.role})."
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, wrong)
        past = turns_of(self.seat.desk.history, node.id)
        observed = past[-1].observation if past else None
        shown = past[-1].observed if past else ""
        if observed is None:
            observed, shown = self._run(node, hands)
        if observed.get("status") != "ok":
            raise CodePilotError(FailureKind.TOOL_FAILED, f"Node {node.id} of the plan failed: {bounded(shown, 500)}")
        return named.model_copy(update={"note": bounded(shown, MAX_NOTE), "result": {"status": "ok"}})

    def _run(self, node: PlanNode, hands: Hands) -> tuple[JsonObject, str]:
        self.seat.desk.raise_if_stopped()
        self.seat.require_turn()
        number = self.seat.turns + 1
        code = f"{node.tool}(**{node.args!r})"
        action: JsonObject = {"tool": node.tool, "args": node.args, "code": code, "node": node.id}
        self.seat.start_turn(TurnStarted(turn=number, action=action, usage=Usage(turns=1)))
        finished, kept = hands.run(code, number, ())
        recorded = self.seat.finish_turn(finished, kept)
        self.seat.require_progress(recorded)
        return recorded.observation, Turn(number, "", observation=recorded.observation).observed
