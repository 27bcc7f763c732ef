"""`codepilot prove`: the verdict, and the reports for CI systems."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import parse

from cli_kit import SHOP, Command

RIGHT = SHOP.replace("amount > limit", "amount >= limit")


def test_reports_are_written_whatever_the_verdict(codepilot: Command, shop: Path, tmp_path: Path) -> None:
    junit, sarif = tmp_path / "reports/prove.xml", tmp_path / "reports/prove.sarif"
    reports = ("--junit", str(junit), "--sarif", str(sarif))
    (shop / "shop.py").write_text(RIGHT, encoding="utf-8")
    ended = codepilot("prove", str(shop), *reports)
    assert ended.code == 0 and "confirmed" in ended.out, ended.err
    assert "codepilot apply" not in ended.out  # the change is in the checkout already
    assert parse(junit).getroot().get("failures") == "0"
    assert json.loads(sarif.read_text())["runs"][0]["results"] == []
    (shop / "shop.py").write_text(RIGHT.replace("return", "return None and", 1), encoding="utf-8")
    refused = codepilot("prove", str(shop), *reports)
    assert refused.code in (1, 5), refused.out + refused.err
    assert parse(junit).getroot().get("failures") != "0"
    assert json.loads(sarif.read_text())["runs"][0]["results"]


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_judged(
    codepilot: Command, shop: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file/prove.xml", tmp_path):
        ended = codepilot("prove", str(shop), "--junit", str(place))
        assert (ended.code, "--junit" in ended.err, codepilot.newest()) == (2, True, None)
