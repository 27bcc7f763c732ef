"""The deterministic review in Java and JavaScript, and whether a change is tested, in any language."""

from __future__ import annotations

import pytest

from codepilot.core.task import Budget, TaskKind
from codepilot.executor import DiffResult, FileChange
from codepilot.project import is_test
from codepilot.verify import review
from codepilot.verify.configuration import bends_runner

Tree = dict[str, str]

JAVA_TEST = "src/test/java/shop/BasketTest.java"
JAVA = """package shop;

class BasketTest {
    @Test
    void total() {
        assertEquals(12, Basket.total(3, 4));
    }
}
"""
JS_TEST = "test/sum.test.js"
JS = """const { sum } = require('../sum.js');

describe('sum', () => {
  it('adds', () => {
    expect(sum(1, 2)).toBe(3);
  });
});
"""


def checks(
    before: Tree, after: Tree, kind: TaskKind = TaskKind.BUGFIX, failing: tuple[str, ...] | None = None, **more: object
) -> dict[str, str]:
    """The checks that do not hold, with their evidence."""
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    changes = tuple(
        FileChange(path=path, change="added" if path not in before else "deleted" if path not in after else "modified")
        for path in paths
    )
    diff = DiffResult(patch=b"+", base_tree="b" * 64, tree="c" * 64, changes=changes)

    def read(tree: Tree):  # type: ignore[no-untyped-def]
        return lambda path: tree[path].encode() if path in tree else None

    found = review(diff, read(before), read(after), Budget(), kind, failing=failing, **more)  # type: ignore[arg-type]
    return {check.name: check.evidence for check in found.policy_checks if not check.ok}


def added_to(path: str, text: str, more: str, **asked: object) -> dict[str, str]:
    """What is reported of lines that come before the file's last closing bracket."""
    head, mark, tail = text.rstrip("\n").rpartition("\n")
    return checks({path: text}, {path: f"{head}\n{more}{mark}{tail}\n"}, **asked)  # type: ignore[arg-type]


# Tests that are disabled ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "old", "new"),
    [
        (JAVA_TEST, JAVA, "    @Test", "    @Disabled\n    @Test"),
        (JAVA_TEST, JAVA, "    @Test", '    @Ignore("later") @Test'),
        (JAVA_TEST, JAVA, "    @Test", "    @DisabledOnOs(LINUX)\n    @Test"),
        (JAVA_TEST, JAVA, "        assertEquals", "        assumeTrue(false);\n        assertEquals"),
        (JS_TEST, JS, "it('adds'", "it.skip('adds'"),
        (JS_TEST, JS, "describe('sum'", "describe.skip('sum'"),
        (JS_TEST, JS, "  it('adds'", "  xit('adds'"),
        (JS_TEST, JS, "it('adds',", "it('adds', { skip: true },"),
        (JS_TEST, JS, "it('adds'", "it.skipIf(process.env.CI)('adds'"),
        (JS_TEST, JS, "    expect", "    t.skip();\n    expect"),
        (JS_TEST, JS, "  it('adds'", "  test.todo('subtracts');\n  it('adds'"),
        (JS_TEST, JS, "  it('adds'", "  it.only('other', () => expect(1).toBe(1));\n  it('adds'"),
    ],
)
def test_a_skipped_test_is_seen(path: str, text: str, old: str, new: str) -> None:
    assert old in text
    assert "skips tests" in checks({path: text}, {path: text.replace(old, new, 1)})["no_disabled_tests"]


def test_a_test_that_is_gone_is_named() -> None:
    without = JAVA.replace("    @Test\n", "")
    assert "total was removed" in checks({JAVA_TEST: JAVA}, {JAVA_TEST: without})["no_disabled_tests"]
    assert (
        "adds was removed"
        in checks({JS_TEST: JS}, {JS_TEST: JS.replace("it('adds'", "it('joins'")})["no_disabled_tests"]
    )
    assert "was deleted" in checks({JS_TEST: JS}, {})["no_disabled_tests"]


@pytest.mark.parametrize(
    ("path", "text", "more"),
    [
        ("src/main/java/shop/Fit.java", "class Fit {\n}\n", "    void run() { model.fit(data); xit(1); }\n"),
        ("docs/testing.md", "# Testing\n\nEnd.\n", "Use `it.skip('x')`, @Disabled or console.log(x) while you work.\n"),
        ("src/list.js", "exports.x = {\n};\n", "  skip: true, todo: list.todo, only: 1,\n"),
        (JAVA_TEST, JAVA, "    @Test\n    void more() {\n        assertTrue(Basket.isEnabled());\n    }\n"),
    ],
)
def test_what_only_looks_like_skipping_is_let_through(path: str, text: str, more: str) -> None:
    assert added_to(path, text, more) == {}


