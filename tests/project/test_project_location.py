"""The project is the nearest one around what is named, and it imports from where its own tools would."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from project_kit import find, run, statuses, write

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.target import Place, understand
from codepilot.project import Dependencies, detect, locate
from codepilot.project.import_paths import import_paths

MONOREPO = {
    "README.md": "",
    "services/api/pyproject.toml": '[project]\nname = "api"\ndependencies = ["common @ file:../../libs/common"]\n',
    "services/api/src/api/__init__.py": "from common.tax import rate\ndef price(net): return net * rate()\n",
    "services/api/tests/test_price.py": "from api import price\n\ndef test_price(): assert price(10) == 12\n",
    "services/api/tests/unit/test_deep.py": "def test_deep(): pass\n",
    "services/web/package.json": '{"scripts": {"test": "node --test"}}',
    "services/web/test/page.test.js": "",
    "libs/common/pyproject.toml": '[project]\nname = "common"\n',
    "libs/common/src/common/tax.py": "def rate(): return 1.2\n",
    "libs/common/tests/test_tax.py": "def test_tax(): pass\n",
}

DJANGO = {"web/manage.py": "", "web/requirements.txt": "django\n", "web/polls/tests.py": ""}


@pytest.fixture
def monorepo(tmp_path: Path) -> Path:
    root = write(tmp_path / "repo", MONOREPO)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root.resolve()


@pytest.mark.parametrize(
    ("files", "place", "folder"),
    [
        (MONOREPO, "services/api", "services/api"),
        (MONOREPO, "services/api/src/api", "services/api"),
        (MONOREPO, "services/api/tests/test_price.py", "services/api"),
        (MONOREPO, "services/web/test/page.test.js", "services/web"),
        (MONOREPO, "services", ""),
        ({"pyproject.toml": "", "tests/requirements.txt": "", "tests/test_a.py": ""}, "tests/test_a.py", ""),
        ({"api/requirements.txt": "", "api/tests/test_a.py": ""}, "api/tests", "api"),
        ({**DJANGO, "pyproject.toml": "[project]\nname = 'a'\n"}, "web", "web"),
        ({**DJANGO, "pyproject.toml": "[project]\nname = 'a'\n"}, "web/polls/tests.py", "web"),
        ({**DJANGO, "pyproject.toml": "[tool.pytest]\npythonpath = ['web']\n"}, "web/polls/tests.py", ""),
        ({"setup.py": "", "api/requirements.txt": "", "api/test_a.py": ""}, "api", "api"),
        ({"setup.py": "", "api/requirements.txt": "", "api/test_a.py": ""}, "api/test_a.py", ""),
        ({"setup.py": "", "web/package.json": "", "web/test_a.py": ""}, "web/test_a.py", ""),
        ({"pom.xml": "<module>core</module>", "core/pom.xml": "", "core/A.java": ""}, "core", ""),
        ({"settings.gradle": "", "app/build.gradle": "", "app/A.java": ""}, "app", ""),
        ({"app/build.gradle": "", "app/A.java": ""}, "app/A.java", "app"),
        ({"plain/tests/test_a.py": "", "other/a.py": ""}, "plain", "plain"),
        ({"only/pyproject.toml": "", "only/tests/test_a.py": ""}, ".", "only"),
        ({"only/pyproject.toml": "", "only/tests/test_a.py": "", "test_b.py": ""}, ".", ""),
        ({"pyproject.toml": "[tool.ruff]\n", "only/pyproject.toml": "", "only/tests/test_a.py": ""}, ".", "only"),
        ({"pyproject.toml": "[tool.pytest]\n", "only/pyproject.toml": "", "only/tests/test_a.py": ""}, ".", ""),
        ({"pyproject.toml": "[project]\nname = 'a'\n", "only/pyproject.toml": "", "only/test_a.py": ""}, ".", ""),
    ],
)
def test_the_nearest_project_is_found(tmp_path: Path, files: dict[str, str], place: str, folder: str) -> None:
    write(tmp_path, files)
    assert locate(tmp_path, tmp_path / place) == folder


@pytest.mark.parametrize("root", ["", "[tool.uv.workspace]\nmembers = ['services/*']\n"])
def test_several_projects_are_listed(monorepo: Path, root: str) -> None:
    if root:
        write(monorepo, {"pyproject.toml": root})
    with pytest.raises(CodePilotError, match="3 projects: libs/common, services/api, services/web") as caught:
        locate(monorepo, monorepo)
    assert "codepilot fix libs/common" in caught.value.failure.advice


TEST = "services/api/tests/test_price.py"


@pytest.mark.parametrize(
    ("at", "named", "tests", "means"),
    [
        (".", "services/api", (), ("services/api", (), ())),
        (".", "services/api/tests", (), ("services/api/tests", ("services/api/tests",), ())),
        (".", "services/api/tests/unit", (), ("services/api/tests/unit", ("services/api/tests/unit",), ())),
        (".", TEST, (), (TEST, (TEST,), ())),
        (".", TEST + "::test_price", (), (TEST, (), (TEST + "::test_price",))),
        (".", "services/api", ("tests/test_price.py::test_price",), ("services/api", (), (TEST + "::test_price",))),
        ("services/api", ".", (), ("services/api", (), ())),
        ("services/api", "tests/test_price.py", (), (TEST, (TEST,), ())),
        ("services/api", ".", ("tests/test_price.py::test_price",), ("services/api", (), (TEST + "::test_price",))),
        ("services/api/tests", ".", (), ("services/api/tests", (), ())),
        ("services/api/src", ".", ("tests/test_price.py",), ("services/api/src", (), (TEST,))),
        ("services/api", "test_price", (), ("services/api", (), ("test_price",))),
        ("services/api", "TestX::test_y[a-1]", (), ("services/api", (), ("TestX::test_y[a-1]",))),
        ("services/api", "tests.test_price.Case.test_x", (), ("services/api", (), ("tests.test_price.Case.test_x",))),
        (".", ".", (TEST,), ("", (), (TEST,))),
        (".", ".", ("test_deep",), ("services/api", (), ("test_deep",))),
        (".", "test_tax", (), ("libs/common", (), ("test_tax",))),
        (".", ".", ("test_nowhere",), ("", (), ("test_nowhere",))),
    ],
)
def test_what_is_named_means_what_it_says(
    monorepo: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    named: str,
    tests: tuple[str, ...],
    means: tuple[str, tuple[str, ...], tuple[str, ...]],
) -> None:
    monkeypatch.chdir(monorepo / at)
    assert understand(named, tests) == Place(monorepo, *means)


def test_what_is_no_place_and_no_test_is_refused(monorepo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(monorepo)
    for named in ("servces/api", "nothing"):
        with pytest.raises(CodePilotError) as caught:
            understand(named, ())
        assert caught.value.kind is FailureKind.REPO_UNREACHABLE


UV = {
    "pyproject.toml": '[tool.uv.workspace]\nmembers = ["packages/*"]\n',
    "packages/a/pyproject.toml": '[project]\nname = "a"\n[tool.uv.sources]\nmy-b = {workspace = true}\n',
    "packages/a/src/ns/a/__init__.py": "",
    "packages/bee/pyproject.toml": '[project]\nname = "My_B"\n[tool.uv.sources]\nc = {path = "../c"}\n',
    "packages/bee/my_b/__init__.py": "",
    "packages/c/src/c.py": "",
}


@pytest.mark.parametrize(
    ("files", "project", "paths"),
    [
        (MONOREPO, "services/api", ("services/api/src", "libs/common/src")),
        (UV, ".", ("packages/a/src", "packages/bee", "packages/c/src")),
        (UV, "packages/a", ("packages/a/src", "packages/bee", "packages/c/src")),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\nb = {path = "b", develop = true}\n', "b/b.py": ""},
            ".",
            ("b",),
        ),
        ({"requirements.txt": "-r more.txt\n", "more.txt": "-e ./lib\n", "lib/setup.py": ""}, ".", ("lib",)),
        ({"requirements.txt": "-e ../outside\n-e /etc\n"}, ".", ()),
        ({"requirements.txt": "-r requirements.txt\n" * 3000 + "-e ./lib\n", "lib/setup.py": ""}, ".", ("lib",)),
        (
            {"pyproject.toml": "[tool.uv.workspace]\nmembers = ['a**', '/etc', '../x', '', 5, '**/**/**/**/**/no']\n"},
            ".",
            (),
        ),
        (
            UV | {"pyproject.toml": "[tool.uv.workspace]\nmembers = ['**/b*']\n"},
            ".",
            ("packages/bee", "packages/c/src"),
        ),
        ({"setup.cfg": "[options]\npackage_dir =\n    = lib\n", "lib/x.py": ""}, ".", ("lib",)),
        ({"setup.py": "setup(name='x', package_dir={'': 'lib'})\n", "lib/x.py": ""}, ".", ("lib",)),
        ({"setup.py": "kinds = dict(packages=find_packages('lib'))\nsetup(**kinds)\n", "lib/x.py": ""}, ".", ("lib",)),
        ({"setup.py": "setup(packages=find_packages(where='py/lib'))\n", "py/lib/x.py": ""}, ".", ("py/lib",)),
        ({"setup.py": "setup(packages=find_packages('/etc'))\n", "x.py": ""}, ".", ()),
        (
            {"tox.ini": "[testenv]\nsetenv =\n    PYTHONPATH = {toxinidir}/a:{toxinidir}\n", "a/x.py": ""},
            ".",
            ("a", "."),
        ),
        ({".env": "PYTHONPATH=./a:/usr/lib\n", "a/x.py": ""}, ".", ("a",)),
        ({"src/__init__.py": "", "src/x.py": ""}, ".", ()),
        ({"src/main.c": ""}, ".", ()),
    ],
)
def test_packages_are_imported_as_the_projects_tools_do(
    tmp_path: Path, files: dict[str, str], project: str, paths: tuple[str, ...]
) -> None:
    write(tmp_path, files)
    assert import_paths(tmp_path, tmp_path / project, ()) == paths


DECLARED = {
    "pyproject.toml": '[project]\ndependencies = ["requests>=2"]\n[project.optional-dependencies]\ntest = ["PyYAML"]\n'
    '[tool.poetry.group.dev.dependencies]\nfreezegun = "*"\n[dependency-groups]\nci = ["a", {include-group = "x"}]\n'
    '"a;id" = ["odd"]\n',
    "requirements-dev.txt": "python-dateutil==2\n# numpy\n",
    "environment.yml": "dependencies:\n  - scipy=1\n",
    "setup.py": "setup(install_requires=['attrs>=1; x'])",
    "shop/core.py": "",
    "tests/helpers.py": "",
}


@pytest.mark.parametrize(
    ("module", "held", "where", "install"),
    [
        ("shop.prices", True, "", ""),
        ("helpers", True, "", ""),
        ("requests.adapters", False, "pyproject.toml, [project] dependencies", "pip install -e ."),
        ("yaml", False, "pyproject.toml, [project.optional-dependencies] test", "pip install -e '.[test]'"),
        ("odd", False, "pyproject.toml, [dependency-groups] a;id", "pip install --group 'a;id'"),
        ("freezegun", False, "pyproject.toml, [tool.poetry.group.dev.dependencies]", "poetry install --with dev"),
        ("a", False, "pyproject.toml, [dependency-groups] ci", "pip install --group ci"),
        ("dateutil", False, "requirements-dev.txt", "pip install -r requirements-dev.txt"),
        ("scipy", False, "environment.yml", "conda env update -f environment.yml"),
        ("attr", False, "setup.py", "pip install -e ."),
        ("numpy", False, "", ""),
        ("distutils.core", False, "", ""),
    ],
)
def test_a_missing_module_is_explained(tmp_path: Path, module: str, held: bool, where: str, install: str) -> None:
    facts = Dependencies(write(tmp_path, DECLARED)).facts(module)
    found = facts.declared
    assert (facts.in_repository, found.where if found else "", found.install if found else "") == (held, where, install)
    assert facts.of_another_python is (module == "distutils.core")
    assert (found is not None and found.prepared) is (module == "dateutil")


def test_prepare_is_advised_for_what_it_installs(tmp_path: Path) -> None:
    pyproject = (
        '[project]\ndependencies = ["attrs"]\n[project.optional-dependencies]\ntest = ["PyYAML"]\nx = ["rich"]\n'
    )
    at = Dependencies(write(tmp_path, {"pyproject.toml": pyproject}))
    prepared = [found.prepared for name in ("attr", "yaml", "rich") if (found := at.facts(name).declared)]
    assert prepared == [True, True, False]


def test_the_name_of_the_checkout_is_no_module(tmp_path: Path) -> None:
    root = write(tmp_path / "django", {"requirements.txt": "django\n", "manage.py": ""})
    facts = Dependencies(root).facts("django")
    assert facts.environmental and facts.declared and facts.declared.where == "requirements.txt"


def test_tests_of_a_nested_project_run_there_and_are_named_from_the_top(monorepo: Path) -> None:
    """Sibling packages are imported, and every spelling of a test's name is understood."""
    project = find_in(monorepo, "services/api")
    ids = (TEST + "::test_price", "services/api/tests/unit/test_deep.py::test_deep")
    assert statuses(run(monorepo, project=project)) == dict.fromkeys(ids, "passed")
    for name in (ids[0], "tests/test_price.py::test_price", "./" + ids[0], str(monorepo / ids[0])):
        alone = run(monorepo, [name], project=project)
        assert (statuses(alone), alone.resolved) == ({ids[0]: "passed"}, {name: (ids[0],)})
    assert set(statuses(run(monorepo, ["services/api/tests/unit"], project=project))) == {ids[1]}
    assert run(monorepo, [TEST + "::test_gone"], project=project).status == "not_found"


def find_in(root: Path, folder: str):  # type: ignore[no-untyped-def]
    whole = find(root / folder)
    return detect(root, python=whole.interpreter.executable, environ={}, inside=str(root), folder=folder)


def test_a_syntax_error_is_named_with_its_file_and_line(monorepo: Path) -> None:
    (monorepo / "services/api/src/api/__init__.py").write_text("def price(net):\n    return (net\n")
    broken = run(monorepo, project=find_in(monorepo, "services/api"))
    assert "services/api/src/api/__init__.py, line 2" in broken.cases[TEST].message
