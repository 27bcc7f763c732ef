"""Identities that sort by the time they were made."""

from __future__ import annotations

import os
import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS = 10
_RANDOM_CHARS = 10
_RANDOM_BITS = 5 * _RANDOM_CHARS


class _Sequence:
    """Milliseconds, then randomness that only grows within a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        fresh = (time.time_ns() // 1_000_000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        with self._lock:
            self._last = max(fresh, self._last + 1)
            return self._last


_sequence = _Sequence()


def _after_fork() -> None:
    global _sequence
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_after_fork)


def new_id(prefix: str) -> str:
    """A new unique identity such as `r-01k9x2m4qa7w3e5t8y0z`; later ones sort after earlier ones."""
    number = _sequence.next()
    characters = []
    for _ in range(_TIME_CHARS + _RANDOM_CHARS):
        characters.append(_ALPHABET[number & 31])
        number >>= 5
    return f"{prefix.removesuffix('-')}-{''.join(reversed(characters))}"
