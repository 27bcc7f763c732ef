"""From an agent's name to the adapter that drives its program: `claude`, `codex`, …, `stdio:COMMAND`."""

from __future__ import annotations

from collections.abc import Callable

from codepilot.agents.cli.acp import AcpAdapter, GeminiAdapter, OpenCodeAdapter
from codepilot.agents.cli.claude import ClaudeAdapter
from codepilot.agents.cli.codex import CodexAdapter
from codepilot.agents.cli.json_lines import JsonLinesAdapter
from codepilot.agents.cli.programs import words_of
from codepilot.agents.cli.protocol import AgentAdapter
from codepilot.agents.cli.pty import PtyAdapter
from codepilot.core.failures import CodePilotError, FailureKind

KNOWN: dict[str, Callable[[], AgentAdapter]] = {
    "claude": ClaudeAdapter,
    "codex": CodexAdapter,
    "gemini": GeminiAdapter,
    "opencode": OpenCodeAdapter,
}
"""The programs that are known by name."""
BY_COMMAND: dict[str, Callable[[str, tuple[str, ...]], AgentAdapter]] = {
    "acp": AcpAdapter,
    "stdio": JsonLinesAdapter,
    "pty": PtyAdapter,
}
"""The dialects that any command may speak, as in `stdio:COMMAND`."""


def adapter(name: str) -> AgentAdapter:
    """The adapter of an agent's name; raises if there is none."""
    kind, colon, command = name.partition(":")
    if not colon and name in KNOWN:
        return KNOWN[name]()
    if colon and kind in BY_COMMAND:
        words = words_of(command)
        if not words:
            raise CodePilotError(FailureKind.INVALID_SPEC, f"{name!r} names no command")
        return BY_COMMAND[kind](name, words)
    forms = ", ".join((*KNOWN, *(f"{one}:COMMAND" for one in BY_COMMAND)))
    raise CodePilotError(FailureKind.INVALID_SPEC, f"there is no agent {name!r}", f"Choose one of {forms}.")


def is_cli_agent(name: str) -> bool:
    """True if `adapter` knows the name."""
    kind, colon, _ = name.partition(":")
    return kind in BY_COMMAND if colon else name in KNOWN
