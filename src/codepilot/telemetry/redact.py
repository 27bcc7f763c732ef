"""Secrets taken out of text before it is written where people look."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.secrets import SECRET_NAME, SHAPE, SHAPE_HINTS, URL_PASSWORD

MASK = "[redacted]"

_VALUE = r"(?=[^\s\"',;]{0,200}\d)[A-Za-z0-9._~+/=-]{16,}"
"""A long word with a digit in it: names of things seldom have one."""

_BEARER = re.compile(r"(?i)\b(bearer\s{1,3}|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?basic\s{1,3})" + _VALUE)
_ASSIGNMENT = (
    r"((?:api[_-]?key|access[_-]?key|secret|token|passwd|password)[\w-]{0,40}[\"']?\s{0,3}[:=]\s{0,3}[\"']?)" + _VALUE
)
_ASSIGNED = re.compile(f"(?i){_ASSIGNMENT}")
_RULES = (
    (SHAPE_HINTS, None, SHAPE, MASK),
    (("bearer", "basic"), None, _BEARER, rf"\1{MASK}"),
    (("key", "secret", "token", "passw"), re.compile(_ASSIGNMENT), _ASSIGNED, rf"\1{MASK}"),
    (("://",), None, URL_PASSWORD, rf"\1:{MASK}@"),
)
"""What looks like a secret, with the words of which it has one at least: most text has none, and is quickly done.

Where the words are common, the pattern is looked for in the folded text first: ignoring case takes seven times as
long.
"""
_SHORTEST_VALUE = 8


def redact(text: str) -> str:
    """`text` without anything that looks like a key, a token or a password."""
    folded = text.casefold()
    for hints, hint_pattern, pattern, replacement in _RULES:
        if not any(hint in folded for hint in hints):
            continue
        # Letters beyond ASCII may fold into several, which the pattern might not know.
        if hint_pattern is None or not text.isascii() or hint_pattern.search(folded):
            text = pattern.sub(replacement, text)
    return text


class Redactor:
    """Does what `redact` does, and removes `secrets` and the values of variables that are named like secrets."""

    def __init__(self, environ: Mapping[str, str] | None = None, secrets: Iterable[str] = ()) -> None:
        named = (value for name, value in (environ or {}).items() if SECRET_NAME.search(name))
        values = {value for value in (*named, *secrets) if len(value) >= _SHORTEST_VALUE}
        longest_first = sorted(values, key=lambda value: (-len(value), value))
        self._values = re.compile("|".join(map(re.escape, longest_first))) if values else None

    def __call__(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(MASK, text)
        return redact(text)


Clean = Callable[[str], str]


def redact_json(document: JsonObject, clean: Clean = redact) -> JsonObject:
    """`document` with every string in it clean, names too. To be done before it is encoded: what is cut out of JSON
    leaves none, and a secret that needs escapes is not found in it.
    """
    kept: JsonObject = {}
    for name, value in document.items():
        key, number = clean(name), len(kept)
        while key in kept:
            key, number = f"{clean(name)} {number}", number + 1
        kept[key] = redact_named(name, value, clean) if isinstance(value, str) else _redact_value(value, clean)
    return kept


def redact_named(name: str, text: str, clean: Clean = redact) -> str:
    """`text` without secrets. Its name may show that it is one."""
    head = f'"{name}": "'
    cleaned = clean(head + text)
    return cleaned.removeprefix(head) if cleaned.startswith(head) else clean(text)


def _redact_value(value: JsonValue, clean: Clean) -> JsonValue:
    match value:
        case str():
            return clean(value)
        case list():
            return [_redact_value(item, clean) for item in value]
        case dict():
            return redact_json(value, clean)
    return value
