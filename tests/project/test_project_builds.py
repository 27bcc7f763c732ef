"""Maven and Gradle projects, by what these tools print and write: recorded shapes, played back by stand-ins.

Maven itself runs in `test_engine_languages`; Gradle is on no machine that this was written on.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from project_kit import CommandRunner, sandbox, statuses, write

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.project_settings import ProjectSettings
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun, check_level, detect, run_tests

BASKET = "src/main/java/shop/Basket.java"
REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="shop.BasketTest" tests="5" errors="1" skipped="1" failures="1">
  <properties><property name="java.version" value="17"/></properties>
  <testcase name="tax" classname="shop.BasketTest" time="0.032"/>
  <testcase name="later" classname="shop.BasketTest" time="0.0"><skipped message="later"/></testcase>
  <testcase name="taxes(int, int)[2]" classname="shop.BasketTest" time="1,007.5"/>
  <testcase name="total" classname="shop.BasketTest" time="0.017">
    <failure message="expected: &lt;12&gt; but was: &lt;7&gt;" type="org.opentest4j.AssertionFailedError"><![CDATA[
org.opentest4j.AssertionFailedError: expected: <12> but was: <7>
	at shop.BasketTest.total(BasketTest.java:7)
]]></failure>
  </testcase>
  <testcase name="zero" classname="shop.BasketTest$Deep" time="0.009">
    <error type="java.lang.ArithmeticException" message="/ by zero">trace</error>
  </testcase>
</testsuite>
"""
POM = {"pom.xml": "<project/>", BASKET: "class Basket { }\n"}
GRADLE = {"build.gradle.kts": "plugins { java }\n", BASKET: "class Basket { }\n"}


