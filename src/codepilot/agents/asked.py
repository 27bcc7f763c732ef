"""Functions that only the host can answer. Standard library only: this source travels as it is.

The host reads which answers an action will want from its text and brings them inside before the action runs, so that
nothing inside ever calls out.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

ANSWERS = "_codepilot_answers"


def read_output(turn: int, offset: int = 0, length: int = 8000) -> str:
    """A part of the whole output of an earlier turn of yours, such as read_output(3, 8000)."""
    text: str = _answer("read_output", turn, f"there is no earlier turn {turn!r} in this conversation")
    return text[offset : offset + length]


def find_repairs(
    tests: list[str] | None = None, limit: int = 5, proposals: list[str] | None = None
) -> list[dict[str, object]]:
    """Search small Python edits that make the failing tests pass, without a model: takes up to a minute.

    Gives the best first, each with path, diff (for apply_patch), rationale and confidence; nothing is changed.
    `proposals` are diffs of your own, each of one file: they are tried and ranked with the others. One search an
    action, outside of functions. Afterwards only variables of this action that hold plain data are kept.
    """
    plainly = "search once in an action, outside of functions, with lists of texts"
    asked = tuple(tests) if tests else None, tuple(proposals) if proposals else None
    found: list[dict[str, object]] = _answer("find_repairs", asked, plainly)
    return found[: max(0, limit)]


def _answer(name: str, asked: object, how: str) -> Any:
    answers = getattr(sys.modules.get(ANSWERS), "answers", {})
    if (name, asked) not in answers:
        raise ValueError(f"{name}: {how}")
    answer = answers[(name, asked)]
    if isinstance(answer, Exception):
        raise answer
    return answer
