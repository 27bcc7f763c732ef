"""The roles a chat model plays, one small declaration each, with its guidance beside it."""

from codepilot.agents.roles.builtin import PARTS, ROLES, all_parts
from codepilot.agents.roles.role import Limits, Names, Role, Sections, opening

__all__ = ["PARTS", "ROLES", "Limits", "Names", "Role", "Sections", "all_parts", "opening"]
