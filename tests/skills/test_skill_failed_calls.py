"""What is reported of a call that failed: its arguments, always the same way, and how it ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from codepilot.sandbox.kernel.host_calls import read_calls
from codepilot.skills.inside_call import MAX_ARGUMENTS, called


@dataclass
class Ended:
    exit_code: int | None
    timed_out: bool = False


class Untellable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def run(cmd: list[str], give: Any = None) -> Any:
    """As skills are: gives an outcome or raises."""
    if isinstance(give, Exception):
        raise give
    return give


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[Any]]]:
    rows: list[list[Any]] = []
    kernel = ModuleType("codepilot_kernel")
    kernel.note = lambda *row: rows.append(list(row))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "codepilot_kernel", kernel)
    yield rows


@pytest.mark.parametrize(
    ("give", "status", "ended"),
    [
        (Ended(127), "success", "127"),
        (Ended(-9), "success", "-9"),
        (Ended(None, timed_out=True), "timeout", "timeout"),
        (FileNotFoundError("x"), "error", "FileNotFoundError"),
    ],
)
def test_a_failed_call_is_reported_with_arguments_and_exit(
    noted: list[list[Any]], give: Any, status: str, ended: str
) -> None:
    with contextlib.suppress(FileNotFoundError):
        called(run)(["make"], give=give)
    ((_, reported, _, _, arguments, exit_),) = noted
    assert (reported, exit_) == (status, ended)
    assert arguments.startswith('{"cmd": ["make"], "give": ')
    (call,) = read_calls(noted, None)
    assert (call.arguments, call.exit) == (arguments, ended)


@pytest.mark.parametrize("give", [None, Ended(0), "text"])
def test_a_call_that_succeeds_is_reported_in_four_words(noted: list[list[Any]], give: Any) -> None:
    called(run)(["make"], give)
    assert [len(row) for row in noted] == [4]


def test_long_arguments_are_distinguished_by_what_they_end_with(noted: list[list[Any]]) -> None:
    for end in ("a", "b", "a"):
        called(run)(["x" * 5000 + end], give=Ended(1))
    first, second, third = (row[4] for row in noted)
    assert first == third != second
    assert len(first) < MAX_ARGUMENTS + 30


def test_arguments_that_cannot_be_reported_do_not_hide_the_failure(noted: list[list[Any]]) -> None:
    refuse = called(run)
    with pytest.raises(KeyError):
        refuse([Untellable()], give=KeyError("the failure"))
    assert noted[0][4:] == ["cmd: list, give: KeyError", "KeyError"]


def test_what_a_forger_says_of_a_call_is_bounded_or_left_out() -> None:
    rows = [
        ["a", "error", 1, "", 5, "x"],
        ["b", "error", 1, "", "y", None],
        ["c", "error", 1, "", "z" * 9999, "e" * 999],
    ]
    (call,) = read_calls(rows, None)
    assert (call.skill, len(call.arguments), len(call.exit)) == ("c", 300, 100)
