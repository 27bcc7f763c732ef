"""`codepilot gc` next to a run of which this version does not know how it stands."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from cli_kit import Command


@pytest.fixture
def two(codepilot: Command, shop: Path) -> tuple[str, str]:
    """Two runs that wait, with workspaces: the first one is looked at first."""
    first, second = sorted(codepilot("submit", str(shop)).out.strip() for _ in range(2))
    for run_id in (first, second):
        (codepilot.home / "workspaces" / run_id / "tree").mkdir(parents=True)
    return first, second


def spoil(codepilot: Command, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(codepilot.home / "codepilot.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


UNKNOWN = {
    "status of a step": ["UPDATE steps SET status = 'DREAMING' WHERE run_id = '{}'"],
    "state": ["UPDATE runs SET state = 'ADJOURNED' WHERE run_id = '{}'"],
    "event": [
        "DROP TRIGGER events_no_update",
        "UPDATE events SET type = 'x' || char(27) || '[2J' WHERE run_id = '{}'",
        "UPDATE views SET schema_digest = 'another' WHERE run_id = '{}'",
    ],
}


@pytest.mark.variants
@pytest.mark.parametrize("what", UNKNOWN)
def test_a_run_that_is_not_understood_is_left_alone_and_reported(
    codepilot: Command, two: tuple[str, str], what: str
) -> None:
    strange, plain = two
    spoil(codepilot, *(statement.format(strange) for statement in UNKNOWN[what]))
    done = codepilot("gc", "--days", "0", "--json")
    assert done.code == 0, done.out + done.err
    assert (done.json["removed"], list(done.json["left"])) == ([plain], [strange])
    assert [path.name for path in (codepilot.home / "workspaces").iterdir()] == [strange]
    reported = codepilot("gc", "--days", "0")
    assert reported.code == 0 and "Nothing to remove." in reported.out
    assert f"Left alone: Run {strange} cannot be read" in reported.out and "\x1b" not in reported.out


def test_what_a_run_of_an_unknown_state_names_is_not_pruned_and_it_is_reported(
    codepilot: Command, two: tuple[str, str]
) -> None:
    strange, _ = two
    assert codepilot("gc", "--artifacts", "90", "--json").json["left"] == {}
    spoil(codepilot, f"UPDATE runs SET state = 'ADJOURNED' WHERE run_id = '{strange}'")
    done = codepilot("gc", "--artifacts", "0", "--json")
    assert (done.code, list(done.json["left"])) == (0, [strange])
    reported = codepilot("gc", "--artifacts", "0")
    assert (
        reported.code == 0
        and f"Left alone: Run {strange} cannot be read" in reported.out
        and "ADJOURNED" in reported.out
    )
