"""The paths that a plan allows a change to touch. Pure: it reads names only."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from codepilot.core.globs import covers, guards, leads_into
from codepilot.core.plan import Plan

ALLOWED = "plan.allowed_areas"
FORBIDDEN = "plan.forbidden_areas"


def outside(
    plan: Plan | None, paths: Iterable[str], links: Collection[str] = (), *, enforce_allowed: bool = True
) -> dict[str, str]:
    """The paths that the plan forbids, each with the rule that it breaks. `links` are those that become links.

    With `enforce_allowed` false only the forbidden areas count.
    """
    if plan is None:
        return {}
    broken = {}
    for path in paths:
        linked = path in links
        if any(guards(area, path) or (linked and leads_into(area, path)) for area in plan.forbidden_areas):
            broken[path] = FORBIDDEN
        elif enforce_allowed and plan.allowed_areas and not any(covers(area, path) for area in plan.allowed_areas):
            broken[path] = ALLOWED
    return broken


def misnamed(area: str) -> bool:
    """True if an area can never cover a path of the repository: it is absolute or leaves it."""
    return area.strip().startswith(("/", "~")) or ".." in area.split("/")
