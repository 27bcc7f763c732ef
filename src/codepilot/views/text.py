"""Untrusted text for a page: what cannot be seen, or changes the order of what is seen, is shown as an escape."""

from __future__ import annotations

from datetime import UTC, datetime

KEPT = frozenset("\n\t")


def visible(text: str) -> str:
    """`text` with control, bidirectional and invisible characters as escapes. Line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in KEPT else repr(char)[1:-1] for char in text)


def duration(seconds: float) -> str:
    """`0.2 s`, `12 s`, `3 min 20 s`, `1 h 5 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min" if whole % 3600 >= 60 else f"{whole // 3600} h"


def money(dollars: float | None) -> str:
    """Dollars with as many places as the amount needs; None is a price that is not known."""
    if dollars is None:
        return "unknown"
    return f"${dollars:.2f}" if dollars >= 1 or dollars == 0 else f"${dollars:.4f}"


def sentence(words: str) -> str:
    """The words with a capital letter and a full stop."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?", ":")) else ".")


_LABELS = {
    "applies_to_base": "Applies to the base",
    "tree_is_the_validated_one": "Is the change that was validated",
    "judged_by_the_bases_tests": "Judged by the base's own tests",
    "fail_to_pass": "The failing tests pass",
    "pass_to_pass": "What passed still passes",
    "compiles": "Everything compiles",
    "lint": "The linter finds nothing new",
    "command": "The command succeeds",
}


def label(name: str) -> str:
    """The name of a check or gate in words."""
    return _LABELS.get(name) or name.replace("_", " ").capitalize()


def counted(number: int, noun: str) -> str:
    """`1 test`, `2 tests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def fenced(text: str) -> list[tuple[str, bool]]:
    """The parts of what a model wrote, each with whether it is code between fences. Empty ones are left out."""
    found = []
    for number, part in enumerate(text.split("```")):
        code = bool(number % 2)
        words = part.partition("\n")[2].rstrip() if code and "\n" in part else part.strip()
        found.append((words, code))
    return [one for one in found if one[0]]


def rfc3339(at: int) -> str:
    """A time in microseconds UTC as `2026-11-19T01:37:00Z`."""
    return datetime.fromtimestamp(at / 1e6, tz=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock(at: int) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(at / 1e6, tz=UTC).strftime("%H:%M:%S")


def ago(at: int, now: int) -> str:
    """`now`, `12 s ago`, `3 min ago`, `5 h ago`, or the day."""
    seconds = max(0, now - at) / 1e6
    for least, unit, name in ((86_400 * 7, 0, ""), (86_400, 86_400, "d"), (3600, 3600, "h"), (60, 60, "min")):
        if seconds >= least:
            day = datetime.fromtimestamp(at / 1e6, tz=UTC).strftime("%Y-%m-%d")
            return f"{seconds // unit:.0f} {name} ago" if unit else day
    return f"{seconds:.0f} s ago" if seconds >= 1 else "now"
