"""Decode text, shorten it to show, and count. Standard library only: this source also travels into the sandbox."""

from __future__ import annotations


def decoded(data: bytes) -> tuple[str, str]:
    """Text and the encoding that returns the same bytes: UTF-8, or Latin-1 for all other bytes."""
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def head_and_tail(text: str, limit: int, head: float = 0.5) -> str:
    """The text, or its first and last characters with the number left out between them; `head` is the first's share."""
    if len(text) <= limit:
        return text
    first = int(limit * head)
    last = limit - first
    return f"{text[:first]}\n[… {len(text) - limit} characters left out …]\n{text[len(text) - last :]}"


def counted(number: int, noun: str) -> str:
    """`1 test`, `2 tests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
