from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.skills import check_policy, parse_surefire_xml, score_patch_quality
from codepilot.telemetry import redact

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="StringUtilsTest" tests="4">
  <testcase name="strips" classname="org.StringUtilsTest" time="0.012"/>
  <testcase name="pads" classname="org.StringUtilsTest" time="1,002.5">
    <failure message="expected: &lt;a&gt; but was: &lt;b&gt;" type="AssertionError">at Foo.java:3</failure>
  </testcase>
  <testcase name="breaks" classname="org.StringUtilsTest"><error type="NullPointerException"/></testcase>
  <testcase name="waits" classname="org.StringUtilsTest"><skipped/></testcase>
</testsuite>"""


def test_a_surefire_report_gives_its_tests() -> None:
    tests = parse_surefire_xml(REPORT)
    assert [(test.test.partition("#")[2], test.status) for test in tests] == [
        ("strips", "passed"),
        ("pads", "failed"),
        ("breaks", "error"),
        ("waits", "skipped"),
    ]
    assert tests[1].message == "expected: <a> but was: <b>"
    assert tests[1].duration_sec == 1002.5
    assert tests[2].message == "NullPointerException"


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ('<!DOCTYPE x [<!ENTITY a "b">]><testsuite>&a;</testsuite>', "DTD or entities"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>', "DTD or entities"),
        ("<a>" * 100 + "</a>" * 100, "nest deeper"),
        ("<testsuite>", "no element found"),
        ("", "no element found"),
    ],
)
def test_hostile_or_broken_reports_are_refused(report: str, why: str) -> None:
    with pytest.raises(CodePilotError, match=why) as caught:
        parse_surefire_xml(report)
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


@given(st.text())
def test_any_text_is_a_report_or_refused(report: str) -> None:
    try:
        parse_surefire_xml(report)
    except CodePilotError as error:
        assert error.kind is FailureKind.TOOL_INVALID_ARGS


def patch(*added: str) -> str:
    return "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n" + "".join(f"+{line}\n" for line in added)


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("AWS = 'AKIAABCDEFGHIJKLMNOP'", "no_hardcoded_secrets"),
        ('password = "hunter2hunter2"', "no_hardcoded_secrets"),
        ("@pytest.mark.skip(reason='x')", "no_disabled_tests"),
        ("@Ignore", "no_disabled_tests"),
        ("breakpoint()", "no_debug_left"),
    ],
)
def test_what_policy_forbids_is_found(line: str, check: str) -> None:
    broken = {seen.name for seen in check_policy(patch(line)) if not seen.ok}
    assert broken == {check}


def test_secrets_are_not_repeated_as_evidence() -> None:
    assert all("AKIA" not in seen.evidence for seen in check_policy(patch("k = 'AKIAABCDEFGHIJKLMNOP'")))


def test_a_clean_patch_holds_and_size_is_counted() -> None:
    assert all(seen.ok for seen in check_policy(patch("x = 1")))
    assert [seen.name for seen in check_policy(patch("x = 1", "y = 2"), 2) if not seen.ok] == [
        "patch_within_size_limit"
    ]


def test_quality_falls_with_each_remark() -> None:
    clean = score_patch_quality(patch("x = 1"))
    messy = score_patch_quality(patch("x = 1  # TODO", "breakpoint()"))
    assert (clean.added, clean.removed, clean.files) == (1, 1, 1)
    assert clean.score > messy.score
    assert score_patch_quality("").score == 0.0


@pytest.mark.parametrize(
    "secret",
    [
        "AKIA" + "ABCDEFGH12345678",
        "ghp_" + "a1" * 18,
        "sk-ant-" + "api03-" + "Ab1_" * 12,
        "sk_live_" + "a1B2" * 8,
        "xoxb-" + "123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJlLWhlcmU",
        "https://user:" + "hunter22@example.org/",
    ],
)
def test_what_is_redacted_is_found_in_a_patch_too(secret: str) -> None:
    """Redaction and checks read one table."""
    diff = f"--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n x = 1\n+# {secret}\n"
    found = {check.name: check.ok for check in check_policy(diff)}
    assert not found["no_hardcoded_secrets"]
    assert secret not in redact(secret)
