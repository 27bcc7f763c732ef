"""Contract locks: names for files that one run at a time may change, for example an API's description. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codepilot.core.contract import Contract
from codepilot.core.globs import guards
from codepilot.core.plan import Plan

LOCK_HELD = "lock_held"
"""The rule that a change to a file breaks while another run holds its lock."""
Locks = Mapping[str, tuple[str, ...]]
"""The patterns of each lock's files."""


class LockTaken(Contract):
    """The run holds a lock. A higher fence than another holder's means that the other one lost it."""

    name: str
    fence: int


class LockReleased(Contract):
    """The run gave its locks back."""

    names: tuple[str, ...]
    reason: str = ""


def locked(locks: Locks, paths: Iterable[str]) -> dict[str, str]:
    """The locks that cover these paths, each with the first path that it covers."""
    found: dict[str, str] = {}
    for path in paths:
        for name, patterns in locks.items():
            if name not in found and any(guards(pattern, path) for pattern in patterns):
                found[name] = path
    return found


def planned(locks: Locks, plan: Plan | None) -> dict[str, str]:
    """The locks that a plan names among its contracts, by their own names or by the paths of their files."""
    if plan is None:
        return {}
    named = {name: name for name in plan.contracts if name in locks}
    return {**locked(locks, plan.contracts), **named}
