"""Telling whoever counts of the calls that an action made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from codepilot.core.events import SkillCall

Count = Callable[[Sequence[SkillCall]], None]

_log = logging.getLogger(__name__)


def count_calls(count: Count | None, calls: Sequence[SkillCall]) -> None:
    """The action has run: that its calls cannot be counted, as a package is broken, must not cost its result."""
    if count is None:
        return
    try:
        count(calls)
    except Exception as error:  # noqa: BLE001  (it is anybody's code)
        _log.warning("%d calls of skills were not counted: %s", len(calls), error, exc_info=True)
