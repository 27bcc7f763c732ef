"""The role that answers a question about a repository. It only reads."""

from __future__ import annotations

from pathlib import Path

from codepilot.agents.roles import sections
from codepilot.agents.roles.builtin import shows
from codepilot.agents.roles.role import Role
from codepilot.core.artifacts import Answer
from codepilot.core.events import State

ANSWERER = Role(
    name="Answerer",
    purpose="You answer a question about a repository from what its files say.",
    output=Answer,
    temperature=0.2,
    max_tokens=4096,
    template=Path(__file__).with_name("answerer.md"),
    inputs=shows({"Constraints": sections.constraints, "Project": sections.project}),
    state=State.IMPLEMENT,
    outline_tokens=2000,
)
