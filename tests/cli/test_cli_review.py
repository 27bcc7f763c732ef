"""`codepilot review`: by options in a script, by keys on a real terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import SHOP, Command, git
from cli_terminal import Terminal

FIXED = SHOP.replace("amount > limit", "amount >= limit").replace('"""Prices of a small shop."""', '"""Prices."""')
FIX, TITLE = "shop.py:2", "shop.py:1"


@pytest.fixture
def two_hunks(codepilot: Command, shop: Path) -> str:
    """A judged change of two hunks: the repair and a new docstring."""
    (shop / "shop.py").write_text(FIXED, encoding="utf-8")
    ended = codepilot("prove", str(shop), "--json")
    assert ended.code == 0, ended.err
    git(shop, "checkout", "-q", ".")
    return str(ended.json["run_id"])


@pytest.mark.variants
def test_by_options_what_remains_is_judged_and_can_be_applied(codepilot: Command, shop: Path, two_hunks: str) -> None:
    listed = codepilot("review", two_hunks, "--json")
    assert listed.code == 0
    parts = {part["id"]: part["text"] for file in listed.json["files"] for part in file["parts"]}
    assert list(parts) == [TITLE, FIX] and "+    if amount >= limit:" in parts[FIX]
    ended = codepilot("review", two_hunks, "--reject", TITLE, "--reason", "Keep the title", "--json")
    assert ended.code == 0, ended.err
    assert [(one["hunk"], one["decision"], one["reason"]) for one in ended.json["decisions"]] == [
        (TITLE, "rejected", "Keep the title"),
        (FIX, "accepted", ""),
    ]
    deltas = codepilot("show", two_hunks, "--feedback").json["deltas"]
    assert [(one["decision"], one["reason"]) for one in deltas] == [("rejected", "Keep the title"), ("accepted", "")]
    remaining = ended.json["remaining"]
    assert remaining["verdict"] == "confirmed"
    assert codepilot("apply", remaining["run_id"]).code == 0
    assert (shop / "shop.py").read_text(encoding="utf-8") == SHOP.replace("amount > limit", "amount >= limit")
    refused = codepilot("review", two_hunks, "--accept", TITLE)
    assert refused.code == 5  # no test needs the docstring, and none breaks
    unknown = codepilot("review", two_hunks, "--accept", "shop.py:9")
    assert (unknown.code, "shop.py:1, shop.py:2" in unknown.err) == (2, True)
    assert codepilot("review", two_hunks, "--accept", "shop.py").code == 0
    nothing = codepilot("review", two_hunks, "--reject", "shop.py")
    assert (nothing.code, "nothing remains" in nothing.out) == (1, True)
    headless = codepilot("review", two_hunks)
    assert (headless.code, "--json" in headless.err) == (2, True)


def test_by_keys_on_a_terminal(codepilot: Command, shop: Path, two_hunks: str) -> None:
    terminal = Terminal(codepilot, "review", two_hunks)
    terminal.until("(1/2) Accept this hunk [y,n,a,d,j,q,?]? ")
    assert '\x1b[31m-"""Prices of a small shop."""' in terminal.text
    terminal.press("?")
    terminal.until("go to the next part")
    terminal.until("[y,n,a,d,j,q,?]? ")
    terminal.press("\x1b[Bj")  # an arrow does nothing
    terminal.until("(2/2) Accept this hunk [y,n,a,d,k,q,?]? ")
    terminal.press("k")
    terminal.until("(1/2)")
    terminal.press("n")
    terminal.until("Why")
    terminal.press("Keep the title\n")
    terminal.until("(2/2)")
    terminal.press("y")
    terminal.until("1 part accepted, 1 rejected.")
    terminal.until("Judge what remains [y,n]? ")
    terminal.press("y")
    terminal.until("confirmed")
    assert terminal.ended() == 0
    shown = codepilot("show", two_hunks, "--events")
    assert "hunks_reviewed" in shown.out
