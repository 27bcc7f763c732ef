"""Which paths a plan lets a change touch. Pure: it sees names alone."""

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


def misnamed(area: str) -> bool:
    """Whether an area can never hold a path of the repository, and so would mean something else than it says."""
    return area.strip().startswith(("/", "~")) or ".." in area.split("/")


def covers(area: str, path: str) -> bool:
    """Whether an area holds a path: the file itself, all below a directory, or what a pattern matches.

    `*` stays within one name, `**` goes through directories, `{a,b}` is either; a pattern without a slash is for names
    at any depth. Takes time in proportion to both lengths, whatever they hold.
    """
    return any(_leads_to(names, path.split("/")) for names in _meant(area))


def _leads_to(area: Sequence[re.Pattern[str] | None], path: Sequence[str]) -> bool:
    at = _through(area, {0})
    for name in path:
        if len(area) in at:
            return True
        passed = {place + 1 for place in at if (pattern := area[place]) is not None and pattern.fullmatch(name)}
        at = _through(area, passed | {place for place in at if area[place] is None})
    return len(area) in at


def _through(area: Sequence[re.Pattern[str] | None], places: set[int]) -> set[int]:
    """The places in an area, and those behind directories that need not be there."""
    for place, pattern in enumerate(area):
        if pattern is None and place in places:
            places.add(place + 1)
    return places


@cache
def _meant(area: str) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    """What an area is, by alternatives: a pattern for each name, None for any directories."""
    return tuple(_patterns(one) for one in _alternatives(area.strip()))


def _patterns(area: str) -> tuple[re.Pattern[str] | None, ...]:
    names = [name for name in area.split("/") if name not in ("", ".")]
    if len(names) == 1 and "/" not in area and re.search(r"[*?]", area):
        names.insert(0, "**")
    return tuple(None if name == "**" else _pattern(name) for name in names)


def _pattern(name: str) -> re.Pattern[str]:
    """One name. Each piece is taken where it is first found, which is enough and needs no second try."""
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
        told = choice.string
        found.remove(told)
        found += [told[: choice.start()] + each + told[choice.end() :] for each in choice[1].split(",")]
    return found
