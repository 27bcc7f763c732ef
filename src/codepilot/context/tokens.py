"""How many tokens a text will take, told without a tokeniser: rather too many than too few."""

from __future__ import annotations

import math

BYTES_PER_TOKEN = 3.5


def bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def tokens_of(text: str) -> int:
    return math.ceil(bytes_of(text) / BYTES_PER_TOKEN)
