"""The plan is drawn with every text escaped, and described in lines."""

from __future__ import annotations

from xml.etree import ElementTree

from codepilot.cli.plan import plan_lines
from codepilot.core.children import Child
from codepilot.core.events import ChildJoined
from codepilot.core.plan import NodeStatus, Plan, PlanNode
from codepilot.core.task import Budget
from codepilot.telemetry import plan_parts
from codepilot.views.plan import plan_drawing

EVIL = "</text><script>alert(1)</script>"
PLAN = Plan(
    nodes=(
        PlanNode(id="a", title=EVIL, status=NodeStatus.SUCCEEDED),
        PlanNode(id="b", title="parse\x1b[31m it", status=NodeStatus.RUNNING),
        PlanNode(id="c", title="join", depends_on=("a", "b")),
    )
)
JOINED = ChildJoined(child_run_id="r-1-c1", node="a", outcome="conflict", tree="t", conflicts=("x.py",))
CHILD = Child(run_id="r-1-c1", node="a", tree="t", budget=Budget(), joined=JOINED)


def test_the_drawing_is_an_image_whose_texts_are_escaped() -> None:
    drawn = str(plan_drawing(plan_parts(PLAN, (CHILD,)), lambda text: text.replace("\x1b", "")))
    assert "<script" not in drawn
    root = ElementTree.fromstring(drawn)
    assert [box.get("class") for box in root.iter("g")] == ["good", "live", "soft"]
    assert len(list(root.iter("path"))) == 2
    assert root.get("aria-label") == "The plan: 1 of 3 parts done"


def test_a_plan_of_one_part_is_not_drawn() -> None:
    one = plan_parts(Plan(nodes=PLAN.nodes[:1]))
    assert (str(plan_drawing(one, str)), plan_lines(one)) == ("", [])


def test_the_lines_show_how_each_part_stands() -> None:
    lines = [line.plain for line in plan_lines(plan_parts(PLAN, (CHILD,)))]
    assert lines[0].startswith("   ✓ a: ")
    assert lines[0].endswith("c1  again after a conflict (1)")
    assert "\x1b" not in lines[1]
    assert lines[2] == "     · c: join  after a, b"