# What is left behind --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("src/main/java/shop/Basket.java", '        System.out.println("here");\n'),
        ("src/main/java/shop/Basket.java", "        error.printStackTrace();\n"),
        ("src/main/java/shop/Basket.java", "        // FIXME: rounding\n"),
        ("sum.js", "  console.log(a);\n"),
        ("sum.ts", "  debugger;\n"),
        ("sum.mjs", "  // TODO later\n"),
    ],
)
def test_debugging_and_notes_are_seen_in_the_product_alone(path: str, line: str) -> None:
    text = "a {\n  one();\n}\n"
    assert list(added_to(path, text, line)) == ["no_debug_left"]
    assert added_to(f"tests/{path}", text, line) == {}


def test_a_product_that_asks_whether_it_is_tested_is_refused() -> None:
    text = "a {\n  one();\n}\n"
    for path, line in (
        ("sum.js", "  if (process.env.JEST_WORKER_ID) return 3;\n"),
        ("sum.js", "  if (process.env.NODE_ENV === 'test') return 3;\n"),
        ("src/main/java/A.java", '  Class.forName("org.junit.jupiter.api.Test");\n'),
    ):
        assert list(added_to(path, text, line)) == ["no_test_detection"]


def test_new_warnings_of_the_projects_compiler_are_reasons() -> None:
    message = "src/main/java/shop/Basket.java: [deprecation] stop() in Thread has been deprecated"
    tree = {"src/main/java/shop/Basket.java": "class Basket { }\n"}
    changed = {"src/main/java/shop/Basket.java": "class Basket { int a; }\n"}
    assert checks(tree, changed, warnings=(message,)) == {"no_new_compilation_warnings": message}
    assert checks(tree, changed) == {}


# Tests that assert nothing --------------------------------------------------------------------------

SILENT = {
    "java": (
        JAVA_TEST,
        JAVA,
        "    @Test\n    void more() {\n        Basket.total(1, 2); // assertEquals(2, …)\n    }\n",
    ),
    "javascript": (JS_TEST, JS, "  it('more', async () => {\n    sum(1, 'expect');\n  });\n"),
    "typescript": ("src/a.spec.ts", JS, "  test('more', () => { const a: number = sum(1, 2); });\n"),
}


@pytest.mark.parametrize(("path", "text", "more"), SILENT.values(), ids=SILENT)
def test_a_new_test_that_asserts_nothing_is_named(path: str, text: str, more: str) -> None:
    assert added_to(path, text, more) == {"new_tests_assert": f"{path}: more asserts nothing"}


@pytest.mark.parametrize(
    ("path", "text", "more"),
    [
        (
            JAVA_TEST,
            JAVA,
            "    @Test(expected = IllegalStateException.class)\n    void more() {\n        run();\n    }\n",
        ),
        (JAVA_TEST, JAVA, "    @Test\n    void more() throws Exception {\n        verify(basket).close();\n    }\n"),
        (JAVA_TEST, JAVA, "    @Test\n    void more() { same(1); }\n    void same(int a) { assertEquals(1, a); }\n"),
        (JAVA_TEST, JAVA, "    void helper() { Basket.total(1, 2); }\n"),
        (JS_TEST, JS, "  it('more', () => assert.equal(sum(1, 1), 2));\n"),
        (JS_TEST, JS, "  it('a } brace', () => { expect('}').toBe('}'); });\n"),
        (JS_TEST, JS, "  const same = (a) => { expect(a).toBe(1); };\n  it('more', () => { same(1); });\n"),
        (JS_TEST, JS, "  it.each([[1, 2]])('more %i', (a, b) => { expect(a).toBe(b); });\n"),
        (JS_TEST, JS, "  it('later');\n"),
        (JS_TEST, JS, "  const found = pattern.test('x');\n"),
    ],
)
def test_a_new_test_that_asserts_in_its_own_way_is_let_through(path: str, text: str, more: str) -> None:
    assert added_to(path, text, more) == {}