class Machine:
    """A user's home with stand-ins for tools, and a checkout whose tests they run."""

    def __init__(self, place: Path) -> None:
        self.tools = place / "tools/bin"
        self.home = place / "user"
        self.root = place / "checkout"
        self.tools.mkdir(parents=True)
        (self.home / ".m2/repository").mkdir(parents=True)
        self.tool("java", "exit 0")

    def tool(self, name: str, script: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": f"{self.tools}:/usr/bin:/bin"}

    def project(self, files: Mapping[str, str], runner: str = "auto") -> Project:
        write(self.root, dict(files))
        settings = ProjectSettings.model_validate({"runner": runner})
        return detect(self.root, python=None, environ=self.environ, inside=str(self.root), settings=settings)

    def run(self, files: Mapping[str, str], *tests: str, timeout_sec: float = 30.0) -> SuiteRun:
        project = self.project(files)
        runner = CommandRunner(sandbox(), self.root, self.root, project.mounts)
        return run_tests(cast(Executor, runner), "w", project, tests, timeout_sec)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def writes(folder: str, *reports: str) -> str:
    """A script that writes reports as a tool does."""
    parts = [f"cat > {folder}/TEST-{number}.xml <<'END'\n{report}\nEND" for number, report in enumerate(reports)]
    return "\n".join([f"mkdir -p {folder}", *parts])


def says(*lines: str) -> str:
    return "cat <<END\n" + "\n".join(lines) + "\nEND"


SUREFIRE = "target/surefire-reports"
RESULTS = "build/test-results/test"
GIVEN = {
    "shop.BasketTest#tax": "passed",
    "shop.BasketTest#later": "skipped",
    "shop.BasketTest#taxes(int, int)[2]": "passed",
    "shop.BasketTest#total": "failed",
    "shop.BasketTest$Deep#zero": "error",
}


# Maven ----------------------------------------------------------------------------------------------


def test_a_maven_build_is_judged_by_the_reports_it_writes(machine: Machine) -> None:
    machine.tool("mvn", f'{writes(SUREFIRE, REPORT)}\necho "$@" >&2')
    suite = machine.run(POM)
    assert (suite.status, statuses(suite), suite.collected) == ("finished", GIVEN, tuple(GIVEN))
    failed = suite.cases["shop.BasketTest#total"]
    assert (failed.error_type, failed.message) == ("AssertionFailedError", "expected: <12> but was: <7>")
    assert "BasketTest.java:7" in failed.traceback
    for option in (" -o ", " test", "-Dmaven.repo.local=", "-s ", "-Dmaven.test.failure.ignore=true"):
        assert option in f" {suite.log_tail}"
    assert str(machine.home / ".m2/repository") in suite.log_tail
    assert not (machine.root / "target").exists()


@pytest.mark.parametrize(
    ("asked", "given", "pattern"),
    [
        ("BasketTest#total", ["shop.BasketTest#total"], "-Dtest=BasketTest#total"),
        ("shop.BasketTest::total", ["shop.BasketTest#total"], "-Dtest=shop.BasketTest#total"),
        ("shop.BasketTest.total", ["shop.BasketTest#total"], "-Dtest=shop.BasketTest#total"),
        ("src/test/java/shop/BasketTest.java::total", ["shop.BasketTest#total"], "-Dtest=shop.BasketTest#total"),
        ("shop.BasketTest#taxes", ["shop.BasketTest#taxes(int, int)[2]"], "-Dtest=shop.BasketTest#taxes"),
        ("BasketTest#taxes(int, int)[2]", ["shop.BasketTest#taxes(int, int)[2]"], "-Dtest=BasketTest#taxes"),
        ("shop.BasketTest$Deep#zero", ["shop.BasketTest$Deep#zero"], "-Dtest=shop.BasketTest$Deep#zero"),
        ("./src/test/java/shop/BasketTest.java", list(GIVEN), "-Dtest=shop.BasketTest,shop.BasketTest$*"),
        ("src/test/java/shop", list(GIVEN), "-Dtest=shop.**"),
        ("src/test/java", list(GIVEN), "-Dtest=*"),
        (".", list(GIVEN), "-Dtest=*"),
    ],
)
def test_names_are_taken_as_people_write_them(machine: Machine, asked: str, given: list[str], pattern: str) -> None:
    machine.tool("mvn", f'{writes(SUREFIRE, REPORT)}\necho "$@" >&2')
    suite = machine.run(POM, asked)
    assert (suite.status, list(suite.cases)) == ("finished", given)
    assert suite.resolved == {asked: tuple(given)}
    assert f"{pattern} " in suite.log_tail


def test_a_name_that_no_report_has_is_not_found(machine: Machine) -> None:
    machine.tool("mvn", writes(SUREFIRE, REPORT))
    for asked in ("BasketTest#nothing", "asketTest#total", "BasketTest#tot", "shop.Basket"):
        suite = machine.run(POM, asked)
        assert (suite.status, suite.not_found) == ("not_found", (asked,))


def test_a_change_that_does_not_compile_is_reported_in_the_compilers_words(machine: Machine) -> None:
    place = machine.root / BASKET
    output = (
        "[ERROR] COMPILATION ERROR : ",
        f"[ERROR] {place}:[4,16] cannot find symbol",
        "  symbol:   variable totl",
        "  location: class shop.Basket",
        f"[ERROR] {place}:[9,1] ';' expected",
        "[INFO] 2 errors ",
        "[ERROR] Failed to execute goal maven-compiler-plugin:3.1:compile on project shop: Compilation failure",
        f"[ERROR] {place}:[4,16] cannot find symbol",
    )
    machine.tool("mvn", f"{says(*output)}\nexit 1")
    suite = machine.run(POM)
    assert suite.status == "cannot_start"
    reported = suite.cases[BASKET]
    assert reported.error_type == "CompilationError"
    assert reported.message == (
        "line 4: cannot find symbol\n  symbol:   variable totl\n  location: class shop.Basket\nline 9: ';' expected"
    )


def test_warnings_are_reported_without_their_lines(machine: Machine) -> None:
    place = machine.root / BASKET
    output = (
        f"[WARNING] {place}:[3,75] [deprecation] stop() in Thread has been deprecated",
        f"[WARNING] {place}: {place} uses unchecked or unsafe operations.",
        "[WARNING] Using platform encoding",
    )
    machine.tool("mvn", f"{says(*output)}\n{writes(SUREFIRE, REPORT)}")
    assert machine.run(POM).warnings == (
        f"{BASKET}: [deprecation] stop() in Thread has been deprecated",
        f"{BASKET}: uses unchecked or unsafe operations.",
    )


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        (
            "[ERROR] Failed to execute goal on project shop: Could not resolve dependencies for project example:shop:"
            "jar:1: Cannot access central (https://repo.example/maven2) in offline mode and the artifact "
            "com.acme:nothing:jar:1.2 has not been downloaded from it before. -> [Help 1]",
            "com.acme:nothing:jar:1.2",
        ),
        (
            "[ERROR] Plugin org.acme:x-maven-plugin:1 or one of its dependencies could not be resolved: Cannot access "
            "central (https://repo.example/maven2) in offline mode and the artifact org.acme:x-maven-plugin:jar:1 has "
            "not been downloaded from it before. -> [Help 1]",
            "org.acme:x-maven-plugin:jar:1",
        ),
    ],
)
def test_what_the_local_repository_lacks_is_named(machine: Machine, line: str, missing: str) -> None:
    machine.tool("mvn", f"{says(line)}\nexit 1")
    suite = machine.run(POM)
    assert (suite.status, suite.missing_module) == ("cannot_start", missing)


