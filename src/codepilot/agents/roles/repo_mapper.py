"""RepoMapper: how the project builds and tests itself."""

from pathlib import Path

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Role, Sections
from codepilot.core.artifacts import RepoMap
from codepilot.core.events import State


def _inputs(desk: Desk) -> Sections:
    return {
        "Project": sections.project(desk),
        "Failing tests": "\n".join(desk.baseline.red[:20]),
        "Failures so far": sections.failures(desk),
        "The map so far": sections.written(desk.run.repo_map),
    }


REPO_MAPPER = Role(
    name="RepoMapper",
    purpose="You find out how a repository builds and tests itself and where its parts lie.",
    output=RepoMap,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
    state=State.MAP_REPO,
    outline_tokens=2000,
)
