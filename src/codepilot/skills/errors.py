"""Errors of skills. Standard library only: this source is shipped into the sandbox."""

from __future__ import annotations


class SkillError(Exception):
    """A skill could not do what was asked. `kind` is one of the platform's kinds of failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadArguments(SkillError, TypeError):
    """A call does not fit the skill's signature; the message shows the signature."""

    def __init__(self, message: str) -> None:
        super().__init__("tool_invalid_args", message)


class PolicyError(Exception):
    """The task's policy forbids the action. The platform counts these; the message says what to do instead."""

    def __init__(self, rule: str, skill: str, attempt: str) -> None:
        super().__init__(f"[{rule}] {skill}: {attempt}")
