"""Permission prompts on a screen: which one waits for an answer, and when it has been answered too often. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codepilot.core.attempt import Profile

_NEAR = 12
"""A prompt that waits has its last line at most so many lines above the cursor or the end of the screen's text."""
_ABOVE = 8
"""The number of lines above a prompt that belong to it; with other lines it is another prompt."""
_AGAIN_SEC = 5.0
"""A prompt that is still there, on a screen where nothing changed, has not taken its answer."""
_NEXT_SEC = 2.0
"""After so long, a prompt in the same place that is about something else is another one."""
_CHOICE = re.compile(r"^\W*(?:\d{1,2}[.)]|[\u276f\u203a●▶])\s*\S")
"""A line of a dialog that can be chosen."""
_ENDS = tuple(":?>])│┃|")
"""A line that asks ends so, or the frame around it does."""


@dataclass(frozen=True)
class _Patience:
    """How long nothing on the screen may change before a prompt counts. Programs at work show that they are."""

    answer_sec: float
    block_sec: float


_SURE = _Patience(answer_sec=1.1, block_sec=5.0)
_DOUBTFUL = _Patience(answer_sec=3.0, block_sec=60.0)
"""For words that match in the middle of a sentence, with the cursor on an empty line: they may be prose."""


@dataclass(frozen=True)
class Prompt:
    """A prompt on the screen."""

    answer: str
    """Its name in the profile, for example `press_1`."""
    line: str
    row: int
    """The number of its line, counted from the beginning of the output."""
    about: str
    patience: _Patience = _SURE


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
    waiting: bool = False
    """True while a prompt waits for an answer."""
    _still: tuple[tuple[str, ...], float] = ((), 0.0)
    """The screen, and since when it shows that."""

    def __post_init__(self) -> None:
        self._patterns: Mapping[str, Sequence[re.Pattern[str]]] = {
            name: [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
            for name, patterns in self.profile.permission_regex.items()
        }

    def look(self, rows: Sequence[str], cursor_row: int, scrolled: int, now: float) -> Prompt | None:
        """The prompt to answer now, if there is one."""
        shown = self._prompts(rows, cursor_row, scrolled)
        for name in self._answered.keys() - {prompt.answer for prompt in shown}:
            del self._answered[name]
        screen = tuple(rows)
        if screen != self._still[0]:
            self._still = (screen, now)
        still_sec = now - self._still[1]
        waiting = [prompt for prompt in shown if self._is_open(prompt, screen, now)]
        self.waiting = bool(waiting)
        if not waiting:
            return None
        chosen = next((prompt for prompt in waiting if prompt.answer in self.answers), None)
        if chosen is None:
            self._wait(waiting[0], still_sec)
            return None
        if still_sec < chosen.patience.answer_sec:
            return None
        given = self.counts.get(chosen.answer, 0)
        if given >= self.profile.max_keys:
            self.blocked = f"It asked again after {given} answers: {chosen.line}"
            return None
        self.counts[chosen.answer] = given + 1
        self._answered[chosen.answer] = _Answered(chosen, now, screen)
        return chosen

    def _wait(self, prompt: Prompt, still_sec: float) -> None:
        """Nobody may answer this one: the program is blocked if it goes on waiting."""
        if still_sec >= prompt.patience.block_sec:
            self.blocked = f"It asks, and the task's policy allows no {prompt.answer}: {prompt.line}"

    def _is_open(self, prompt: Prompt, screen: tuple[str, ...], now: float) -> bool:
        before = self._answered.get(prompt.answer)
        if before is None or before.prompt.row != prompt.row:
            return True
        if before.prompt.about != prompt.about:
            return now - before.at >= _NEXT_SEC
        return now - before.at >= _AGAIN_SEC and before.screen == screen

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
                    sure = not any(map(str.isalpha, line[: match.start()])) or _asks(
                        rows[number : last + 1], rows, cursor_row
                    )
                    patience = _SURE if sure else _DOUBTFUL
                    found.append(Prompt(name, line.strip(), scrolled + number, "\n".join(above), patience))
                    break
        return sorted(found, key=lambda prompt: -prompt.row)


def _asks(dialog: Sequence[str], rows: Sequence[str], cursor_row: int) -> bool:
    """True for a prompt's shape: the cursor stands in text, there is a choice, or its line ends as questions do."""
    at_text = 0 <= cursor_row < len(rows) and bool(rows[cursor_row].strip())
    return at_text or dialog[0].rstrip().endswith(_ENDS) or any(map(_CHOICE.match, dialog))


def _first(patterns: Sequence[re.Pattern[str]], *texts: str) -> re.Match[str] | None:
    """What one of the patterns finds: in a line, or where it goes on in the next one."""
    return next((found for one in patterns for text in texts if (found := one.search(text))), None)
