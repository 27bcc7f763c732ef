"""Reading reports of test runs: Surefire, Gradle, JUnit and pytest XML. Standard library only: it also runs inside.

Reports are hostile input: one pass, no DTD, no entities, bounded depth, number and size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_CASES = 200_000
MAX_KIND = 200
MAX_MESSAGE = 2_000
MAX_DETAIL = 20_000
MAX_DETAILS = 8 << 20
"""The limit on all details of a report, in characters; more is dropped."""

BAD = {"failure": "failed", "error": "error", "skipped": "skipped"}
AGAIN = frozenset({"rerunFailure", "rerunError", "flakyFailure", "flakyError"})
"""Earlier runs of a test that was run again; `flaky` ones passed in the end."""


class BadReport(Exception):
    """The text is not a report that can be read; the message says why."""


@dataclass
class Case:
    """One test of a report. `place` is its file, if the report has it; `kind` is the type of its exception."""

    name: str
    group: str = ""
    place: str = ""
    status: str = "passed"
    message: str = ""
    detail: str = ""
    seconds: float = 0.0
    flaky: bool = False
    kind: str = ""

    @property
    def test(self) -> str:
        """The name that the runner takes: pytest's when the file is known, `Class#method` otherwise."""
        if not self.place.endswith(".py"):
            return "#".join(part for part in (self.group, self.name) if part)
        module = self.place[:-3].replace("\\", "/").replace("/", ".")
        inner = self.group[len(module) + 1 :] if f"{self.group}.".startswith(f"{module}.") else ""
        return "::".join([self.place, *(part for part in inner.split(".") if part), self.name])


@dataclass
class _Reading:
    """The state of the parser."""

    cases: list[Case] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    case: Case | None = None
    taking: bool = False
    text: list[str] = field(default_factory=list)
    length: int = 0
    kept: int = 0

    def opened(self, name: str, given: dict[str, str]) -> None:
        self.path.append(name)
        if len(self.path) > MAX_DEPTH:
            raise BadReport(f"its elements nest deeper than {MAX_DEPTH}")
        if name == "testcase" and self.case is None:
            self._new(given)
        elif self.case is not None and self.path[-2] == "testcase":
            self._outcome(self.case, name, given)

    def _new(self, given: dict[str, str]) -> None:
        if len(self.cases) >= MAX_CASES:
            raise BadReport(f"it has more than {MAX_CASES} tests")
        group, place = given.get("classname", ""), given.get("file", "")
        self.case = Case(given.get("name", ""), group, place, seconds=_seconds(given.get("time", "")))
        self.cases.append(self.case)

    def _outcome(self, case: Case, name: str, given: dict[str, str]) -> None:
        case.flaky = case.flaky or name.startswith("flaky")
        if name in BAD and case.status in ("passed", "skipped"):
            case.status = BAD[name]
            case.kind = given.get("type", "")[:MAX_KIND]
            case.message = (given.get("message") or given.get("type") or "")[:MAX_MESSAGE]
            self.taking, self.text, self.length = True, [], 0

    def text_read(self, text: str) -> None:
        if self.taking and self.length < MAX_DETAIL and self.kept < MAX_DETAILS:
            self.text.append(text)
            self.length += len(text)
            self.kept += len(text)

    def closed(self, name: str) -> None:
        self.path.pop()
        if name == "testcase" and "testcase" not in self.path:
            self.case = None
        elif self.taking and name in BAD and self.case is not None:
            self.case.detail = "".join(self.text).strip()[:MAX_DETAIL]
            self.taking = False


def read_report(report: str | bytes, limit: int = MAX_BYTES) -> list[Case]:
    """The tests of a report in their order, or BadReport."""
    from xml.parsers import expat

    if len(report) > limit:
        raise BadReport(f"it is larger than {limit >> 20} MiB")
    reading = _Reading()
    text = isinstance(report, str)
    parser = expat.ParserCreate("utf-8" if text else None)
    parser.buffer_text = True
    parser.StartElementHandler = reading.opened
    parser.EndElementHandler = reading.closed
    parser.CharacterDataHandler = reading.text_read
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _declared
    try:
        parser.Parse(report.encode("utf-8", "replace") if isinstance(report, str) else report, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise BadReport(str(error)) from None
    return reading.cases


def _declared(*_: object) -> None:
    raise BadReport("it declares a DTD or entities")


def _seconds(text: str) -> float:
    return (
        float(text.replace(",", "")) if re.fullmatch(r"[\d,]{1,20}(\.\d{1,20})?(E-\d{1,3})?", text, re.ASCII) else 0.0
    )
