"""Roles that installed packages add, through the entry point group `codepilot.roles`.

An entry point names a `Role` that plays a part of IMPLEMENT; plans reach it by its name, and nothing else must know it.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points

from codepilot.agents.roles import PARTS
from codepilot.agents.roles.role import Role
from codepilot.core.events import State

GROUP = "codepilot.roles"

_log = logging.getLogger(__name__)


def all_parts() -> tuple[Role, ...]:
    """The roles that may have a node of a plan: the built-in ones and those of every installed package."""
    found = list(PARTS)
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            found.append(_usable(point.load(), found))
        except Exception as error:  # noqa: BLE001  (it is anybody's code)
            _log.warning("The role %s = %s cannot be used: %s", point.name, point.value, error)
    return tuple(found)


def _usable(role: object, known: list[Role]) -> Role:
    if not isinstance(role, Role):
        raise TypeError(f"it is a {type(role).__name__}, not a Role")
    if not role.name.strip() or not role.name.isprintable():
        raise ValueError(f"its name is {role.name!r}")
    if role.state is not State.IMPLEMENT:
        raise ValueError(f"it plays {role.state}; installed roles play parts of {State.IMPLEMENT}")
    if role.name in [other.name for other in known]:
        raise ValueError(f"there is a role {role.name} already")
    role.template.read_text(encoding="utf-8")
    role.schema()
    return role
