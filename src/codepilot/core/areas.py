"""Which paths a plan lets a change touch. Pure: it sees names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from codepilot.core.plan import Plan

ALLOWED = "plan.allowed_areas"
FORBIDDEN = "plan.forbidden_areas"


def outside(plan: Plan | None, paths: Iterable[str]) -> dict[str, str]:
    """The paths that the plan does not let be changed, each with the rule it breaks."""
    if plan is None:
        return {}
    broken = {}
    for path in paths:
        if any(covers(area, path) for area in plan.forbidden_areas):
            broken[path] = FORBIDDEN
        elif plan.allowed_areas and not any(covers(area, path) for area in plan.allowed_areas):
            broken[path] = ALLOWED
    return broken


def covers(area: str, path: str) -> bool:
    """Whether an area holds a path: the file itself, all below a directory, or what a pattern matches.

    `*` stays within one name and `**` goes through directories; a pattern without a slash is for names at any depth.
    """
    return _pattern(area).fullmatch(path) is not None


@cache
def _pattern(area: str) -> re.Pattern[str]:
    area = re.sub(r"^(?:\./)+|/+$", "", area.strip())
    if area in ("", ".", "*", "**"):
        return re.compile(".*", re.DOTALL)
    anywhere = "" if "/" in area or not re.search(r"[*?]", area) else r"(?:.*/)?"
    parts = re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", area)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        anywhere + "".join(meanings.get(part) or re.escape(part) for part in parts) + "(?:/.*)?", re.DOTALL
    )
