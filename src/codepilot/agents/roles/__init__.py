"""The roles a chat model plays, one small declaration and its guidance each."""

from codepilot.agents.roles.build import BUILD_PARTS, BUILD_ROLES, TESTER
from codepilot.agents.roles.builtin import PARTS, ROLES, all_parts
from codepilot.agents.roles.critic import CRITIC
from codepilot.agents.roles.role import Limits, Names, Role, Sections, opening

__all__ = [
    "BUILD_PARTS",
    "BUILD_ROLES",
    "CRITIC",
    "PARTS",
    "ROLES",
    "TESTER",
    "Limits",
    "Names",
    "Role",
    "Sections",
    "all_parts",
    "opening",
]
