"""What the task's policy forbids. Standard library only: this source travels as it is."""

from __future__ import annotations


class PolicyError(Exception):
    """Something the task's policy forbids. The platform counts these; the message says what to do instead."""

    def __init__(self, rule: str, skill: str, attempt: str) -> None:
        super().__init__(f"[{rule}] {skill}: {attempt}")
