"""What a skill raises. Standard library only: this source travels as it is."""

from __future__ import annotations


class SkillError(Exception):
    """A skill could not do what was asked. `kind` is one of the platform's kinds of failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadArguments(SkillError, TypeError):
    """A skill was called in a way that its signature does not allow; the message shows the signature."""

    def __init__(self, message: str) -> None:
        super().__init__("tool_invalid_args", message)


class PolicyError(Exception):
    """Something the task's policy forbids. The platform counts these; the message says what to do instead."""

    def __init__(self, rule: str, skill: str, attempt: str) -> None:
        super().__init__(f"[{rule}] {skill}: {attempt}")
