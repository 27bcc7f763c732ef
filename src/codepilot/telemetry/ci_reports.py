"""The result of a run in the forms that CI systems read: JUnit XML and SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from codepilot.core.events import State
from codepilot.core.run import Run

_PLACE = re.compile(r"^([^\s:;,]+\.\w{1,10}):(?:(\d{1,9})\b)?")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Judged(NamedTuple):
    """One thing that was judged; `ok` is None if there was nothing to judge."""

    group: str
    name: str
    ok: bool | None
    evidence: str


def _judged(run: Run) -> Iterator[_Judged]:
    for test in run.baseline.targets if run.baseline else ():
        failing = run.test_result is None or test in run.test_result.failed_tests_after
        yield _Judged("tests", test, not failing, "it still fails" if failing else "fails before and passes after")
    for gate in run.test_result.gates if run.test_result else ():
        yield _Judged("gates", gate.name, gate.ok, gate.evidence)
    for check in run.review.policy_checks if run.review else ():
        yield _Judged("review", check.name, check.ok, check.evidence)
    for check in run.proof.checks if run.proof else ():
        yield _Judged("proof", check.name, check.ok, check.evidence)
    ended = run.failure.message if run.failure else ""
    yield _Judged("verdict", run.verdict or str(run.state), run.state is State.DONE, ended)


def junit_xml(run: Run) -> bytes:
    """One test case for each gate, check and named test."""
    cases = list(_judged(run))
    failures = sum(1 for case in cases if case.ok is False)
    counts = {"tests": str(len(cases)), "failures": str(failures), "time": f"{run.spent.wall_us / 1e6:.3f}"}
    root = Element("testsuites", counts)
    suite = SubElement(root, "testsuite", {"name": f"codepilot {run.task.kind} {run.run_id}", **counts})
    for case in cases:
        element = SubElement(suite, "testcase", {"classname": f"codepilot.{case.group}", "name": _xml(case.name)})
        if case.ok is False:
            SubElement(element, "failure", {"message": _xml(case.evidence)[:500]}).text = _xml(case.evidence)
        elif case.ok is None:
            SubElement(element, "skipped", {"message": _xml(case.evidence)[:500]})
    return bytes(tostring(root, encoding="utf-8", xml_declaration=True))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def sarif_json(run: Run) -> bytes:
    """One result for each check that does not hold, at the file and line that its evidence names."""
    failed = [case for case in _judged(run) if case.ok is False]
    if run.verdict == "plausible" and run.proof is not None:
        failed.append(_Judged("verdict", "plausible", False, run.proof.reason))
    rules = sorted({case.name if case.group != "tests" else "named_test" for case in failed})
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "codepilot", "rules": [{"id": rule} for rule in rules]}},
                "results": [_result(case) for case in failed],
            }
        ],
    }
    return json.dumps(document, indent=2).encode()


def _result(case: _Judged) -> dict[str, object]:
    name = case.name if case.group != "tests" else "named_test"
    result: dict[str, object] = {
        "ruleId": name,
        "level": "warning" if name in ("plausible", "tests_are_strong") else "error",
        "message": {"text": f"{case.name}: {case.evidence}" if case.evidence else case.name},
    }
    place = _PLACE.match(case.name if case.group == "tests" else case.evidence)
    if place is not None:
        location: dict[str, object] = {"artifactLocation": {"uri": place[1]}}
        if place[2]:
            location["region"] = {"startLine": int(place[2])}
        result["locations"] = [{"physicalLocation": location}]
    return result
