"""The paths that a plan allows a change to touch. Pure: it reads names only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from codepilot.core.plan import Plan

ALLOWED = "plan.allowed_areas"
FORBIDDEN = "plan.forbidden_areas"
MAX_CHOICES = 50
_CHOICE = re.compile(r"\{([^{}]*,[^{}]*)\}")


def outside(plan: Plan | None, paths: Iterable[str]) -> dict[str, str]:
    """The paths that the plan forbids, each with the rule that it breaks."""
    if plan is None:
        return {}
    broken = {}
    for path in paths:
        if any(covers(area, path) for area in plan.forbidden_areas):
            broken[path] = FORBIDDEN
        elif plan.allowed_areas and not any(covers(area, path) for area in plan.allowed_areas):
            broken[path] = ALLOWED
    return broken


def misnamed(area: str) -> bool:
    """True if an area can never cover a path of the repository: it is absolute or leaves it."""
    return area.strip().startswith(("/", "~")) or ".." in area.split("/")


def covers(area: str, path: str) -> bool:
    """True if an area covers a path: it is the file, a directory above it, or a pattern that matches it.

    `*` stays within one name, `**` spans directories, `{a,b}` is either; a pattern without a slash matches names at any
    depth. The time grows linearly with both lengths.
    """
    return any(_leads_to(names, path.split("/")) for names in _parsed(area))


def _leads_to(area: Sequence[re.Pattern[str] | None], path: Sequence[str]) -> bool:
    at = _through(area, {0})
    for name in path:
        if len(area) in at:
            return True
        passed = {place + 1 for place in at if (pattern := area[place]) is not None and pattern.fullmatch(name)}
        at = _through(area, passed | {place for place in at if area[place] is None})
    return len(area) in at


def _through(area: Sequence[re.Pattern[str] | None], places: set[int]) -> set[int]:
    """The places in an area, and those after a `**` that matches nothing."""
    for place, pattern in enumerate(area):
        if pattern is None and place in places:
            places.add(place + 1)
    return places


@cache
def _parsed(area: str) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    """The alternatives of an area, each a pattern for every name, with None for `**`."""
    return tuple(_patterns(one) for one in _alternatives(area.strip()))


def _patterns(area: str) -> tuple[re.Pattern[str] | None, ...]:
    names = [name for name in area.split("/") if name not in ("", ".")]
    if len(names) == 1 and "/" not in area and re.search(r"[*?]", area):
        names.insert(0, "**")
    return tuple(None if name == "**" else _pattern(name) for name in names)


def _pattern(name: str) -> re.Pattern[str]:
    """The pattern of one name. Pieces match at their first place, without backtracking."""
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", name))
    last = rest.pop() if rest else None
    middle = "".join(f"(?>.*?{part})" for part in rest)
    return re.compile(first + middle + ("" if last is None else f".*{last}"), re.DOTALL)


def _alternatives(area: str) -> list[str]:
    found = [area]
    for _ in range(MAX_CHOICES):
        choice = next((match for one in found if (match := _CHOICE.search(one))), None)
        if choice is None or len(found) > MAX_CHOICES:
            break
        text = choice.string
        found.remove(text)
        found += [text[: choice.start()] + each + text[choice.end() :] for each in choice[1].split(",")]
    return found