def test_a_build_that_breaks_off_after_some_tests_is_no_finished_run(machine: Machine) -> None:
    machine.tool("mvn", f"{writes(SUREFIRE, REPORT)}\n{says('[ERROR] The forked VM terminated')}\nexit 1")
    suite = machine.run(POM)
    assert suite.status == "interrupted"
    machine.tool("mvn", f"{says('[ERROR] Rule 0: RequireJavaVersion failed')}\nexit 1")
    suite = machine.run(POM)
    assert (suite.status, "RequireJavaVersion" in suite.message) == ("cannot_start", True)


def test_the_class_at_which_time_ran_out_is_known(machine: Machine) -> None:
    machine.tool("mvn", f"{writes(SUREFIRE, REPORT)}\n{says('[INFO] Running shop.SlowTest')}\nsleep 60")
    suite = machine.run(POM, timeout_sec=4.0)
    assert suite.status == "timeout"
    assert statuses(suite) == GIVEN
    assert suite.collected == (*GIVEN, "shop.SlowTest")


BILLION = '<!DOCTYPE t [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]><testsuite name="&b;"/>'


@pytest.mark.parametrize("report", [BILLION, "<testsuite>", "no xml", "<a>" * 1000], ids=["dtd", "cut", "text", "deep"])
def test_a_report_that_cannot_be_read_leaves_no_finished_run(machine: Machine, report: str) -> None:
    machine.tool("mvn", writes(SUREFIRE, REPORT, report))
    suite = machine.run(POM)
    assert suite.status == "interrupted"


def test_reports_and_classes_of_an_earlier_build_do_not_count(machine: Machine) -> None:
    write(
        machine.root, {f"{SUREFIRE}/TEST-old.xml": REPORT, "target/classes/A.class": "old", "target/kept.txt": "mine"}
    )
    machine.tool("mvn", "test -e target/classes && exit 1\nexit 0")
    suite = machine.run(POM)
    assert (suite.status, suite.cases) == ("no_tests", {})
    assert (machine.root / "target/kept.txt").read_text() == "mine"


def test_links_in_the_place_of_outputs_are_left_alone(machine: Machine) -> None:
    other = write(machine.root.parent / "other", {"classes/kept": "mine", "surefire-reports/TEST-a.xml": REPORT})
    machine.root.mkdir()
    (machine.root / "target").symlink_to(other)
    machine.tool("mvn", "exit 0")
    machine.run(POM)
    assert (other / "classes/kept").read_text() == "mine"


def test_a_settings_file_is_read_for_the_repository_alone_and_never_shown(machine: Machine) -> None:
    elsewhere = machine.home / "artifacts"
    elsewhere.mkdir()
    settings = "<settings><localRepository>${user.home}/artifacts</localRepository></settings>"
    (machine.home / ".m2/settings.xml").write_text(settings)
    machine.tool("mvn", f"cat {machine.home}/.m2/settings.xml >&2; {writes(SUREFIRE, REPORT)}")
    project = machine.project(POM)
    assert (str(elsewhere), str(elsewhere)) in project.mounts
    assert not any(".m2" in source for source, _ in project.mounts)
    suite = machine.run(POM)
    if sandbox().remaps:
        assert "localRepository" not in suite.log_tail


def test_what_the_machine_lacks_for_maven_is_reported(machine: Machine) -> None:
    machine.tool("mvn", "exit 0")
    shutil.rmtree(machine.home / ".m2")
    with pytest.raises(CodePilotError) as refused:
        machine.project(POM)
    assert refused.value.kind is FailureKind.ENVIRONMENT_MISSING
    assert "mvn test" in refused.value.failure.advice
    (machine.tools / "mvn").unlink()
    bare = {"PATH": str(machine.tools), "HOME": str(machine.home)}
    with pytest.raises(CodePilotError, match="no `mvn`"):
        detect(machine.root, python=None, environ=bare, inside=str(machine.root))


def test_a_program_in_the_repository_is_no_tool_of_the_machine(machine: Machine) -> None:
    write(machine.root, {"bin/mvn": "#!/bin/sh\n"})
    (machine.root / "bin/mvn").chmod(0o755)
    environ = {"PATH": f"{machine.root}/bin", "HOME": str(machine.home)}
    write(machine.root, dict(POM))
    with pytest.raises(CodePilotError, match="no `mvn`"):
        detect(machine.root, python=None, environ=environ, inside=str(machine.root))


# Gradle ---------------------------------------------------------------------------------------------


