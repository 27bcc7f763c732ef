"""Walk through the hunks of a change on a terminal, with the keys of `git add -p`."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.text import Text

from codepilot.cli.output import plain, show_prompt
from codepilot.cli.screens import coloured
from codepilot.core.text import counted
from codepilot.workspace import ChangedFile, Hunk, Piece

HELP = (
    ("y", "accept this part"),
    ("n", "reject this part; you may say why"),
    ("a", "accept this part and the rest of the file"),
    ("d", "reject this part and the rest of the file"),
    ("s", "split this hunk into its smaller parts"),
    ("j", "decide later, go to the next part"),
    ("k", "go back to the part before"),
    ("q", "stop here: parts without a decision are left out"),
    ("?", "show these keys"),
)
REASON = "Why (an agent reads it; Enter for no reason)? "
ESCAPE, END_OF_INPUT = "\x1b", "\x04"
_ENDS = frozenset("ABCDEFGHPQRSZ~")
"""What ends the sequence of an arrow or another key that is no character."""

Choice = Literal["accepted", "rejected"]


@dataclass(frozen=True)
class Part:
    """What one question is about: a hunk, a part of one, or a whole file."""

    file: ChangedFile
    pieces: tuple[Piece, ...]
    question: str
    hunk: Hunk | None = None
    number: int = 0
    """The part of the hunk, from 1; 0 is all of it."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The smaller parts of a hunk; none if it has no smaller ones."""
        if self.hunk is None or len(self.pieces) < 2:
            return ()
        return tuple(
            Part(self.file, (piece,), self.question, self.hunk, number) for number, piece in enumerate(self.pieces, 1)
        )

    def lines(self) -> bytes:
        """The part as a diff shows it."""
        if self.hunk is None:
            return b"\n".join(line for hunk in self.file.hunks for line in hunk.lines)
        body = self.hunk.part(self.number) if self.number else self.hunk.lines
        part = f" part {self.number} of {len(self.hunk.edits)}" if self.number else ""
        head = f"@@ line {self.hunk.old_start}{part} @@ {self.hunk.heading}".rstrip()
        return b"\n".join((head.encode(), *body))


def parts_of(file: ChangedFile) -> list[Part]:
    """The questions about one file."""
    if file.whole:
        return [Part(file, file.pieces, f"Accept {what_happened(file)}")]
    found = []
    for piece in file.pieces:
        if piece.part == "rename":
            found.append(Part(file, (piece,), f"Accept the new name of {plain(file.old_path)}, {file.name}"))
        elif piece.part == "mode" and file.before and file.after:
            found.append(Part(file, (piece,), f"Accept the mode {file.after.mode} instead of {file.before.mode}"))
    return [*found, *(Part(file, tuple(file.of_hunk(hunk)), "Accept this hunk", hunk) for hunk in file.hunks)]


def what_happened(file: ChangedFile) -> str:
    """A change of a whole file in words."""
    binary = "binary " if file.binary else ""
    if file.kind == "type":
        return "the new type of this file"
    what = {"added": f"this new {binary}file", "deleted": f"the deletion of this {binary}file"}
    return what.get(file.kind, f"the new content of this {binary}file")


@dataclass
class HunkWalk:
    """The walk and its decisions. `key` returns one key, `line` a line of text."""

    files: Sequence[ChangedFile]
    console: Console
    key: Callable[[str], str]
    line: Callable[[str], str]
    remark: Callable[[ChangedFile], str] = lambda file: ""
    decided: dict[Piece, Choice] = field(default_factory=dict)
    reasons: dict[Piece, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._parts = [part for file in self.files for part in parts_of(file)]
        self._shown = ""

    def run(self) -> None:
        """Ask about each part until all are decided or the person stops."""
        at = 0
        while 0 <= at < len(self._parts):
            part = self._parts[at]
            self._show(part)
            key = self._ask(part, at)
            if key == "q":
                return
            at = self._act(key, at)

    def _show(self, part: Part) -> None:
        if part.file.name != self._shown:
            self._shown = part.file.name
            renamed = f" (was {plain(part.file.old_path)})" if part.file.kind == "renamed" else ""
            self.console.print(Text(f"\n{part.file.name}{renamed}{self.remark(part.file)}", "bold"), soft_wrap=True)
        if text := part.lines():
            self.console.print(coloured(text), soft_wrap=True)

    def _ask(self, part: Part, at: int) -> str:
        keys = ["y", "n", "a", "d"]
        keys += ["s"] if part.parts else []
        keys += [*(["j"] if at + 1 < len(self._parts) else []), *(["k"] if at else []), "q", "?"]
        while True:
            key = self.key(f"({at + 1}/{len(self._parts)}) {part.question} [{','.join(keys)}]? ")
            if key == END_OF_INPUT:
                return "q"
            if key != "?" and key in keys:
                return key
            for name, meaning in HELP:
                if name in keys:
                    self.console.print(Text.assemble((f"  {name}", "bold blue"), f"  {meaning}"))

    def _act(self, key: str, at: int) -> int:
        """The number of the part that comes next."""
        part = self._parts[at]
        if key == "s":
            self._parts[at : at + 1] = part.parts
            return at
        if key in ("j", "k"):
            return at + (1 if key == "j" else -1)
        choice: Choice = "accepted" if key in ("y", "a") else "rejected"
        end = at + 1
        if key in ("a", "d"):
            while end < len(self._parts) and self._parts[end].file is part.file:
                end += 1
        reason = self.line(REASON).strip() if choice == "rejected" else ""
        for one in self._parts[at:end]:
            for piece in one.pieces:
                self.decided[piece] = choice
                self.reasons[piece] = reason
        return end

    def of(self, choice: Choice) -> list[Piece]:
        """The pieces with this decision, in the order of the change."""
        return [piece for file in self.files for piece in file.pieces if self.decided.get(piece) == choice]

    def summary(self) -> str:
        """The decisions in a line."""
        left = sum(len(file.pieces) for file in self.files) - len(self.decided)
        undecided = f", {left} undecided and left out" if left else ""
        return f"{counted(len(self.of('accepted')), 'part')} accepted, {len(self.of('rejected'))} rejected{undecided}."


# Keys -----------------------------------------------------------------------------------------------


class Keyboard:
    """The keys of the terminal on standard input, without Enter while it is open. What is typed ahead is kept."""

    def __enter__(self) -> Self:
        import termios

        self._terminal = sys.stdin.fileno()
        self._usual = termios.tcgetattr(self._terminal)
        self._by_key()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._by_line()

    def key(self, prompt: str) -> str:
        """One key. Arrows and the like are returned as Escape."""
        show_prompt(prompt)
        pressed = os.read(self._terminal, 1).decode("utf-8", "replace") or END_OF_INPUT
        if pressed == ESCAPE:
            while self._follows() and os.read(self._terminal, 1).decode("latin-1") not in _ENDS:
                pass
        show_prompt(f"{pressed if pressed.isprintable() else ''}\n")
        return pressed.lower()

    def line(self, prompt: str) -> str:
        """A line; the end of input is an empty one."""
        self._by_line()
        try:
            show_prompt(prompt)
            return sys.stdin.readline()
        finally:
            self._by_key()

    def _follows(self) -> bool:
        return bool(select.select([self._terminal], [], [], 0.02)[0])

    def _by_key(self) -> None:
        import termios
        import tty

        tty.setcbreak(self._terminal, termios.TCSADRAIN)

    def _by_line(self) -> None:
        import termios

        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._usual)
