"""What a security scanner says of a change, scanned inside for real; and the files that a reader is shown first."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Severity
from codepilot.core.task import Budget
from codepilot.executor import (
    CommandResult,
    CreateWorkspace,
    DiffResult,
    Executor,
    FileChange,
    LocalExecutor,
    RunCommand,
)
from codepilot.sandbox import choose, probe
from codepilot.verify import Finding, Scan, flagged, review, scan_generated, security_scan
from codepilot.verify.security_scan import PACKAGES, generated_code
from codepilot.workspace import ObjectStore

Tree = dict[str, bytes]
NAME = "r-1"
SHELL = b"import subprocess\nsubprocess.call(cmd, shell=True)\n"
PLAIN = b"def add(a, b):\n    return a + b\n"


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def executor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    report = next(report for report in probe() if report.level == request.param)
    if not report.available:
        message = f"{request.param} does not work here: {report.reason}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    folder = tmp_path_factory.mktemp("scan").resolve()
    with ObjectStore.open(folder / "objects") as store:
        tree = store.write_tree({})
    made = LocalExecutor(folder / "workspaces", choose(request.param))
    made.create(CreateWorkspace(workspace=NAME, objects=str(folder / "objects"), tree=tree))
    yield made
    made.close()


def changes_of(before: Tree, after: Tree) -> tuple[FileChange, ...]:
    kinds = {
        path: "added" if path not in before else "deleted" if path not in after else "modified"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    }
    return tuple(FileChange.model_validate({"path": path, "change": kind}) for path, kind in kinds.items())


def scanned(executor: Executor, before: Tree, after: Tree) -> Scan:
    return scan_generated(executor, NAME, changes_of(before, after), before.get, after.get)


def found(scan: Scan) -> set[tuple[str, str, Severity]]:
    return {(one.path, one.test, one.severity) for one in scan.findings}


def test_what_a_change_brings_is_found_and_what_was_there_is_not(executor: LocalExecutor) -> None:
    before = {"old.py": SHELL, "gone.py": b"import pickle\npickle.loads(x)\n", "calc.py": PLAIN}
    after = {
        "old.py": b"# moved down\n\n" + SHELL,
        "new_home.py": before["gone.py"],
        "calc.py": PLAIN + b"\n\nimport hashlib\nKEY = hashlib.md5(b'x')  # nosec\n",
        "tests/test_calc.py": b"def test_it():\n    password = 'hunter22'\n    assert password\n",
        "bin/tool": b"#!/usr/bin/env python3\nimport os\nos.system(name)\n",
        "notes.txt": SHELL,
        ".bandit": b"[bandit]\nskips: B324,B605\n",
        "pyproject.toml": b"[tool.bandit]\nskips = ['B324', 'B605']\n",
    }
    scan = scanned(executor, before, after)
    assert ("calc.py", "B324", "high") in found(scan)
    assert ("bin/tool", "B605", "high") in found(scan)
    assert {path for path, _, _ in found(scan)} == {"calc.py", "bin/tool"}
    assert (scan.unread, scan.opaque) == ((), ())
    assert next(one.line for one in scan.findings if one.test == "B324") == 6


def test_a_second_copy_of_a_known_finding_counts(executor: LocalExecutor) -> None:
    before, after = {"a.py": SHELL}, {"a.py": SHELL + b"subprocess.call(cmd, shell=True)\n"}
    assert [(one.test, one.line) for one in scanned(executor, before, after).findings] == [("B602", 3)]


def test_a_file_that_cannot_be_read_is_never_taken_for_clean(executor: LocalExecutor) -> None:
    deep = b"x = " + b"(" * 300 + b")" * 300 + b"\n"
    before = {"two.py": b"print 'python 2'\n"}
    after = {
        "two.py": b"print 'python 2 still'\n",
        "deep.py": deep,
        "nul.py": b"x = '\0'\n",
        "huge.py": b"#" * (3 << 20),
    }
    scan = scanned(executor, before, after)
    assert {what.partition(":")[0] for what in scan.unread} == {"deep.py", "nul.py", "huge.py"}
    assert [what.partition(":")[0] for what in scan.opaque] == ["two.py"]
    check = generated_code(scan, "high")
    assert not check.ok
    assert "could not be scanned: deep.py" in check.evidence


def test_a_scanner_that_does_not_end_means_not_scanned(executor: LocalExecutor) -> None:
    changes = changes_of({}, {"a.py": PLAIN})
    scan = scan_generated(executor, NAME, changes, {}.get, {"a.py": PLAIN}.get, timeout_sec=0.05)
    assert scan.unread and "a.py" in scan.unread[0] and "Bandit gave no report" in scan.unread[0]


def test_a_scanner_that_is_not_installed_is_a_typed_failure(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_scan, "PACKAGES", (*PACKAGES, "a_scanner_that_nobody_has"))
    with pytest.raises(CodePilotError, match="a_scanner_that_nobody_has is not installed with CodePilot") as caught:
        scanned(executor, {}, {"a.py": PLAIN})
    assert caught.value.kind is FailureKind.TOOL_MISSING
    assert caught.value.failure.next_action


def test_a_scanner_that_dies_means_not_scanned(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    for crash in ("import os; os.abort()", "import os; os._exit(0)", "raise SystemExit(2)"):
        monkeypatch.setattr(security_scan, "_SCAN", crash)
        scan = scanned(executor, {"a.py": SHELL}, {"a.py": PLAIN})
        assert len(scan.unread) == 1 and "Bandit gave no report" in scan.unread[0]
        check = generated_code(scan, "high")
        assert (check.ok, "could not be scanned: a.py" in check.evidence) == (False, True)


def test_the_added_interpreter_reads_nothing_of_the_workspace(executor: LocalExecutor) -> None:
    executor.run_command(RunCommand(workspace=NAME, argv=("/bin/sh", "-c", "echo 'raise SystemExit(9)' > bandit.py")))
    source = "import bandit, sys; print(bandit.__name__, sys.argv[1:], sys.flags.isolated); open(bandit.__file__, 'w')"
    done = executor.run_command(RunCommand(workspace=NAME, argv=(source, "one", "two"), packages=PACKAGES))
    assert done.stdout == b"bandit ['one', 'two'] 1\n"
    assert done.exit_code == 1 and (b"Read-only" in done.stderr or b"Permission" in done.stderr)
    executor.run_command(RunCommand(workspace=NAME, argv=("/bin/rm", "bandit.py")))


class Answering:
    """An executor whose scanner says whatever a test wants; `asked` counts."""

    def __init__(self, stdout: bytes, status: str = "ok") -> None:
        self._result = CommandResult.model_validate(
            {"status": status, "exit_code": 0, "stdout": stdout, "stderr": b"boom"}
        )
        self.asked = 0

    def run_command(self, request: RunCommand) -> CommandResult:
        self.asked += 1
        return self._result


def answered(stdout: bytes, status: str = "ok") -> Scan:
    return scanned(Answering(stdout, status), {}, {"a.py": PLAIN})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stdout",
    [
        b"",
        b"[]",
        b"null",
        b'{"found": []}',
        b'{"found": [["9.py", "B1", "t", "LOW", "x", 1]], "unread": []}',
        b'{"found": [["0.py", "B1", "t", "WILD", "x", 1]], "unread": []}',
        b'{"found": [["0.py", "B1", "t", "LOW", "x", "one"]], "unread": []}',
        b'{"found": [["0.py", "B1", "t", "LOW", "x", Infinity]], "unread": []}',
        b'{"found": [["0.py", "B1", "t", "LOW", "x", NaN]], "unread": []}',
        b'{"found": [["0.py"]], "unread": []}',
        b'{"found": 3, "unread": []}',
        b"[" * 100_000,
    ],
)
def test_a_report_that_does_not_fit_means_not_scanned(stdout: bytes) -> None:
    assert answered(stdout).unread


@given(st.binary(max_size=60))
def test_no_report_whatever_is_taken_for_clean_by_accident(stdout: bytes) -> None:
    assert answered(stdout).unread


@pytest.mark.parametrize("status", ["error", "timeout", "limit", "interrupted"])
def test_a_scanner_that_failed_means_not_scanned(status: str) -> None:
    assert answered(b'{"found": [], "unread": []}', status).unread


def test_a_change_without_python_runs_nothing() -> None:
    silent = Answering(b"")
    before = {"gone.py": PLAIN}
    assert scanned(silent, before, {"README.md": b"x", "run.sh": b"#!/bin/sh\n"}) == Scan()  # type: ignore[arg-type]
    assert silent.asked == 0


def finding(severity: Severity, message: str = "something") -> Finding:
    return Finding("a.py", 1, "B1", severity, message)


@pytest.mark.parametrize(
    ("threshold", "severity", "ok"),
    [
        ("high", "high", False),
        ("high", "medium", True),
        ("medium", "medium", False),
        ("medium", "low", True),
        ("low", "low", False),
    ],
)
def test_the_threshold_decides_and_the_rest_is_evidence(threshold: Severity, severity: Severity, ok: bool) -> None:
    check = generated_code(Scan((finding(severity),)), threshold)
    assert (check.name, check.ok) == ("generated_code", ok)
    assert check.evidence == f"a.py:1 something (B1, {severity})"


def test_the_review_refuses_grave_findings_and_leaves_the_check_out_when_it_is_off() -> None:
    before, after = {"a.py": PLAIN}, {"a.py": PLAIN + b"X = 1\n"}
    diff = DiffResult(patch=b"+X = 1\n", base_tree="b", tree="c", changes=changes_of(before, after))

    def verdict(scan: Scan | None) -> tuple[str, bool]:
        given = review(diff, before.get, after.get, Budget(), scan=scan)
        return given.verdict, "generated_code" in {check.name for check in given.policy_checks}

    assert verdict(Scan((finding("high"),))) == ("REQUEST_CHANGES", True)
    assert verdict(Scan((finding("low"),))) == ("APPROVE", True)
    assert verdict(Scan(unread=("a.py: it is strange",))) == ("REQUEST_CHANGES", True)
    assert verdict(None) == ("APPROVE", False)


def test_evidence_never_repeats_a_secret(executor: LocalExecutor) -> None:
    scan = scanned(executor, {}, {"a.py": b"password = 'correct-horse-battery'\n"})
    assert {one.test for one in scan.findings} == {"B105"}
    assert "horse" not in generated_code(scan, "low").evidence


# Flags ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        ".mvn/jvm.config",
        ".mvn/extensions.xml",
        "service/.mvn/wrapper/maven-wrapper.properties",
        "gradle/wrapper/gradle-wrapper.jar",
        "gradle.properties",
        "init.gradle.kts",
        ".npmrc",
        "web/.yarnrc.yml",
        ".pnpmfile.cjs",
        ".cargo/config",
        ".cargo/config.toml",
        "docs/.gitattributes",
        ".gitmodules",
        ".husky/pre-commit",
        ".husky/_/husky.sh",
        ".githooks/pre-push",
        ".pre-commit-config.yaml",
        ".envrc",
        ".vscode/tasks.json",
        ".VSCode/Tasks.json",
        ".idea/runConfigurations/x.xml",
        ".github/workflows/ci.yml",
        "sitecustomize.py",
        "src/evil.pth",
        "pip.conf",
    ],
)
def test_configuration_that_makes_tools_run_or_reach_something_is_flagged(path: str) -> None:
    (flag,) = flagged([FileChange(path=path, change="added", new_mode="100644")])
    assert (flag.rule, flag.paths) == ("tool_configuration", (path,))


@pytest.mark.parametrize(
    "path",
    [
        "setup.cfg",
        "tox.ini",
        "pytest.ini",
        "Makefile",
        "src/app.py",
        "mvn/jvm.config",
        ".github/CODEOWNERS",
        ".vscode/extensions.json",
        "gradle/libs.versions.toml",
        "path.py",
        "x.mvn/y",
    ],
)
def test_ordinary_files_are_not(path: str) -> None:
    assert flagged([FileChange(path=path, change="modified", old_mode="100644", new_mode="100644")]) == ()


def test_files_that_became_executable_are_flagged_once() -> None:
    def change(path: str, kind: str, old: str | None, new: str | None) -> FileChange:
        return FileChange.model_validate({"path": path, "change": kind, "old_mode": old, "new_mode": new})

    flags = flagged(
        [
            change("run.sh", "added", None, "100755"),
            change("was.sh", "modified", "100755", "100755"),
            change("now.sh", "mode", "100644", "100755"),
            change("link", "modified", "120000", "100755"),
            change("off.sh", "mode", "100755", "100644"),
            change("gone.sh", "deleted", "100755", None),
            change(".husky/pre-commit", "added", None, "100755"),
            change(".npmrc", "deleted", "100644", None),
        ]
    )
    assert [(flag.rule, flag.paths) for flag in flags] == [
        ("new_executable", ("run.sh", "now.sh", "link", ".husky/pre-commit")),
        ("tool_configuration", (".husky/pre-commit",)),
    ]
