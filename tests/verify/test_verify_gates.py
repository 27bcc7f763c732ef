"""Every gate is recorded with what was seen before and after; linters and commands run for real in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest
from verify_kit import ADD, BASE, MENDED, Files, Lab, LabMaker

from codepilot.core.artifacts import GateName, TestResult, TestSummary
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project import SuiteRun
from codepilot.verify import Baseline, GateJudge, LintBench
from codepilot.verify.gates import new_findings
from codepilot.workspace import Entry

TEST_GATES: tuple[GateName, ...] = ("fail_to_pass", "pass_to_pass")
RUFF = {**BASE, "ruff.toml": "[lint]\nselect = ['F']\n"}


def tree_of(lab: Lab, files: Files) -> str:
    """Files of `bin` directories are executable."""
    modes = {path: "100755" if "bin/" in path else "100644" for path in files}
    return lab.objects.write_tree(
        {path: Entry(modes[path], lab.objects.write_blob(text.encode())) for path, text in files.items()}
    )


BASELINE = Baseline((ADD,), "s", cast(SuiteRun, None), TestSummary(passed=3, failed=(ADD,)), "full")
GREEN = TestResult(passed=True, cmd=("t",), exit_code=0, summary=TestSummary(passed=4), suite="full")


def judged(
    lab: Lab,
    after: Files,
    wanted: tuple[GateName, ...],
    commands: tuple[str, ...] = (),
    tests: TestResult = GREEN,
) -> TestResult:
    """The gates on the change from the lab's base to `after`, whose tests gave `tests`."""

    def base_workspace() -> str:
        lab.executor.delete("base")
        lab.executor.create(lab.request("base", lab.base_tree))
        return "base"

    lab.executor.delete("after")
    lab.executor.create(lab.request("after", tree_of(lab, after)))
    before = lab.objects.read_tree(lab.base_tree)
    judge = GateJudge(
        executor=lab.executor,
        workspace="after",
        base_workspace=base_workspace,
        project=lab.project,
        baseline=BASELINE,
        changes=lab.executor.diff("after", lab.base_tree).changes,
        before=lambda path: lab.objects.read_blob(before[path].oid) if path in before else None,
        after=lambda path: after[path].encode() if path in after else None,
        command_sec=60.0,
    )
    return judge.of(wanted, commands, tests)


def gates(result: TestResult) -> Mapping[str, tuple[bool | None, str, str]]:
    return {gate.name: (gate.ok, gate.before, gate.after) for gate in result.gates}


def test_gates_of_the_tests_and_of_the_contract_are_reported_before_and_after(make_lab: LabMaker) -> None:
    base = {**RUFF, "calc.py": f"import os\n\n{BASE['calc.py']}"}
    lab = make_lab(base)
    mended = {**base, "calc.py": f"'''Sums.'''\nimport os\n\n{MENDED}"}
    wanted: tuple[GateName, ...] = (*TEST_GATES, "compiles", "lint", "command")
    clean = judged(lab, mended, wanted, ("grep -q Sums calc.py",))
    assert clean.passed
    assert gates(clean) == {
        "fail_to_pass": (True, "1 fail", "1 pass"),
        "pass_to_pass": (True, "3 pass", "4 pass, 0 broken"),
        "compiles": (True, "0 file(s) cannot be parsed", "0 file(s) cannot be parsed"),
        "lint": (True, "1 finding(s)", "1 finding(s), 0 new"),
        "command": (True, "exit code 1", "exit code 0"),
    }
    worse = {**mended, "calc.py": f"import sys\n{mended['calc.py']}", "new.py": "def broken(:\n"}
    red = judged(lab, worse, wanted, ("echo no; false",))
    assert (red.passed, [error.test for error in red.errors]) == (False, ["compiles", "lint", "command"])
    assert [gate.ok for gate in red.gates] == [True, True, False, False, False]
    assert "calc.py:1 F401" in red.gates[3].evidence
    assert red.gates[4].evidence == "echo no; false: no"
    assert red.signature


