"""Permission prompts on a screen: which one waits for an answer, and when it has been answered too often. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codepilot.core.attempt import Profile

_NEAR = 12
"""A prompt that waits has its last line at most so many lines above the cursor or the end of the screen's text."""
_ABOVE = 8
"""So many lines above a prompt say what it is about; another text there is another prompt."""
_AGAIN_SEC = 2.0
"""A prompt that is still there, on a screen where nothing changed, has not taken its answer."""
_BLOCKED_SEC = 5.0
"""A prompt that nobody may answer blocks the program after so long without any other output."""
_PAUSE_SEC = 0.3
"""Programs that redraw need a moment between a prompt and its answer."""


@dataclass(frozen=True)
class Prompt:
    """A prompt on the screen."""

    answer: str
    """Its name in the profile, for example `press_1`."""
    line: str
    row: int
    """The number of its line, counted from the beginning of the output."""
    about: str


@dataclass
class _Answered:
    prompt: Prompt
    at: float
    screen: tuple[str, ...]


@dataclass
class PromptWatch:
    """Looks at a screen again and again, and says which prompt to answer now."""

    profile: Profile
    answers: frozenset[str]
    """The prompts that may be answered."""
    counts: dict[str, int] = field(default_factory=dict)
    blocked: str = ""
    """Why the program waits for an answer that it will not get."""
    _answered: dict[str, _Answered] = field(default_factory=dict)
    _waits: tuple[Prompt, float] | None = None
    _fresh: tuple[Prompt, float] | None = None

    def __post_init__(self) -> None:
        self._patterns: Mapping[str, Sequence[re.Pattern[str]]] = {
            name: [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
            for name, patterns in self.profile.permission_regex.items()
        }

    @property
    def waiting(self) -> bool:
        """True while a prompt waits for an answer."""
        return self._waits is not None or self._fresh is not None

    def look(self, rows: Sequence[str], cursor_row: int, scrolled: int, now: float) -> Prompt | None:
        """The prompt to answer now, if there is one."""
        shown = self._prompts(rows, cursor_row, scrolled)
        for name in self._answered.keys() - {prompt.answer for prompt in shown}:
            del self._answered[name]
        screen = tuple(rows)
        waiting = [prompt for prompt in shown if self._is_open(prompt, screen, now)]
        if not waiting:
            self._waits = self._fresh = None
            return None
        chosen = next((prompt for prompt in waiting if prompt.answer in self.answers), None)
        if chosen is None:
            self._wait(waiting[0], now)
            return None
        if self._fresh is None or self._fresh[0] != chosen:
            self._fresh = (chosen, now)
        if now - self._fresh[1] < _PAUSE_SEC:
            return None
        given = self.counts.get(chosen.answer, 0)
        if given >= self.profile.max_keys:
            self.blocked = f"It asked again after {given} answers: {chosen.line}"
            return None
        self.counts[chosen.answer] = given + 1
        self._answered[chosen.answer] = _Answered(chosen, now, screen)
        self._fresh = None
        return chosen

    def _wait(self, prompt: Prompt, now: float) -> None:
        """Nobody may answer this one: the program is blocked if it goes on waiting."""
        if self._waits is None or self._waits[0] != prompt:
            self._waits = (prompt, now)
        elif now - self._waits[1] >= _BLOCKED_SEC:
            self.blocked = f"It asks, and the task's policy allows no {prompt.answer}: {prompt.line}"

    def _is_open(self, prompt: Prompt, screen: tuple[str, ...], now: float) -> bool:
        before = self._answered.get(prompt.answer)
        if before is None or before.prompt.row != prompt.row:
            return True
        if now - before.at < _AGAIN_SEC:
            return False
        return before.prompt.about != prompt.about or before.screen == screen

    def _prompts(self, rows: Sequence[str], cursor_row: int, scrolled: int) -> list[Prompt]:
        """The prompts near the end of what is shown, each once, the lowest first."""
        last = max((number for number, row in enumerate(rows) if row.strip()), default=0)
        start = max(0, min(last, max(cursor_row, 0)) - _NEAR)
        found = []
        for name, patterns in self._patterns.items():
            for number in range(last, start - 1, -1):
                line = rows[number]
                below = rows[number + 1].strip() if number < last else ""
                match = _first(patterns, line, f"{line} {below}", line + below)
                if match is not None:
                    above = (*rows[max(0, number - _ABOVE) : number], line[: match.end()])
                    found.append(Prompt(name, line.strip(), scrolled + number, "\n".join(above)))
                    break
        return sorted(found, key=lambda prompt: -prompt.row)


def _first(patterns: Sequence[re.Pattern[str]], *texts: str) -> re.Match[str] | None:
    """What one of the patterns finds: in a line, or where it goes on in the next one."""
    return next((found for one in patterns for text in texts if (found := one.search(text))), None)
