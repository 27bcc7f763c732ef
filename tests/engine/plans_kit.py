"""A project with three independent bugs, and a scripted model that mends each in a part of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from engine_kit import APPROVE, MAP, code, commit, result

from codepilot.models import Message, ScriptedModel

SHAPES = {
    "area": ("def area(width, height):\n    return width + height\n", "width + height", "width * height"),
    "double": ("def double(number):\n    return number\n", "return number", "return 2 * number"),
    "negate": ("def negate(number):\n    return number\n", "return number", "return -number"),
}
TEST = """import unittest

from area import area
from double import double
from negate import negate


class PartsTest(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(3, 4), 12)

    def test_double(self):
        self.assertEqual(double(4), 8)

    def test_negate(self):
        self.assertEqual(negate(4), -4)
"""


def make_project(project: Path) -> Path:
    project.mkdir()
    for name, (text, _, _) in SHAPES.items():
        (project / f"{name}.py").write_text(text, encoding="utf-8")
    (project / "test_parts.py").write_text(TEST, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    commit(project, "first")
    return project


def plan_of(*nodes: Mapping[str, object]) -> str:
    return result(nodes=list(nodes), root_cause="three bugs", approach="one after the other")


THREE = plan_of(*({"id": name, "title": f"mend {name}"} for name in SHAPES))
REFLECTED = result(root_cause="a part is wrong", fix_hypothesis="mend it", confidence="low")


def edit(path: str, old: str, new: str) -> str:
    return code(f"write_file({path!r}, read_file({path!r}).replace({old!r}, {new!r}, 1))\nprint(read_file({path!r}))")


def reported(node: str) -> str:
    return result(rationale=f"mended {node}", confidence=0.9)


def mended(node: str) -> list[str]:
    """The turns that mend a part."""
    _, old, new = SHAPES[node]
    return [edit(f"{node}.py", old, new), reported(node)]


def rightly(node: str, turn: int) -> str:
    return mended(node)[min(turn, 1)]


def node_of(messages: Sequence[Message]) -> str:
    """The node of the plan that a conversation is about."""
    found = re.search(r"# Your part of the plan\n(\S+):", messages[1].content)
    assert found is not None
    return found[1]


def planned(
    work: Callable[[str, int], str] = rightly, plan: str = THREE, others: Mapping[str, str] | None = None
) -> ScriptedModel:
    """A model that answers by role and, for parts, by node and turn, so that the order of calls does not matter."""
    replies = {"RepoMapper": MAP, "Planner": plan, "Reviewer": APPROVE, "Reflector": REFLECTED, **(others or {})}

    def reply(messages: Sequence[Message]) -> str:
        role = messages[0].content.partition("You are the ")[2].partition(".")[0]
        turn = sum("interrupted" not in one.content for one in messages[2:] if one.role == "user")
        return work(node_of(messages), turn) if role == "Implementer" else replies[role]

    return ScriptedModel(reply)
