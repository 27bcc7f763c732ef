"""The roles a chat model plays, one small declaration each, with its guidance beside it."""

from collections.abc import Mapping

from codepilot.agents.roles.implementer import IMPLEMENTER
from codepilot.agents.roles.planner import PLANNER
from codepilot.agents.roles.reflector import REFLECTOR
from codepilot.agents.roles.repo_mapper import REPO_MAPPER
from codepilot.agents.roles.reviewer import REVIEWER
from codepilot.agents.roles.role import Role, Sections, opening
from codepilot.core.events import State

ROLES: Mapping[State, Role] = {role.state: role for role in (REPO_MAPPER, PLANNER, IMPLEMENTER, REFLECTOR, REVIEWER)}

__all__ = ["ROLES", "Role", "Sections", "opening"]