def test_a_gradle_build_is_judged_by_the_reports_it_writes(machine: Machine) -> None:
    machine.tool("gradle", f'{writes(RESULTS, REPORT)}\necho "$@" >&2\nexit 1')
    suite = machine.run(GRADLE)
    assert (suite.status, statuses(suite)) == ("finished", GIVEN)
    assert "--offline --no-daemon" in suite.log_tail
    named = machine.run(GRADLE, "BasketTest::total", "shop.BasketTest$Deep")
    assert list(named.cases) == ["shop.BasketTest#total", "shop.BasketTest$Deep#zero"]
    assert "--tests *BasketTest.total --tests shop.BasketTest$Deep*" in named.log_tail


def test_a_gradle_build_that_does_not_compile_or_resolve_says_why(machine: Machine) -> None:
    wrong = "* What went wrong:"
    machine.tool("gradle", f"{says(f'{machine.root / BASKET}:4: error: cannot find symbol', 'x')} >&2\nexit 1")
    suite = machine.run(GRADLE)
    assert (suite.status, suite.cases[BASKET].message) == ("cannot_start", "line 4: cannot find symbol")
    lacking = says(wrong, "Could not resolve all files.", "> No cached version of a:b:1 available for offline mode.")
    machine.tool("gradle", f"{lacking}\nexit 1")
    suite = machine.run(GRADLE)
    assert (suite.status, suite.missing_module) == ("cannot_start", "a:b:1")
    machine.tool("gradle", f"{says(wrong, 'Task failed.', '> No tests found for given includes: [A]')}\nexit 1")
    assert machine.run(GRADLE, "A").status == "not_found"


def test_the_gradle_that_the_wrapper_names_is_the_one(machine: Machine) -> None:
    kept = machine.home / ".gradle/wrapper/dists/gradle-8.5-bin/abc/gradle-8.5/bin"
    write(kept, {"gradle": "#!/bin/sh\n"})
    url = "distributionUrl=https\\://services.example/distributions/gradle-8.5-bin.zip\n"
    project = machine.project({**GRADLE, "gradle/wrapper/gradle-wrapper.properties": url})
    assert project.driver == ("codepilot_jvm.py", "gradle", str(kept / "gradle"))
    assert (str(kept.parent), str(kept.parent)) in project.mounts


# Which is which -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "runner"),
    [
        (POM, "maven"),
        (GRADLE, "gradle"),
        ({**POM, **GRADLE}, "maven"),
        ({"package.json": '{"scripts": {"test": "node --test"}}'}, "npm"),
        ({**POM, "tools/test_release.py": "def test_it(): pass\n"}, "maven"),
        (
            {**POM, "pyproject.toml": "", "tests/test_a.py": "import unittest\nclass A(unittest.TestCase): pass\n"},
            "pytest",
        ),
        (
            {
                "package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}',
                "test_a.py": "def test_a(): 1\n",
            },
            "pytest",
        ),
        ({"package.json": "{", "test_a.py": "def test_a(): 1\n"}, "pytest"),
    ],
)
def test_the_build_system_is_known_by_its_files(machine: Machine, files: dict[str, str], runner: str) -> None:
    for name in ("mvn", "gradle", "node"):
        machine.tool(name, "exit 0")
    assert machine.project(files).runner == runner


def test_a_person_may_name_the_build_system(machine: Machine) -> None:
    machine.tool("gradle", "exit 0")
    machine.tool("mvn", "exit 0")
    assert machine.project({**POM, **GRADLE}, runner="gradle").runner == "gradle"


def test_packages_that_cannot_be_put_in_place_are_refused_where_paths_cannot_be_remapped(machine: Machine) -> None:
    machine.tool("node", "exit 0")
    write(machine.root, {"package.json": '{"scripts": {"test": "jest"}}', "node_modules/jest/package.json": "{}"})
    project = detect(machine.root, python=None, environ=machine.environ, inside="/elsewhere")
    assert (str(machine.root / "node_modules"), "/elsewhere/node_modules") in project.mounts
    with pytest.raises(CodePilotError) as refused:
        check_level(project, remaps=False, inside="/elsewhere")
    assert refused.value.kind is FailureKind.ENVIRONMENT_MISSING
    check_level(project, remaps=True, inside="/elsewhere")


def test_packages_that_lie_outside_of_the_checkout_are_not_shown(machine: Machine) -> None:
    machine.tool("node", "exit 0")
    secret = write(machine.home / ".ssh", {"id": "secret"})
    write(machine.root, {"package.json": '{"scripts": {"test": "jest"}, "devDependencies": {"jest": "29"}}'})
    (machine.root / "node_modules").symlink_to(secret)
    with pytest.raises(CodePilotError) as refused:
        machine.project({})
    assert refused.value.kind is FailureKind.ENVIRONMENT_MISSING
    assert "npm install" in refused.value.failure.advice
