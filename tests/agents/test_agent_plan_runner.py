"""Plans are walked node by node, by roles and tools, within their areas; what is done is done once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codepilot.agents import CodeActAgent
from codepilot.agents.roles import all_parts
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.breaker import SAME_CALL_LIMIT
from codepilot.core.events import EventDraft, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.plan import Plan, PlanNode
from codepilot.core.task import Budget
from codepilot.models import ScriptedModel

if TYPE_CHECKING:
    from conftest import Harness

TARGET = "tests/test_price.py::test_discount"
FIX = "text = read_file('shop/price.py')\nwrite_file('shop/price.py', text.replace('// 10', '// 100'))"
BODY = "from shop.price import total\n\n\ndef test_half():\n    assert total([10], 50) == 5\n"
TEST = f"create_file('tests/test_percent.py', {BODY!r})"
FIXED = '<result>{"rationale": "A percentage is a hundredth.", "confidence": 0.9}</result>'
WRITTEN = '<result>{"tests": ["tests/test_percent.py::test_half"], "rationale": "half of ten"}</result>'


def act(code: str) -> str:
    return f"```python\n{code}\n```"


def planned(harness: Harness, *nodes: PlanNode, **more: tuple[str, ...]) -> None:
    task = harness.run.task.model_copy(update={"budget": Budget(parallel=1)})
    harness.run = harness.run.model_copy(update={"task": task, "plan": Plan(nodes=nodes, **more)})  # type: ignore[arg-type]


IMPLEMENT = PlanNode(id="fix", title="divide by a hundred")
TESTS = PlanNode(id="tests", title="a regression test", role="TestWriter", depends_on=("fix",))


def walked(harness: Harness) -> list[tuple[EventType, str, str]]:
    kinds = (EventType.NODE_STARTED, EventType.NODE_SUCCEEDED, EventType.NODE_FAILED)
    return [(e.type, e.data.node, e.data.role) for e in harness.events if e.type in kinds]  # type: ignore[attr-defined]


def test_each_node_is_done_by_its_role_in_a_conversation_of_its_own(harness: Harness) -> None:
    planned(harness, TESTS, IMPLEMENT)
    model = ScriptedModel([act(FIX), FIXED, act(TEST), WRITTEN])
    patch = CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)
    assert (patch.rationale, patch.confidence) == ("A percentage is a hundredth.", 0.9)
    assert harness.passes()
    assert [len(request) for request in model.requests] == [2, 4, 2, 4]
    assert "You are the Implementer" in model.requests[0][0].content
    system, task = model.requests[2]
    assert "You are the TestWriter" in system.content
    assert "divide by a hundred (Implementer): A percentage is a hundredth." in task.content
    assert "tests: a regression test" in task.content
    assert walked(harness) == [
        (EventType.NODE_STARTED, "fix", "Implementer"),
        (EventType.NODE_SUCCEEDED, "fix", "Implementer"),
        (EventType.NODE_STARTED, "tests", "TestWriter"),
        (EventType.NODE_SUCCEEDED, "tests", "TestWriter"),
    ]
    assert [event.data.turn for event in harness.of(EventType.TURN_STARTED)] == [1, 2, 3, 4]  # type: ignore[attr-defined]


class Crash(Exception):
    """Stands for a killed worker."""


@pytest.mark.parametrize("kind", [EventType.NODE_STARTED, EventType.TURN_STARTED, EventType.TURN_FINISHED])
def test_a_walk_goes_on_with_the_node_it_was_at(harness: Harness, kind: EventType) -> None:
    planned(harness, IMPLEMENT, TESTS)
    number = {EventType.NODE_STARTED: 2, EventType.TURN_STARTED: 4, EventType.TURN_FINISHED: 2}[kind]
    replies = [act(FIX), FIXED, act(TEST), WRITTEN]
    seen = 0

    def on_record(draft: EventDraft) -> None:
        nonlocal seen
        seen += draft.type is kind
        if seen == number:
            raise Crash

    harness.on_record = on_record
    with pytest.raises(Crash):
        CodeActAgent(ScriptedModel(replies)).perform(State.IMPLEMENT, harness.context())
    harness.on_record = lambda draft: None
    left = {
        EventType.NODE_STARTED: replies[2:],
        EventType.TURN_STARTED: replies[3:],
        EventType.TURN_FINISHED: replies[2:],
    }
    model = ScriptedModel(left[kind])
    patch = CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)
    assert patch.rationale == "A percentage is a hundredth."
    assert harness.passes()
    for what in (EventType.NODE_STARTED, EventType.NODE_SUCCEEDED):
        assert [node for kind, node, _ in walked(harness) if kind is what] == ["fix", "tests"]


def test_a_tools_node_is_one_call_of_a_skill(harness: Harness) -> None:
    look = PlanNode(id="look", kind="tool", tool="read_file", args={"path": "shop/price.py"})
    planned(harness, look, PlanNode(id="fix", title="mend it", depends_on=("look",)))
    model = ScriptedModel([act(FIX), FIXED])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "amount * discount // 10" in model.requests[0][1].content
    first = harness.of(EventType.TURN_STARTED)[0].data.action  # type: ignore[attr-defined]
    assert (first["tool"], first["args"]) == ("read_file", {"path": "shop/price.py"})


def test_a_tool_that_fails_is_the_nodes_failure(harness: Harness) -> None:
    planned(harness, PlanNode(id="look", kind="tool", tool="read_file", args={"path": "absent.py"}), IMPLEMENT)
    with pytest.raises(CodePilotError, match=r"Node look of the plan failed") as caught:
        CodeActAgent(ScriptedModel([])).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.TOOL_FAILED
    failed = harness.of(EventType.NODE_FAILED)[0].data
    assert failed.failure.message == caught.value.failure.message  # type: ignore[attr-defined]


def test_a_node_that_failed_stays_failed_after_a_crash(harness: Harness) -> None:
    planned(harness, PlanNode(id="look", kind="tool", tool="read_file", args={"path": "absent.py"}), IMPLEMENT)
    for _ in range(2):
        with pytest.raises(CodePilotError, match=r"Node look of the plan failed"):
            CodeActAgent(ScriptedModel([])).perform(State.IMPLEMENT, harness.context())
    assert len(harness.of(EventType.NODE_FAILED)) == 1


def test_a_halted_part_is_reported_after_the_rest_also_by_another_life(harness: Harness) -> None:
    """The worker dies between the node that was halted and the next one."""
    lost = PlanNode(id="lost", title="look it up")
    planned(harness, lost, PlanNode(id="after", depends_on=("lost",)), IMPLEMENT)
    look = "try:\n    read_file('absent.py')\nexcept Exception:\n    print({})"
    looks = [act(look.format(number)) for number in range(SAME_CALL_LIMIT)]

    def on_record(draft: EventDraft) -> None:
        if draft.type is EventType.NODE_STARTED and draft.data.node == "fix":  # type: ignore[attr-defined]
            raise Crash

    harness.on_record = on_record
    with pytest.raises(Crash):
        CodeActAgent(ScriptedModel(looks)).perform(State.IMPLEMENT, harness.context(turns_per_step=30))
    harness.on_record = lambda draft: None
    with pytest.raises(CodePilotError, match=r"A part of the plan was halted at lost \(look it up\)") as caught:
        CodeActAgent(ScriptedModel([act(FIX), FIXED])).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.REPEATED_FAILURE
    assert caught.value.failure.details["blocked"] == ["after"]
    assert [(kind, node) for kind, node, _ in walked(harness)] == [
        (EventType.NODE_STARTED, "lost"),
        (EventType.NODE_FAILED, "lost"),
        (EventType.NODE_STARTED, "fix"),
        (EventType.NODE_SUCCEEDED, "fix"),
    ]
    assert harness.passes()


@pytest.mark.parametrize(
    ("plan", "wrong"),
    [
        (
            {"nodes": [{"id": "a", "role": "Poet"}]},
            "node a: there is no role 'Poet'; use one of Implementer, TestWriter",
        ),
        ({"nodes": [{"id": "a", "kind": "tool", "tool": "sing"}, {"id": "b"}]}, "node a: there is no tool 'sing'"),
        ({"nodes": [{"id": "a", "kind": "tool", "tool": "git_diff"}]}, "at least one must be of kind agent"),
    ],
)
def test_a_plan_that_nobody_could_carry_out_is_answered(harness: Harness, plan: dict[str, object], wrong: str) -> None:
    model = ScriptedModel([f"<result>{json.dumps(plan)}</result>", '<result>{"nodes": [{"id": "a"}]}</result>'])
    made = CodeActAgent(model).perform(State.PLAN, harness.context(State.PLAN))
    assert isinstance(made, Plan)
    assert wrong in model.requests[1][-1].content


def test_a_change_outside_the_plans_areas_goes_back_to_the_agent(harness: Harness) -> None:
    planned(harness, IMPLEMENT, allowed_areas=("shop/",), forbidden_areas=("shop/__init__.py",))
    astray = "write_file('shop/__init__.py', 'x = 1')\ncreate_file('notes.txt', 'hello')"
    undo = "import os\nwrite_file('shop/__init__.py', '')\nos.remove('notes.txt')"
    model = ScriptedModel([act(FIX), act(astray), FIXED, act(undo), FIXED])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    seen = model.requests[3][-1].content
    assert "- notes.txt (plan.allowed_areas)" in seen
    assert "- shop/__init__.py (plan.forbidden_areas)" in seen
    (blocked,) = harness.of(EventType.GUARDRAIL_BLOCKED)
    assert blocked.data.paths == ("notes.txt", "shop/__init__.py")  # type: ignore[attr-defined]
    assert "notes.txt" not in harness.patch()


def test_the_third_change_outside_the_areas_ends_the_run(harness: Harness) -> None:
    planned(harness, IMPLEMENT, allowed_areas=("docs/",))
    with pytest.raises(CodePilotError, match="3 forbidden actions") as caught:
        CodeActAgent(ScriptedModel([act(FIX), FIXED, FIXED, FIXED])).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.POLICY_VIOLATION


ROLE_OF_OTHERS = """
from pathlib import Path

