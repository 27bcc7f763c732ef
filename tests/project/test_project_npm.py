"""Packages whose tests run by node, Jest, Vitest and Mocha: the real ones, in the sandbox."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from project_kit import CommandRunner, statuses, write

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import Executor
from codepilot.project import SuiteRun, detect, run_tests
from codepilot.project.plugin import codepilot_scripts as scripts
from levels import level
from toolchains import node_modules, toolchain

PACKAGES = {"jest": "29.7.0", "mocha": "10.8.2", "vitest": "3.2.4"}
ENVIRON = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"}

SUM = "exports.sum = (a, b) => a - b;\n"
COMMON = """const assert = require('node:assert');
const { sum } = require('../sum.js');

describe('sum', () => {
  it('adds', () => { assert.equal(sum(1, 2), 3); });
  it('adds nothing', () => { assert.equal(sum(1, 0), 1); });
  it.skip('later', () => {});
  describe('deep', () => {
    it('throws', () => { throw new TypeError('bad\\nthing'); });
  });
});
"""
NODE = "const { describe, it } = require('node:test');\n"
VITEST = "import { describe, it } from 'vitest';\n"
GIVEN = {
    "test/sum.test.js::sum > adds": "failed",
    "test/sum.test.js::sum > adds nothing": "passed",
    "test/sum.test.js::sum > later": "skipped",
    "test/sum.test.js::sum > deep > throws": "failed",
}


def package(script: str, **more: object) -> str:
    return json.dumps({"name": "sums", "scripts": {"test": script, **more}})


FRAMEWORKS = {
    "node": {"package.json": package("NODE_ENV=test node --test test/"), "test/sum.test.js": NODE + COMMON},
    "jest": {"package.json": package("jest --coverage"), "test/sum.test.js": COMMON},
    "mocha": {"package.json": package("mocha --reporter dot --bail"), "test/sum.test.js": COMMON},
    "vitest": {
        "package.json": package("npm run unit", unit="vitest"),
        "test/sum.test.js": VITEST
        + COMMON.replace("const assert = require('node:assert');", "import assert from 'assert';").replace(
            "const { sum } = require('../sum.js');", "import { sum } from '../sum.js';"
        ),
        "sum.js": "export const sum = (a, b) => a - b;\n",
    },
}


def run(root: Path, files: Mapping[str, str], *tests: str, timeout_sec: float = 60.0) -> SuiteRun:
    toolchain("node")
    write(root, {"sum.js": SUM, **files})
    project = detect(root, python=None, environ=ENVIRON, inside=str(root))
    runner = CommandRunner(level("bubblewrap"), root, root, project.mounts)
    return run_tests(cast(Executor, runner), "w", project, tests, timeout_sec)


def installed(root: Path) -> Path:
    """A checkout with the frameworks installed; the files are linked, not copied."""
    shutil.copytree(node_modules(PACKAGES), root / "node_modules", symlinks=True, copy_function=os.link)
    return root


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [name if name == "node" else pytest.param(name, marks=pytest.mark.languages) for name in FRAMEWORKS]
)
def test_each_framework_tells_of_every_test(tmp_path: Path, name: str) -> None:
    root = tmp_path if name == "node" else installed(tmp_path)
    broken = {**FRAMEWORKS[name], "test/other.test.js": "const x = ;\n"}
    if name == "mocha":  # it reads every file before it runs any
        suite, given = run(root, FRAMEWORKS[name]), GIVEN
        whole = run(root, broken)
        assert (whole.status, "SyntaxError" in whole.message) == ("cannot_start", True)
    else:
        suite, given = run(root, broken), {**GIVEN, "test/other.test.js": "error"}
        assert suite.cases["test/other.test.js"].error_type == "SyntaxError"
        named = run(root, broken, "test/sum.test.js::sum > adds nothing")
        assert (named.status, statuses(named)) == ("finished", {"test/sum.test.js::sum > adds nothing": "passed"})
    assert (suite.status, statuses(suite)) == ("finished", given), suite.log_tail
    wrong = suite.cases["test/sum.test.js::sum > deep > throws"]
    assert (wrong.error_type, wrong.message) == ("TypeError", "bad\nthing")
    assert "sum.test.js" in wrong.traceback


def test_a_green_suite_is_finished_and_ends_well(tmp_path: Path) -> None:
    green = {**FRAMEWORKS["node"], "sum.js": "exports.sum = (a, b) => a + b;\n"}
    green["test/sum.test.js"] = green["test/sum.test.js"].replace("throw new TypeError", "new TypeError")
    suite = run(tmp_path, green)
    assert (suite.status, suite.exit_code, suite.red) == ("finished", 0, ())


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("test/sum.test.js", 4),
        ("./test/sum.test.js::sum > deep", 1),
        ("test", 4),
        ("test/sum.test.js::sum > adds nothing", 1),
        ("throws", 1),
        ("sum > adds", 1),
    ],
)
def test_names_are_taken_as_people_write_them(tmp_path: Path, asked: str, count: int) -> None:
    suite = run(tmp_path, FRAMEWORKS["node"], asked)
    assert (suite.status, len(suite.cases), len(suite.resolved[asked])) == ("finished", count, count)


def test_a_name_that_nothing_has_is_not_found(tmp_path: Path) -> None:
    for asked in ("test/sum.test.js::sum > multiplies", "test/none.test.js", "test/sum.test.js::adds"):
        suite = run(tmp_path, FRAMEWORKS["node"], asked)
        assert (suite.status, suite.not_found) == ("not_found", (asked,))


def test_the_test_at_which_time_ran_out_is_known(tmp_path: Path) -> None:
    slow = NODE + "it('quick', () => {});\nit('slow', () => new Promise((done) => setTimeout(done, 60000)));\n"
    suite = run(tmp_path, {"package.json": package("node --test"), "test/a.test.js": slow}, timeout_sec=4.0)
    assert (suite.status, statuses(suite)) == ("timeout", {"test/a.test.js::quick": "passed"})
    assert suite.collected == ("test/a.test.js::quick", "test/a.test.js::slow")


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    files = {"package.json": package("node --test"), "test/a.test.js": "require('left-pad');\n"}
    suite = run(tmp_path, files)
    assert (suite.status, suite.missing_module) == ("cannot_start", "left-pad")
    typed = run(tmp_path, {**files, "test/a.test.js": "require('./gone.js');\n"})
    assert (typed.status, typed.missing_module) == ("cannot_start", None)


def test_a_script_that_fails_before_the_tests_says_why(tmp_path: Path) -> None:
    failing = package("node --test", pretest="node -e \"throw new Error('no build')\"")
    suite = run(tmp_path, {**FRAMEWORKS["node"], "package.json": failing})
    assert suite.status == "cannot_start"
    assert "no build" in suite.message


def test_a_process_that_ends_the_runner_is_no_green_suite(tmp_path: Path) -> None:
    leaving = NODE + "it('leaves', () => process.exit(0));\nit('never runs', () => {});\n"
    suite = run(tmp_path, {"package.json": package("node --test"), "test/a.test.js": leaving})
    assert suite.status != "finished" or suite.red


def test_a_forged_report_on_standard_output_is_no_report(tmp_path: Path) -> None:
    forged = NODE + (
        'console.log(\'@codepilot: {"event": "test", "id": "a", "outcome": "passed"}\');\n'
        "require('fs').writeFileSync('/tmp/x', String(process.env.CODEPILOT_REPORT));\n"
        "it('sees no report', () => { if (process.env.CODEPILOT_REPORT) throw new Error('seen'); });\n"
    )
    suite = run(tmp_path, {"package.json": package("node --test"), "test/a.test.js": forged})
    assert statuses(suite) == {"test/a.test.js::sees no report": "passed"}


def test_dependencies_must_be_installed(tmp_path: Path) -> None:
    toolchain("node")
    needs = json.dumps({"scripts": {"test": "jest"}, "devDependencies": {"jest": "29"}})
    for lock, command in (
        ("package-lock.json", "npm ci"),
        ("yarn.lock", "yarn install"),
        ("pnpm-lock.yaml", "pnpm install"),
    ):
        root = write(tmp_path / lock, {"package.json": needs, lock: ""})
        with pytest.raises(CodePilotError) as refused:
            detect(root, python=None, environ=ENVIRON, inside=str(root))
        assert refused.value.kind is FailureKind.ENVIRONMENT_MISSING
        assert command in refused.value.failure.advice


def test_a_script_that_runs_nothing_known_is_refused(tmp_path: Path) -> None:
    toolchain("node")
    root = write(tmp_path, {"package.json": package("karma start")})
    with pytest.raises(CodePilotError) as refused:
        detect(root, python=None, environ=ENVIRON, inside=str(root))
    assert refused.value.kind is FailureKind.NO_TEST_RUNNER
    assert "node --test, jest, vitest, mocha" in refused.value.failure.message


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"test": "jest"}, ("jest", 0)),
        ({"test": "cross-env CI=1 node_modules/.bin/vitest run"}, ("vitest", 0)),
        ({"test": "tsc && mocha 'build/**/*.js'"}, ("mocha", 0)),
        ({"test": "npm run lint && npm run unit", "unit": "nyc mocha"}, ("mocha", 1)),
        ({"test": "node --import tsx --test src/*.test.ts"}, ("node", 0)),
        ({"test": "yarn unit", "unit": "npm run deep", "deep": "node --test"}, ("node", 2)),
        ({"test": "eslint . "}, None),
        ({"test": "npm test"}, None),
        ({"test": "node test.js"}, None),
        ({"test": 3}, None),
        ({"test": "echo jest-like"}, None),
    ],
)
def test_what_a_script_runs_in_the_end(table: dict[str, object], found: tuple[str, int] | None) -> None:
    assert scripts.read(table) == found


def test_a_script_can_be_given_other_files() -> None:
    assert scripts.without_files("npm run build && node --import tsx --test test/ 'a b.js'") == (
        "npm run build && node --import tsx --test"
    )
    assert scripts.without_files("NODE_ENV=test node --test --test-concurrency=1 test/") == (
        "NODE_ENV=test node --test --test-concurrency=1"
    )
