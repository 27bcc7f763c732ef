"""Text that comes from projects, agents and git, made safe to show."""

from __future__ import annotations


def plain(text: str) -> str:
    """One line that cannot drive the terminal: control characters are shown, not sent."""
    return "".join(char if char.isprintable() else shown(char) for char in text)


def plain_lines(text: str) -> str:
    """The same for several lines; tabs stay."""
    return "\n".join("\t".join(plain(part) for part in line.split("\t")) for line in text.split("\n"))


def shown(char: str) -> str:
    return " " if char in "\n\t" else repr(char)[1:-1]
