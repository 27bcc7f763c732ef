"""Patterns of paths: files, directories, `*`, `**` and `{a,b}`. Standard library only: shipped into the sandbox."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

MAX_CHOICES = 50
_WILDCARD = re.compile(r"[*?]")
HFS_IGNORED = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Characters that HFS+ ignores when it compares names."""
_CHOICE = re.compile(r"\{([^{},]*,[^{}]*)\}")


def covers(area: str, path: str) -> bool:
    """True if an area covers a path: it is the file, a directory above it, or a pattern that matches it.

    `*` stays within one name, `**` spans directories, `{a,b}` is either; a pattern without a slash matches names at any
    depth. The time grows linearly with both lengths.
    """
    return any(_leads_to(names, path.split("/")) for names in _parsed(area))


def guards(area: str, path: str) -> bool:
    """True if an area covers a path here or on a file system that treats more names as equal.

    There a name without a wildcard is the same in any case, in any Unicode form, and with dots or spaces at its end.
    """
    if covers(area, path):
        return True
    same = [_alike(name) for name in path.split("/")]
    return any(_leads_to(names, same) for names in _parsed(area, alike=True))


def leads_into(area: str, path: str) -> bool:
    """True if an area names paths below this one, so that a link here would make other files appear in it."""
    names = [_alike(name) for name in path.split("/")]
    for one in _parsed(area, alike=True):
        first = list(takewhile(lambda pattern: pattern is not None, one))
        if len(names) <= len(first) and len(names) < len(one):
            pairs = zip(first, names, strict=False)
            if all(pattern is not None and pattern.fullmatch(name) for pattern, name in pairs):
                return True
    return False


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


@lru_cache(10_000)
def _parsed(area: str, *, alike: bool = False) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    """The alternatives of an area, each a pattern for every name, with None for `**`."""
    return tuple(_patterns(one, alike) for one in _alternatives(area.strip()))


def _patterns(area: str, alike: bool) -> tuple[re.Pattern[str] | None, ...]:
    names = [name for name in area.split("/") if name not in ("", ".")]
    if len(names) == 1 and "/" not in area and _WILDCARD.search(area):
        names.insert(0, "**")
    made = [
        None if name == "**" else _same(name) if alike and not _WILDCARD.search(name) else _pattern(name)
        for name in names
    ]
    return tuple(made)


def _same(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(_alike(name)), re.IGNORECASE)


def _alike(name: str) -> str:
    """One spelling for the names that some file system takes for the same, but for their case."""
    if not name.isascii():
        from unicodedata import normalize

        name = normalize("NFC", name.translate(HFS_IGNORED))
    return name.rstrip(" .") or name


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
