"""Reads which framework a package's `test` script runs. Python 3.8 and newer, standard library alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAMEWORKS = ("jest", "vitest", "mocha")
PLACEHOLDER = "no test specified"
MAX_HOPS = 5

_LAST = re.compile(r"^(?P<before>.*(?:&&|;|\|\|))?(?P<last>.*)$", re.DOTALL)
_DELEGATED = re.compile(
    r"^\s*(?:npm|pnpm|yarn)\s+(?:run(?:-script)?\s+)?(?:-s\s+|--silent\s+)?(?P<script>[\w:.-]+)\s*(?:--\s.*)?$"
)
_NODE_TEST = re.compile(r"(?:^|\s)node(?:js)?\s(?:.*\s)?--test(?=\s|$)")
_VALUED = frozenset(
    {"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions", "--env-file"}
)


class Script(NamedTuple):
    """The framework behind a script, and how many other scripts lie between."""

    framework: str
    hops: int


def read(scripts: Mapping[str, object], name: str = "test") -> Script | None:
    """The framework that a script runs in its last command, or None if it is unknown."""
    for hops in range(MAX_HOPS):
        text = scripts.get(name)
        if not isinstance(text, str):
            return None
        last = last_command(text)
        if _NODE_TEST.search(last):
            return Script("node", hops)
        found = [word for word in FRAMEWORKS if re.search(rf"(?:^|[\s/=]){word}(?:\.c?js)?(?=\s|$)", last)]
        if found:
            return Script(found[0], hops)
        delegated = _DELEGATED.match(last)
        if delegated is None:
            return None
        name = delegated["script"]
    return None


def last_command(text: str) -> str:
    parts = _LAST.match(text)
    return parts["last"] if parts else text


def without_files(text: str) -> str:
    """A `node --test` script without the files it names: the last of its commands keeps its options alone."""
    parts = _LAST.match(text)
    if parts is None:
        return text
    kept, valued, seen = [], False, False
    for word in parts["last"].split():
        if valued or word.startswith("-") or not seen:
            kept.append(word)
        valued = word in _VALUED
        seen = seen or word == "--test"
    return f"{parts['before'] or ''} {' '.join(kept)}".strip()


def has_tests(scripts: Mapping[str, object]) -> bool:
    text = scripts.get("test")
    return isinstance(text, str) and bool(text.strip()) and PLACEHOLDER not in text
