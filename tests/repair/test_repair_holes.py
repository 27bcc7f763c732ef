"""What a hole records of the states it is asked in."""

from __future__ import annotations

import sys
from typing import Any

from codepilot.repair.python.inside import holes


class Slow:
    """Takes longer to copy than a hole has time for."""

    def __deepcopy__(self, memo: object) -> Slow:
        raise AssertionError("copied although the time was used up")


def frame_with(**values: Any) -> Any:
    return sys._getframe()


def ask(hole: Any, **scope: Any) -> None:
    hole.turns += 1
    hole.act(frame_with(**scope))


def test_states_are_copied_until_their_time_is_used_up_and_again_at_the_next_look() -> None:
    hole = holes.Hole({})
    inner: list[int] = []
    hole.watch("")
    ask(hole, rows=[inner])
    inner.append(1)
    assert hole.states[0]["values"]["rows"] == [[]], "what is in it is copied too"
    hole.copying = holes.SLOW_COPY_SEC
    ask(hole, slow=Slow())
    assert isinstance(hole.states[1]["values"]["slow"], Slow)
    hole.watch("")
    ask(hole, rows=[inner])
    inner.append(2)
    assert hole.states[0]["values"]["rows"] == [[1]]
