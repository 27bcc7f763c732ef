"""The roles a chat model plays, one small declaration each, with its guidance beside it."""

from collections.abc import Mapping

from codepilot.agents.roles.implementer import IMPLEMENTER
from codepilot.agents.roles.planner import PLANNER
from codepilot.agents.roles.reflector import REFLECTOR
from codepilot.agents.roles.repo_mapper import REPO_MAPPER
from codepilot.agents.roles.reviewer import REVIEWER
from codepilot.agents.roles.role import Limits, Names, Role, Sections, opening
from codepilot.agents.roles.test_writer import TEST_WRITER
from codepilot.core.events import State

ROLES: Mapping[State, Role] = {role.state: role for role in (REPO_MAPPER, PLANNER, IMPLEMENTER, REFLECTOR, REVIEWER)}
"""Who plays each state."""

PARTS: tuple[Role, ...] = (IMPLEMENTER, TEST_WRITER)
"""Who may have a node of a plan; installed packages add to these."""

__all__ = ["PARTS", "ROLES", "Limits", "Names", "Role", "Sections", "opening"]