from codepilot.agents import Role
from codepilot.core.contract import Contract
from codepilot.core.task import Capability


class Documented(Contract):
    pages: tuple[str, ...]


DOCUMENTER = Role(
    name="Documenter",
    purpose="You write down what changed.",
    output=Documented,
    temperature=0.7,
    max_tokens=512,
    template=Path(__file__).with_name("guidance.md"),
    inputs=lambda context: {"Change": "see git_diff()"},
    capability=Capability.WRITE_WITH_DIFF,
    skills=("read_file", "write_file"),
)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of others that adds a role through its entry point."""
    site = tmp_path / "site"
    about = site / "documenting-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "documenting.py").write_text(ROLE_OF_OTHERS, encoding="utf-8")
    (site / "guidance.md").write_text("Keep it to one line.\n", encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: documenting\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[codepilot.roles]\ndocs = documenting:DOCUMENTER\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "documenting", raising=False)


@pytest.mark.usefixtures("installed")
def test_a_role_from_another_package_has_a_part_of_the_plan_and_nothing_else_knows_it(harness: Harness) -> None:
    asked: list[tuple[float, int]] = []

    class Noting(ScriptedModel):
        def reply(self, *args: object, **more: object) -> object:  # type: ignore[override]
            asked.append((more["temperature"], more["max_tokens"]))  # type: ignore[arg-type]
            return super().reply(*args, **more)  # type: ignore[arg-type]

    planned(harness, IMPLEMENT, PlanNode(id="docs", role="Documenter", depends_on=("fix",)))
    page = act("write_file('CHANGES.md', 'Discounts are percentages.')")
    model = Noting([act(FIX), FIXED, page, '<result>{"pages": ["CHANGES.md"]}</result>'])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "Discounts are percentages." in harness.patch()
    assert asked == [(0.2, 4096), (0.2, 4096), (0.7, 512), (0.7, 512)]
    system = model.requests[2][0].content
    assert "Keep it to one line." in system
    assert "write_file(" in system
    assert "apply_patch(" not in system
    done = harness.of(EventType.NODE_SUCCEEDED)[1].data
    assert done.result == {"pages": ["CHANGES.md"]}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("installed")
def test_planners_are_shown_the_roles_there_are(harness: Harness) -> None:
    model = ScriptedModel(['<result>{"nodes": [{"id": "a", "role": "Documenter"}]}</result>'])
    CodeActAgent(model).perform(State.PLAN, harness.context(State.PLAN))
    assert "Documenter: You write down what changed." in model.requests[0][1].content


def test_a_plan_with_areas_that_lie_nowhere_is_refused_at_once(harness: Harness) -> None:
    lost = {"nodes": [{"id": "fix"}], "allowed_areas": ["/repo/shop"], "forbidden_areas": ["shop/../tests"]}
    found = {"nodes": [{"id": "fix"}], "allowed_areas": ["shop"]}
    model = ScriptedModel([f"<result>{json.dumps(plan)}</result>" for plan in (lost, found)])
    plan = CodeActAgent(model).perform(State.PLAN, harness.context(State.PLAN))
    assert isinstance(plan, Plan)
    assert plan.allowed_areas == ("shop",)
    assert model.requests[1][-1].content.count("relative to the root of the repository") == 2


def test_tools_of_a_plan_take_turns_of_the_step_and_stop_where_it_must(harness: Harness) -> None:
    nodes = [PlanNode(id=f"n{n}", kind="tool", tool="read_file", args={"path": "shop/price.py"}) for n in range(4)]
    planned(harness, *nodes, IMPLEMENT)
    with pytest.raises(CodePilotError) as caught:
        CodeActAgent(ScriptedModel([])).perform(State.IMPLEMENT, harness.context(turns_per_step=3))
    assert caught.value.kind is FailureKind.BUDGET_EXCEEDED
    assert len(harness.of(EventType.TURN_STARTED)) == 3


def test_a_tool_of_a_plan_may_be_one_that_the_host_answers(harness: Harness) -> None:
    search = PlanNode(id="search", kind="tool", tool="find_repairs", args={"tests": [TARGET], "limit": 1})
    planned(harness, search, IMPLEMENT)
    model = ScriptedModel([act(FIX), FIXED])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "shop/price.py" in model.requests[0][1].content.partition("# Done so far")[2]


def test_a_step_switches_to_the_other_model_once_whatever_nodes_it_has(harness: Harness) -> None:
    planned(harness, IMPLEMENT, TESTS)
    first = ScriptedModel(["?", "?", "?"], name="first")
    second = ScriptedModel([act(FIX), FIXED, "?", "?", "?"], name="second")
    with pytest.raises(CodePilotError) as caught:
        CodeActAgent(first, fallback=second).perform(State.IMPLEMENT, harness.context(turns_per_step=30))
    assert caught.value.kind is FailureKind.MODEL_BAD_REPLY
    assert "second" in str(caught.value)
    assert len(harness.of(EventType.MODEL_SWITCHED)) == 1


def test_a_role_that_cannot_be_played_is_left_out_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = "import dataclasses, pathlib\nfrom codepilot.agents.roles.builtin import IMPLEMENTER\n"
    made = {
        "nameless": "dataclasses.replace(IMPLEMENTER, name='')",
        "hidden": "dataclasses.replace(IMPLEMENTER, name='A\\nB')",
        "wordless": "dataclasses.replace(IMPLEMENTER, name='C', template=pathlib.Path('/nowhere.md'))",
        "shapeless": "dataclasses.replace(IMPLEMENTER, name='D', output=int)",
        "whole": "dataclasses.replace(IMPLEMENTER, name='E')",
    }
    (tmp_path / "odd_roles.py").write_text(lines + "".join(f"{name} = {value}\n" for name, value in made.items()))
    info = tmp_path / "odd_roles-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: odd-roles\nVersion: 1\n")
    points = [*(f"{name} = odd_roles:{name}" for name in made), "absent = no_such_package:ROLE"]
    (info / "entry_points.txt").write_text("[codepilot.roles]\n" + "\n".join(points))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [role.name for role in all_parts()] == ["Implementer", "TestWriter", "E"]
    assert len([record for record in caplog.records if "cannot be used" in record.message]) == 5