HOSTILE = ("it('a', () => {", "f(){", "@Test void a(", "'", '"', "/*", "it('\\a", "function a(", "test(", "const a = (")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", [JAVA_TEST, JS_TEST])
def test_no_text_keeps_the_review_busy(path: str) -> None:
    for text in (
        *(part * (50_000 // len(part)) for part in HOSTILE),
        "f(){" * 8_000 + "}" * 8_000,
        "it('" + "\\a" * 25_000,
    ):
        checks({}, {path: text})


PYTHON = "import pytest\n\n\ndef test_old():\n    run()\n"


@pytest.mark.parametrize(
    ("more", "silent"),
    [
        ("def test_new():\n    total = run()\n", True),
        ("class TestIt:\n    def test_new(self):\n        run()\n", True),
        ("def test_new():\n    assert run() == 1\n", False),
        ("def test_new():\n    with pytest.raises(ValueError):\n        run()\n", False),
        ("def test_new():\n    check_all(run())\n", False),
        ("def same(a):\n    assert a\n\n\ndef test_new():\n    same(run())\n", False),
        ("def test_new(mock):\n    run()\n    mock.assert_called_once()\n", False),
        ("@pytest.fixture\ndef test_database():\n    return run()\n", False),
        ("def helper():\n    run()\n", False),
    ],
)
def test_python_tests_must_assert_too(more: str, silent: bool) -> None:
    path = "tests/test_run.py"
    found = checks({path: PYTHON}, {path: f"{PYTHON}\n\n{more}"})
    assert list(found) == (["new_tests_assert"] if silent else [])


# A regression test ----------------------------------------------------------------------------------

FIX = ({"sum.js": "exports.sum = 1;\n"}, {"sum.js": "exports.sum = 2;\n"})


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_test_that_failed_before_is_the_regression_test(kind: TaskKind) -> None:
    assert checks(*FIX, kind=kind, failing=("test/sum.test.js::sum > adds",)) == {}


@pytest.mark.parametrize(
    ("kind", "demanded"),
    [(TaskKind.BUGFIX, True), (TaskKind.CHANGE, True), (TaskKind.BUILD, False), (TaskKind.SCAFFOLD, False)],
)
def test_without_one_the_change_must_bring_one_where_its_kind_demands_it(kind: TaskKind, demanded: bool) -> None:
    before, after = FIX
    assert list(checks(before, after, kind=kind, failing=())) == (["has_regression_test"] if demanded else [])
    assert checks(before, {**after, JS_TEST: JS}, kind=kind, failing=()) == {}
    assert checks({"README.md": "a\n"}, {"README.md": "b\n"}, kind=kind, failing=()) == {}


# What judges the change -----------------------------------------------------------------------------

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <artifactId>a</artifactId><version>1</version><description>old</description>
  <dependencies>
    <dependency><groupId>com.google.guava</groupId><artifactId>guava</artifactId><version>30</version></dependency>
    <dependency><groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId><version>5.10</version>
      <scope>test</scope></dependency>
  </dependencies>
  <build><plugins><plugin><artifactId>maven-surefire-plugin</artifactId></plugin></plugins></build>
</project>
"""
PACKAGE = '{"name": "a", "version": "1.0.0", "scripts": {"test": "jest"}, "dependencies": {"lodash": "4"}}'


@pytest.mark.parametrize(
    ("path", "before", "old", "new", "bent"),
    [
        ("pom.xml", POM, "<description>old", "<description>new", False),
        ("pom.xml", POM, "<version>30", "<version>31", False),
        ("pom.xml", POM, "  <build>", "  <!-- a word -->\n  <build>", False),
        ("pom.xml", POM, "<version>5.10", "<version>5.9", True),
        ("core/pom.xml", POM, "surefire-plugin</artifactId>", "surefire-plugin</artifactId><configuration/>", True),
        ("pom.xml", POM, "</project>", "<properties><skipTests>true</skipTests></properties></project>", True),
        ("pom.xml", POM, "<project", '<!DOCTYPE project [<!ENTITY a "b">]><project', True),
        ("package.json", PACKAGE, '"1.0.0"', '"1.0.1"', False),
        ("package.json", PACKAGE, '"4"', '"5"', False),
        ("package.json", PACKAGE, '"jest"', '"jest --passWithNoTests"', True),
        ("package.json", PACKAGE, "{", '{"jest": {"testMatch": []},', True),
        ("jest.config.js", "a", "a", "b", True),
        (".mocharc.yml", "a", "a", "b", True),
        ("app/build.gradle.kts", "a", "a", "b", True),
        (".mvn/maven.config", "a", "a", "b", True),
        ("src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener", "a", "a", "b", True),
        ("src/main/java/shop/Basket.java", "a", "a", "b", False),
    ],
)
def test_build_files_bend_the_runner_only_by_what_it_reads(
    path: str, before: str, old: str, new: str, bent: bool
) -> None:
    assert old in before
    assert bends_runner(path, before.encode(), before.replace(old, new, 1).encode()) is bent


def test_tests_are_known_by_their_names() -> None:
    for path in (JAVA_TEST, JS_TEST, "src/it/FlowIT.java", "web/__tests__/a.js", "src/a.spec.ts", "app/AppTest.kt"):
        assert is_test(path), path
    for path in ("src/main/java/shop/Latest.java", "src/contest.js", "src/main/java/shop/Testing.java", "UNIT.java"):
        assert not is_test(path), path
