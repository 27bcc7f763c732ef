"""Reports in the dialects that runners write, and as an enemy would."""

from __future__ import annotations

import time
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError
from codepilot.skills import parse_surefire_xml

SUREFIRE = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" name="org.FooTest" time="1.2" tests="4">
  <properties><property name="java.version" value="17"/></properties>
  <testcase name="steady" classname="org.FooTest" time="0.001">
    <system-out><![CDATA[<failure> not one]]></system-out></testcase>
  <testcase name="shaky" classname="org.FooTest" time="0.2">
    <flakyFailure message="once" type="AssertionError"><stackTrace>at Foo:1</stackTrace></flakyFailure>
  </testcase>
  <testcase name="wrong" classname="org.FooTest">
    <failure message="expected 1" type="AssertionError"><![CDATA[at Foo.java:3 <b> & more]]></failure>
    <rerunFailure message="expected 1 again" type="AssertionError"><stackTrace>at Foo:3</stackTrace></rerunFailure>
    <system-err>noise</system-err>
  </testcase>
  <testcase name="off" classname="org.FooTest"><skipped message="later"/></testcase>
</testsuite>"""

PYTEST = """<testsuites><testsuite name="pytest" errors="1" failures="1">
<testcase classname="tests.test_a.TestIt" name="test_x[1-a]" file="tests/test_a.py" line="3" time="0.1">
<failure message="assert 1 == 2">def test_x(): ...
E assert 1 == 2</failure></testcase>
<testcase classname="tests.test_a" name="test_y" file="tests/test_a.py" time="1.5E-5">
<error message="failed on teardown">E</error></testcase>
<testcase classname="" name="tests.test_broken" time="0">
<error message="collection failure">ImportError</error></testcase>
</testsuite></testsuites>"""

NESTED = """<testsuites><testsuite name="outer"><testsuite name="inner"><testcase name="a" classname="X"/></testsuite>
<testcase name="b" classname="Y"><failure/></testcase></testsuite></testsuites>"""


def test_surefire_tells_what_was_run_again() -> None:
    tests = parse_surefire_xml(SUREFIRE)
    assert [(test.test, test.status, test.flaky) for test in tests] == [
        ("org.FooTest#steady", "passed", False),
        ("org.FooTest#shaky", "passed", True),
        ("org.FooTest#wrong", "failed", False),
        ("org.FooTest#off", "skipped", False),
    ]
    assert (tests[2].message, tests[2].detail) == ("expected 1", "at Foo.java:3 <b> & more")
    assert tests[3].message == "later"


def test_pytest_gives_the_names_that_pytest_takes() -> None:
    tests = parse_surefire_xml(PYTEST)
    assert [(test.test, test.status) for test in tests] == [
        ("tests/test_a.py::TestIt::test_x[1-a]", "failed"),
        ("tests/test_a.py::test_y", "error"),
        ("tests.test_broken", "error"),
    ]
    assert tests[1].duration_sec == 1.5e-5


def test_suites_may_nest_and_failures_be_empty() -> None:
    assert [(test.test, test.status) for test in parse_surefire_xml(NESTED)] == [("X#a", "passed"), ("Y#b", "failed")]


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1), st.booleans())
    )
)
def test_what_is_written_is_read(cases: list[tuple[str, bool]]) -> None:
    body = ""
    for name, passed in cases:
        failure = "" if passed else f"<failure>{escape(name)}</failure>"
        body += f"<testcase name={quoteattr(name)}>{failure}</testcase>"
    read = parse_surefire_xml(f"<testsuite>{body}</testsuite>")
    assert [(test.test, test.status == "passed") for test in read] == [(name, passed) for name, passed in cases]
    assert all(test.detail == test.test for test in read if test.status == "failed")


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ('<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;&x;">]><a>&z;</a>', "DTD"),
        ("<testsuite>" + "<testcase name='a'/>" * 200_001 + "</testsuite>", "more than 200000 tests"),
        ("<a>" + "x" * (17 << 20) + "</a>", "larger than 16 MiB"),
        ("<a>&#27;</a>", "invalid character"),
        ("<?xml version='1.0' encoding='nonsense'?><a", "unclosed token"),
    ],
)
def test_what_an_enemy_writes_is_refused(report: str, why: str) -> None:
    with pytest.raises(CodePilotError, match=why):
        parse_surefire_xml(report)


def test_details_are_bounded_in_number_and_in_all() -> None:
    failure = f"<testcase name='a'><failure>{'x' * 100_000}</failure></testcase>"
    started = time.process_time()
    tests = parse_surefire_xml(f"<testsuite>{failure * 150}</testsuite>")
    assert len(tests) == 150
    assert max(len(test.detail) for test in tests) == 20_000
    assert sum(len(test.detail) for test in tests) < 9 << 20
    assert time.process_time() - started < 20


def test_what_nodes_own_runner_writes_is_read() -> None:
    tests = parse_surefire_xml((Path(__file__).parent / "reports" / "node.xml").read_text())
    assert [(test.test, test.status) for test in tests] == [
        ("test#adds", "passed"),
        ("test#wrong <&>", "failed"),
        ("test#later", "skipped"),
        ("test#inner", "failed"),
    ]
    assert tests[1].message == "Expected values to be strictly equal:1 !== 2"
