"""Text made short enough to show. Standard library only: this source also travels into the sandbox."""

from __future__ import annotations


def head_and_tail(text: str, limit: int, head: float = 0.5) -> str:
    """The text, or its first and last characters with the number left out between them; `head` is the first's share."""
    if len(text) <= limit:
        return text
    first = int(limit * head)
    last = limit - first
    return f"{text[:first]}\n[… {len(text) - limit} characters left out …]\n{text[len(text) - last :]}"