def test_a_change_that_leaves_tests_red_is_not_linted(make_lab: LabMaker) -> None:
    lab = make_lab(RUFF)
    broken = GREEN.model_copy(update={"passed": False, "regressions": ("t::two",)})
    result = judged(lab, {**RUFF, "calc.py": MENDED}, (*TEST_GATES, "lint"), ("true",), broken)
    assert [(gate.name, gate.ok) for gate in result.gates] == [("fail_to_pass", True), ("pass_to_pass", False)]


FOUND = {"messages": [{"ruleId": "no-var", "message": "Unexpected var.", "line": 3}]}
ESLINT = json.dumps([{"filePath": "/somewhere/web/app.js", **FOUND}, {"filePath": "/somewhere/other.js", **FOUND}])
STYLE = (
    '<checkstyle version="9"><file name="/x/src/A.java"><error line="7" severity="warning" '
    'message="&apos;if&apos; is not followed by whitespace." source="a.WhitespaceCheck"/></file></checkstyle>'
)


@pytest.mark.parametrize(
    ("name", "files", "touched", "evidence"),
    [
        (
            "eslint",
            {
                "eslint.config.js": "",
                "node_modules/.bin/eslint": "#!/bin/sh\n[ $1 = --version ] && exit 0\n"
                f"grep -q var web/app.js || exec echo '[]'\necho '{ESLINT}'\nexit 1\n",
            },
            {"web/app.js": "var one = 1\n"},
            "web/app.js:3 no-var Unexpected var.",
        ),
        (
            "checkstyle",
            {
                "pom.xml": "<artifactId>maven-checkstyle-plugin</artifactId>",
                "bin/mvn": f'#!/bin/sh\nmkdir -p target\ngrep -q "if(" src/A.java || exit 0\n'
                f"echo '{STYLE}' > target/checkstyle-result.xml\n",
            },
            {"src/A.java": "if("},
            "src/A.java:7 a.WhitespaceCheck 'if' is not followed by whitespace.",
        ),
    ],
)
def test_other_linters_are_run_and_read(
    make_lab: LabMaker, name: str, files: Files, touched: Files, evidence: str
) -> None:
    base = {**BASE, **files, **dict.fromkeys(touched, "\n")}
    lab = make_lab(base)
    env = {**lab.project.env, "PATH": "bin:/usr/local/bin:/usr/bin:/bin"}
    lab.project = replace(lab.project, runner="maven" if name == "checkstyle" else lab.project.runner, env=env)
    bench = LintBench(lab.executor, lab.project, lambda path: base[path].encode() if path in base else None, 60.0)
    (linter,) = bench.linters()
    assert linter.name == name
    found = {}
    for place, files in (("before", base), ("after", {**base, **touched})):
        lab.executor.create(lab.request(place, tree_of(lab, files)))
        found[place] = bench.findings(place, linter, list(touched))
    bench.require("after")
    assert found["before"] == []
    assert [f"{one.path}:{one.line} {one.rule} {one.message}" for one in found["after"]] == [evidence]
    assert new_findings(found["before"], found["after"]) == found["after"]
    assert new_findings([found["after"][0]._replace(line=1)], found["after"]) == []


def test_without_a_configured_linter_lint_is_not_judged(make_lab: LabMaker) -> None:
    lab = make_lab(BASE)
    result = judged(lab, {**BASE, "calc.py": MENDED}, (*TEST_GATES, "lint"))
    (lint,) = (gate for gate in result.gates if gate.name == "lint")
    assert (result.passed, lint.ok) == (True, None)
    assert lint.evidence == "the project configures none of ruff, eslint, checkstyle"


@pytest.mark.parametrize(
    ("files", "kind", "message"),
    [({"eslint.config.mjs": ""}, FailureKind.ENVIRONMENT_MISSING, "eslint is configured, but it cannot be run here")],
)
def test_a_demanded_lint_that_cannot_be_judged_is_refused(
    make_lab: LabMaker, files: Files, kind: FailureKind, message: str
) -> None:
    lab = make_lab({**BASE, **files})
    lab.executor.create(lab.request("before", lab.base_tree))
    bench = LintBench(lab.executor, lab.project, lambda path: files[path].encode() if path in files else None, 60.0)
    with pytest.raises(CodePilotError, match=message) as refused:
        bench.require("before")
    assert refused.value.kind is kind
