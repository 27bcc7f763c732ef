"""`codepilot fsck`: what is wrong with a store, what could be written anew, and what could not."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from cli_kit import Command


def spoil(codepilot: Command, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(codepilot.home / "codepilot.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_lie_is_reported_mended_and_gone(codepilot: Command, shop: Path) -> None:
    run_id = codepilot("submit", str(shop)).out.strip()
    assert codepilot("fsck").out == "Every run matches its events.\n"
    spoil(codepilot, "UPDATE runs SET state = 'DONE'")
    found = codepilot("fsck")
    assert found.code == 4 and run_id in found.out and "fsck --repair" in found.out
    mended = codepilot("fsck", "--repair")
    assert mended.code == 0 and mended.out.strip().endswith("Rewritten.")
    assert codepilot("fsck", "--json").json == {"schema_version": 1, "problems": {}, "left": {}}


def test_a_damaged_log_is_not_mended_and_drives_no_terminal(codepilot: Command, shop: Path) -> None:
    run_id = codepilot("submit", str(shop)).out.strip()
    spoil(codepilot, "DROP TRIGGER events_no_update", "UPDATE events SET type = 'x' || char(27) || '[2J' WHERE seq = 2")
    for options in ([], ["--repair"]):
        found = codepilot("fsck", *options)
        assert found.code == 4 and f"Run {run_id} cannot be read: event 2" in found.out
        assert "\x1b" not in found.out
    reported = codepilot("fsck", "--repair", "--json")
    assert reported.code == 4 and list(reported.json["problems"]) == list(reported.json["left"]) == [run_id]
