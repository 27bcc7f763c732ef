"""Registration of a new module in an existing build: the one entry more, and nothing else changed."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Mapping

import pytest

from codepilot.core.failures import CodePilotError
from codepilot.core.scaffold import Ecosystem, Scaffold
from codepilot.project.scaffold import Module, Surroundings, Tree, make_module
from codepilot.project.scaffold.repository import is_member

PARENT = """<project>
  <groupId>org.shop</groupId><artifactId>shop</artifactId><version>1</version>
  <packaging>pom</packaging>
  <!-- <modules><module>old</module></modules> -->
  {modules}
  <profiles><profile><id>more</id><modules><module>extra</module></modules></profile></profiles>
</project>
"""
LISTED = "<modules>\n    <module>core</module>\n  </modules>"
CORE = """<project><parent><groupId>org.shop</groupId><artifactId>shop</artifactId><version>1</version></parent>
<artifactId>core</artifactId><properties><junit>4.13.2</junit></properties>
<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>${junit}</version>
<scope>test</scope></dependency></dependencies></project>
"""


def joined(ecosystem: str, name: str, files: Mapping[str, str], start: str = "", out: str = "") -> Module:
    tree = Tree(files.keys(), lambda path: files[path].encode() if path in files else None)
    return make_module(Scaffold(ecosystem=Ecosystem(ecosystem), name=name, join=True), Surroundings(), tree, start, out)


def test_a_reactor_gets_one_module_more() -> None:
    files = {"pom.xml": PARENT.format(modules=LISTED), "core/pom.xml": CORE, ".github/workflows/ci.yml": ""}
    module = joined("maven", "billing", files)
    edited = module.files["pom.xml"].decode()
    assert edited == files["pom.xml"].replace("core</module>\n", "core</module>\n    <module>billing</module>\n")
    pom = module.files["billing/pom.xml"].decode()
    assert "<artifactId>shop</artifactId>" in pom and "<version>4.13.2</version>" in pom
    assert "org.junit.Test" in module.files["billing/src/test/java/org/shop/billing/BillingTest.java"].decode()
    assert not any(path.startswith(".github") for path in module.files)


def test_a_parent_without_modules_gets_them_beside_those_of_its_profile() -> None:
    module = joined("maven", "billing", {"all/pom.xml": PARENT.format(modules="")}, "all", "all/parts/billing")
    edited = module.files["all/pom.xml"].decode()
    assert "<packaging>pom</packaging>\n\n  <modules>\n    <module>parts/billing</module>\n  </modules>" in edited
    assert "<relativePath>../../pom.xml</relativePath>" in module.files["all/parts/billing/pom.xml"].decode()
    assert ".github/workflows/billing.yml" in module.files


@pytest.mark.parametrize(
    "pom",
    [
        CORE,
        "<project>",
        "<!DOCTYPE x [<!ENTITY a 'b'>]><project><packaging>pom</packaging></project>",
        "<project><packaging>pom</packaging><modules/></project>",
        None,
    ],
    ids=["no parent", "cut off", "entities", "nameless", "none"],
)
def test_what_is_no_reactor_is_refused(pom: str | None) -> None:
    with pytest.raises(CodePilotError):
        joined("maven", "billing", {} if pom is None else {"pom.xml": pom})


def test_a_hostile_build_file_is_read_in_time() -> None:
    """Text that comes in a million pieces, and a pattern that fits in a billion ways."""
    pom = PARENT.format(modules=LISTED).replace("org.shop<", "\n" * (1 << 20) + "org.shop<")
    began = time.thread_time()
    assert b"<module>billing</module>" in joined("maven", "billing", {"pom.xml": pom}).files["pom.xml"]
    assert not is_member(["/".join(["**"] * 80 + ["x"]), "/".join(["**"] * 5000)], "a/b/c/d/e/f")
    assert time.thread_time() - began < 10


def test_a_broken_member_keeps_no_other_from_joining() -> None:
    files = {"package.json": '{"workspaces": ["libs/*"]}', "libs/one/package.json": "{", "package-lock.json": "{}"}
    assert joined("npm", "two", files).folder == "libs/two"
    assert joined("python", "two", {"pyproject.toml": "[tool.uv.workspace]\nexclude = 5\n"}).folder


@pytest.mark.parametrize(
    "members",
    [
        'members = ["libs/one"]',
        "members = []",
        'members = [\n    "libs/one", # the first ]\n]',
        'members = [  # all\n    "libs/one"\n]',
        "",
    ],
)
def test_a_uv_workspace_gets_one_member_more(members: str) -> None:
    text = f'[project]\nname = "all"\n\n[tool.uv.workspace]\n{members}\n\n[tool.other]\nmembers = ["x"]\n'
    module = joined("python", "two", {"pyproject.toml": text}, out="libs/two")
    before, after = tomllib.loads(text), tomllib.loads(module.files["pyproject.toml"].decode())
    workspace = before["tool"]["uv"]["workspace"]
    assert after["tool"]["uv"]["workspace"] == {"members": ["libs/two", *workspace.get("members", [])]}
    assert after["tool"]["other"] == before["tool"]["other"]


def test_a_member_that_a_pattern_covers_changes_no_file() -> None:
    workspace = '[tool.uv.workspace]\nmembers = ["tools", "packages/*"]\nexclude = ["packages/old"]\n'
    module = joined("python", "two", {"pyproject.toml": workspace, "uv.lock": ""})
    assert (module.folder, module.registered) == ("packages/two", ())
    with pytest.raises(CodePilotError, match="no place"):
        joined("python", "old", {"pyproject.toml": workspace})


def test_an_npm_workspace_and_its_lock_file_get_the_package() -> None:
    root = {"name": "all", "workspaces": {"packages": ["libs/one"]}, "private": True}
    lock = {"lockfileVersion": 3, "packages": {"": {"workspaces": ["libs/one"]}, "libs/one": {"version": "1.0.0"}}}
    files = {
        "package.json": json.dumps(root, indent=4),
        "package-lock.json": json.dumps(lock),
        "libs/one/package.json": '{"name": "one", "type": "commonjs"}',
    }
    module = joined("npm", "@shop/two", files)
    assert module.folder == "libs/two"
    edited = module.files["package.json"].decode()
    assert json.loads(edited)["workspaces"] == {"packages": ["libs/one", "libs/two"]} and "\n    " in edited
    packages = json.loads(module.files["package-lock.json"])["packages"]
    assert packages["node_modules/@shop/two"] == {"resolved": "libs/two", "link": True}
    assert packages[""] == {"workspaces": ["libs/one", "libs/two"]} and packages["libs/two"]["name"] == "@shop/two"
    assert b"require(" in module.files["libs/two/test/greet.test.js"]


def test_nothing_that_exists_is_overwritten() -> None:
    files = {"package.json": '{"workspaces": ["packages/*"]}', "packages/two": "a file"}
    with pytest.raises(CodePilotError, match="exists"):
        joined("npm", "two", files)
    with pytest.raises(CodePilotError, match="no workspaces"):
        joined("npm", "two", {"package.json": "{}"})


@pytest.mark.parametrize(
    ("ecosystem", "name", "files"),
    [
        ("maven", "core", {"pom.xml": PARENT.format(modules=LISTED), "parts/pom.xml": CORE}),
        (
            "npm",
            "@shop/one",
            {"package.json": '{"workspaces": ["libs/*"]}', "libs/a/package.json": '{"name": "@shop/one"}'},
        ),
        ("python", "One.two", {"libs/a/pyproject.toml": '[project]\nname = "one_two"\n'}),
    ],
)
def test_a_name_that_another_module_has_is_refused(ecosystem: str, name: str, files: dict[str, str]) -> None:
    with pytest.raises(CodePilotError, match=r"(parts|libs/a)/.*too"):
        joined(ecosystem, name, files)
    assert joined(ecosystem, f"{name}-2", files).folder


def test_modules_next_to_each_other_have_tests_of_different_names() -> None:
    made = [set(joined("python", name, {"readme": ""}).files) for name in ("one", "two")]
    tests = [{path.rpartition("/")[2] for path in paths if "/tests/" in path} for paths in made]
    assert tests == [{"test_one.py"}, {"test_two.py"}]
