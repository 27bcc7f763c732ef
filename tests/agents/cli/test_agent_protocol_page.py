"""docs/agent-protocol.md: its tables name the real lines and fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from codepilot.agents.cli.json_lines import JsonLinesConversation, ProgramLine, start_line
from codepilot.agents.cli.protocol import AgentMessage, AgentStart

PAGE = (Path(__file__).parents[3] / "docs" / "agent-protocol.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, set[str]]:
    """The fields of each type in the table below a heading."""
    lines = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| `")]
    return {name: set(re.findall(r"`(\w+)`", fields)) for kinds, fields, _ in cells for name in named(kinds)}


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_line_of_a_program_is_on_the_page_with_its_fields() -> None:
    union = get_args(ProgramLine)[0]
    lines = {
        get_args(one.model_fields["type"].annotation)[0]: set(one.model_fields) - {"type"} for one in get_args(union)
    }
    assert rows("What the program says") == lines


def test_every_line_to_a_program_is_on_the_page() -> None:
    documented = rows("What CodePilot says")
    kinds = set(get_args(AgentMessage.model_fields["type"].annotation))
    assert set(documented) == kinds | {"start", "permission_answer", "interrupt"}
    start = AgentStart(start_process=None, workspace="", directory="/w", prompt="p")  # type: ignore[arg-type]
    assert documented["start"] == set(start_line(start)) - {"type"}
    [answer] = JsonLinesConversation("me", {}).answer("p1", True, "")
    assert documented["permission_answer"] == set(answer) - {"type"}
    sent = JsonLinesConversation("me", {}).encode(AgentMessage(type="info", content="x"))
    common = set(re.findall(r"`(\w+)`", PAGE.split("\nMessages have ")[1].split("\n")[0]))
    assert common == set(sent.lines[0]) - {"type"}
