"""Texts like those that a function was seen to take: other words, numbers and characters, the same rules.

What holds for all of the examples (case, digits, brackets, shape) holds for what is made.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Sequence
from functools import lru_cache

FEW = 3
"""How many values must agree before what they share is taken for a rule."""
TRIES = 40
_LONGEST = 40
_RUNS = re.compile(r"[0-9]+|[A-Za-z]+|[^0-9A-Za-z]+")
_OPEN, _CLOSE = "([{<", ")]}>"


def texts(values: Sequence[str], chance: random.Random) -> Callable[[], str]:
    rules = [rule for rule in _TEXT_RULES if len(values) >= FEW and all(rule(value) for value in values)]
    patterns = {_pattern(value) for value in values}
    if len(values) >= FEW and len(patterns) == 1 and len(next(iter(patterns))) > 1:
        only = next(iter(patterns))
        rules.append(lambda text: _pattern(text) == only)
    if len(values) >= FEW and len({len(value) for value in values}) == 1:
        length = len(values[0])
        rules.append(lambda text: len(text) == length)
    if all(values):
        rules.append(bool)
    alphabet = sorted({char for value in values for char in value})
    words = list(dict.fromkeys(word for value in values for word in value.split(" ") if word))[:400]
    spaced = sum(" " in value.strip() for value in values) * 2 >= len(values)

    runs = list(dict.fromkeys(run for value in values for run in _RUNS.findall(value)))[:400]

    def edit(text: str) -> str:
        if chance.random() < 0.4 and len(_RUNS.findall(text)) > 1:
            return _runs_edited(text, runs, chance)
        return _words_edited(text, words, chance) if spaced else _edited_text(text, alphabet, chance)

    def make() -> str:
        for _ in range(TRIES):
            base = chance.choice(values)
            text = edit(base) if alphabet else base
            if len(text) <= max(_LONGEST, len(base) + 12) and all(rule(text) for rule in rules):
                return text
        return chance.choice(values)

    return make


def _edited_text(text: str, alphabet: Sequence[str], chance: random.Random) -> str:
    draw = chance.random()
    if draw < 0.15:
        return "".join(chance.choice(alphabet) for _ in range(chance.randint(0, min(len(text) + 4, _LONGEST))))
    if draw < 0.25:
        half = text[: (len(text) + chance.randint(0, 1)) // 2]
        return half + half[::-1] if chance.random() < 0.5 else text + text[::-1][chance.randint(0, 1) :]
    chars = list(text)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(chars) + 1)
        draw = chance.random()
        if draw < 0.4 and chars:
            chars[min(place, len(chars) - 1)] = _like(chars[min(place, len(chars) - 1)], alphabet, chance)
        elif draw < 0.7:
            chars.insert(place, chance.choice(alphabet))
        elif draw < 0.85 and chars:
            chars.pop(min(place, len(chars) - 1))
        else:
            chance.shuffle(chars)
    return "".join(chars)


def _like(char: str, alphabet: Sequence[str], chance: random.Random) -> str:
    """Another character of the same class, mostly."""
    for group in (string.ascii_lowercase, string.ascii_uppercase, string.digits):
        if char in group and chance.random() < 0.7:
            seen = [other for other in alphabet if other in group]
            return chance.choice(group if len(seen) >= 4 else seen)
    return chance.choice(alphabet)


def _words_edited(text: str, words: Sequence[str], chance: random.Random) -> str:
    parts = text.split(" ")
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(parts))
        draw = chance.random()
        if draw < 0.5 and words:
            alike = [word for word in words if _pattern(word) == _pattern(parts[place])] or list(words)
            word = chance.choice(alike)
            parts[place] = str(chance.randint(0, 2 * int(word) + 3)) if re.fullmatch(r"[0-9]{1,9}", word) else word
        elif draw < 0.7 and words:
            parts.insert(place, chance.choice(words))
        elif draw < 0.85 and len(parts) > 1:
            parts.pop(place)
        else:
            chance.shuffle(parts)
    return " ".join(parts)


def _runs_edited(text: str, runs: Sequence[str], chance: random.Random) -> str:
    """Exchange one or two runs of digits, letters or other characters for others of their kind."""
    parts = _RUNS.findall(text)
    for _ in range(chance.randint(1, 2)):
        place = chance.randrange(len(parts))
        part = parts[place]
        if part.isdecimal() and len(part) < 10 and chance.random() < 0.6:
            near = int(part) + chance.randint(-2, 2)
            number = near if chance.random() < 0.5 else chance.randrange(10 ** len(part))
            parts[place] = str(max(0, number)).zfill(len(part) if part[0] == "0" or len(parts) > 2 else 1)
        else:
            parts[place] = chance.choice([run for run in runs if _pattern(run) == _pattern(part)])
    return "".join(parts)


@lru_cache(maxsize=4096)
def _pattern(text: str) -> str:
    """The text's shape: runs of digits and of letters count as one, other characters are themselves."""
    return re.sub(r"[A-Za-z]+", "a", re.sub(r"[0-9]+", "9", text))


def _balanced(text: str) -> bool:
    open_now: list[str] = []
    for char in text:
        if char in _OPEN:
            open_now.append(char)
        elif char in _CLOSE and (not open_now or _OPEN.index(open_now.pop()) != _CLOSE.index(char)):
            return False
    return not open_now


def _reads_as_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+([.,][0-9]+)?", text) is not None


_TEXT_RULES: list[Callable[[str], bool]] = [
    str.isalpha,
    str.isalnum,
    str.isdigit,
    str.islower,
    str.isupper,
    lambda text: not any(char.isupper() for char in text),
    _balanced,
    _reads_as_number,
    lambda text: "  " not in text,
    lambda text: text == text.strip(),
    lambda text: text == text[::-1],
    lambda text: len(set(text)) == len(text),
]
