"""The files of a new module: build file, CI stub, source, tests and README, as data. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from codepilot.core.scaffold import Ecosystem, Scaffold, package_problem
from codepilot.project.scaffold.maven_versions import MavenVersions

Files = dict[str, bytes]


@dataclass(frozen=True)
class Surroundings:
    """What a template adapts to: the tools of this machine and the build that the module joins."""

    maven: MavenVersions = field(default_factory=MavenVersions)
    python: tuple[int, int] = (3, 11)
    pytest: bool = True
    """True if the interpreter has pytest; else the tests are unittest's."""
    parent: str = ""
    """The `<parent>` element of a Maven module that joins a reactor."""
    group: str = ""
    """The reactor's group: the module's package lies in it."""
    junit: str = ""
    """The `<dependencies>` of its tests, as the reactor's other modules write them; empty if they are inherited."""
    junit_major: int = 5
    esm: bool = True
    """True if an npm module is an ES module."""


def render(wanted: Scaffold, around: Surroundings) -> Files:
    """The files of the module, by their paths in its own directory."""
    made = {Ecosystem.MAVEN: _maven, Ecosystem.PYTHON: _python, Ecosystem.NPM: _npm}[wanted.ecosystem](wanted, around)
    return {path: text.encode() for path, text in made.items()}


def ci_stub(wanted: Scaffold, folder: str = "", version: tuple[int, int] = (3, 11)) -> Files:
    """The CI file, by its path from the repository's top; `folder` is the module's place there."""
    if wanted.ci is None:
        return {}
    if wanted.ci == "github":
        name = f"{wanted.folder}.yml" if folder else "ci.yml"
        return {f".github/workflows/{name}": _github(wanted, folder, version).encode()}
    return {f"{folder}/.gitlab-ci.yml".lstrip("/"): _gitlab(wanted, folder, version).encode()}


def class_name(name: str) -> str:
    """`order-history` as OrderHistory."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name.rpartition("/")[2]) if word]
    joined = "".join(word[:1].upper() + word[1:] for word in words) or "Module"
    return joined if joined[0].isalpha() else f"Module{joined}"


# Maven -----------------------------------------------------------------------------------------------

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0"
         xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
         xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 https://maven.apache.org/xsd/maven-4.0.0.xsd">
  <modelVersion>4.0.0</modelVersion>
{parent}  <artifactId>{name}</artifactId>
{own}</project>
"""
_ALONE = """  <groupId>{group}</groupId>
"""
_ALONE_REST = """  <version>0.1.0-SNAPSHOT</version>

  <properties>
    <maven.compiler.source>{release}</maven.compiler.source>
    <maven.compiler.target>{release}</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
"""
_BUILD = """
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-surefire-plugin</artifactId>
        <version>{surefire}</version>
      </plugin>
    </plugins>
  </build>
"""
_DEPENDENCY = """
  <dependencies>
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
{version}      <scope>test</scope>
    </dependency>
  </dependencies>
"""
_JAVA = """package {package};

/** Greets by name. Replace this class by the module's own. */
public final class {type} {{
    private {type}() {{
    }}

    /** Returns the greeting for a name; a name that is empty or blank is refused. */
    public static String greet(String name) {{
        if (name == null || name.trim().isEmpty()) {{
            throw new IllegalArgumentException("name is empty");
        }}
        return "Hello, " + name.trim() + "!";
    }}
}}
"""
_JUNIT5 = """package {package};

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class {type}Test {{
    @Test
    void greetsByName() {{
        assertEquals("Hello, Ada!", {type}.greet(" Ada "));
    }}

    @Test
    void refusesAnEmptyName() {{
        assertThrows(IllegalArgumentException.class, () -> {type}.greet(" "));
    }}
}}
"""
_JUNIT4 = """package {package};

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class {type}Test {{
    @Test
    public void greetsByName() {{
        assertEquals("Hello, Ada!", {type}.greet(" Ada "));
    }}

    @Test(expected = IllegalArgumentException.class)
    public void refusesAnEmptyName() {{
        {type}.greet(" ");
    }}
}}
"""


def dependency(group: str, artifact: str, version: str) -> str:
    """The `<dependencies>` element of one test dependency; without a version if a parent manages it."""
    line = f"      <version>{version}</version>\n" if version else ""
    return _DEPENDENCY.format(group=group, artifact=artifact, version=line)


def surefire_plugin(version: str) -> str:
    """The `<build>` element that runs the tests by this version of Surefire."""
    return _BUILD.format(surefire=version)


def _java_package(wanted: Scaffold, group: str) -> str:
    """The package that was asked for; else one in the reactor's group, if that can be a package."""
    inner = f"{group.replace('-', '')}.{wanted.import_name.rpartition('.')[2]}"
    usable = group and not wanted.package and not package_problem(wanted.ecosystem, inner)
    return inner if usable else wanted.import_name


def _maven(wanted: Scaffold, around: Surroundings) -> dict[str, str]:
    package, type_ = _java_package(wanted, around.group), class_name(wanted.name)
    path, versions = package.replace(".", "/"), around.maven
    if around.parent:
        pom = _POM.format(parent=f"{around.parent}\n", name=wanted.name, own=around.junit)
        major = around.junit_major
    else:
        group = _ALONE.format(group=package.rpartition(".")[0] or package)
        own = _ALONE_REST.format(release=versions.release) + dependency(*versions.junit)
        own += surefire_plugin(versions.surefire)
        pom, major = _POM.format(parent=group, name=wanted.name, own=own), versions.junit_major
    test = _JUNIT5 if major >= 5 else _JUNIT4
    readme = _readme(wanted, "mvn test", f"`{package}.{type_}`")
    return {
        "pom.xml": pom,
        "README.md": readme,
        f"src/main/java/{path}/{type_}.java": _JAVA.format(package=package, type=type_),
        f"src/test/java/{path}/{type_}Test.java": test.format(package=package, type=type_),
        **({} if around.parent else {".gitignore": "target/\n"}),
    }


# Python ----------------------------------------------------------------------------------------------

_PYPROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = ""
readme = "README.md"
requires-python = ">={python}"
dependencies = []
{groups}
[tool.hatch.build.targets.wheel]
packages = ["src/{package}"]
{pytest}"""
_GROUPS = """
[dependency-groups]
dev = ["pytest"]
"""
_PYTEST = """
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["src"]
"""
_PY_INIT = '''"""{title}."""

from {package}.greeting import greet

__all__ = ["greet"]
'''
_PY_SOURCE = '''"""Greets by name. Replace this module by the package's own."""


def greet(name: str) -> str:
    """Return the greeting for a name; a name that is empty or blank is refused."""
    if not name.strip():
        raise ValueError("name is empty")
    return f"Hello, {{name.strip()}}!"
'''
_PY_TEST = """import pytest

from {package} import greet


def test_greets_by_name():
    assert greet(" Ada ") == "Hello, Ada!"


def test_refuses_an_empty_name():
    with pytest.raises(ValueError, match="empty"):
        greet(" ")
"""
_PY_UNITTEST = """import unittest

from {package} import greet


class GreetingTest(unittest.TestCase):
    def test_greets_by_name(self):
        self.assertEqual(greet(" Ada "), "Hello, Ada!")

    def test_refuses_an_empty_name(self):
        with self.assertRaises(ValueError):
            greet(" ")
"""


def _python(wanted: Scaffold, around: Surroundings) -> dict[str, str]:
    package = wanted.import_name
    version = ".".join(map(str, around.python))
    command = "python -m pytest" if around.pytest else "PYTHONPATH=src python -m unittest discover -s tests -t ."
    project = _PYPROJECT.format(
        name=wanted.name,
        package=package,
        python=version,
        groups=_GROUPS if around.pytest else "",
        pytest=_PYTEST if around.pytest else "",
    )
    return {
        "pyproject.toml": project,
        "README.md": _readme(wanted, command, f"`import {package}`"),
        ".gitignore": "__pycache__/\n*.egg-info/\n.venv/\ndist/\n",
        f"src/{package}/__init__.py": _PY_INIT.format(title=class_name(wanted.name), package=package),
        f"src/{package}/greeting.py": _PY_SOURCE.format(),
        f"src/{package}/py.typed": "",
        f"tests/test_{package}.py": (_PY_TEST if around.pytest else _PY_UNITTEST).format(package=package),
        **({} if around.pytest else {"tests/__init__.py": ""}),
    }


# npm -------------------------------------------------------------------------------------------------

_JS_ESM = """/** Returns the greeting for a name; a name that is empty or blank is refused. */
export function greet(name) {
  if (typeof name !== 'string' || !name.trim()) {
    throw new TypeError('name is empty');
  }
  return `Hello, ${name.trim()}!`;
}
"""
_JS_TEST_ESM = """import assert from 'node:assert/strict';
import { test } from 'node:test';

import { greet } from '../src/index.js';

test('greets by name', () => {
  assert.equal(greet(' Ada '), 'Hello, Ada!');
});

test('refuses an empty name', () => {
  assert.throws(() => greet(' '), TypeError);
});
"""
_JS_CJS = _JS_ESM.replace("export function", "function") + "\nmodule.exports = { greet };\n"
_JS_TEST_CJS = _JS_TEST_ESM.replace(
    "import assert from 'node:assert/strict'", "const assert = require('node:assert/strict')"
)
_JS_TEST_CJS = _JS_TEST_CJS.replace("import { test } from 'node:test'", "const { test } = require('node:test')")
_JS_TEST_CJS = _JS_TEST_CJS.replace(
    "import { greet } from '../src/index.js'", "const { greet } = require('../src/index.js')"
)


def _npm(wanted: Scaffold, around: Surroundings) -> dict[str, str]:
    package = {
        "name": wanted.name,
        "version": "0.1.0",
        "private": True,
        "type": "module" if around.esm else "commonjs",
        **({"exports": "./src/index.js"} if around.esm else {"main": "./src/index.js"}),
        "scripts": {"test": "node --test test/"},
        "engines": {"node": ">=20"},
    }
    return {
        "package.json": json.dumps(package, indent=2) + "\n",
        "README.md": _readme(wanted, "npm test", f"`{wanted.name}`"),
        ".gitignore": "node_modules/\n",
        "src/index.js": _JS_ESM if around.esm else _JS_CJS,
        "test/greet.test.js": _JS_TEST_ESM if around.esm else _JS_TEST_CJS,
    }


# Beside them -----------------------------------------------------------------------------------------


def _readme(wanted: Scaffold, command: str, entry: str) -> str:
    return f"# {wanted.name}\n\nThe code starts at {entry}. Run the tests with:\n\n```\n{command}\n```\n"


_STEPS = {
    Ecosystem.MAVEN: (
        "actions/setup-java@v4\n        with: { distribution: temurin, java-version: '17', cache: maven }",
        ("mvn -B test",),
        "maven:3-eclipse-temurin-17",
    ),
    Ecosystem.PYTHON: (
        "actions/setup-python@v5\n        with: { python-version: '%s' }",
        ("python -m pip install pytest", "python -m pytest"),
        "python:%s",
    ),
    Ecosystem.NPM: ("actions/setup-node@v4\n        with: { node-version: '20' }", ("npm test",), "node:20"),
}


def _commands(wanted: Scaffold, folder: str) -> tuple[str, tuple[str, ...], str]:
    """The step that sets up, the commands, and where they run; a Maven module is built by its reactor."""
    _, commands, _ = _STEPS[wanted.ecosystem]
    if wanted.ecosystem is Ecosystem.MAVEN and folder:
        around, _, name = folder.rpartition("/")
        return name, (f"mvn -B -pl {name} -am test",), around
    return folder, commands, folder


def _github(wanted: Scaffold, folder: str, version: tuple[int, int]) -> str:
    setup, _, _ = _STEPS[wanted.ecosystem]
    setup = setup % ".".join(map(str, version)) if "%s" in setup else setup
    _, commands, where = _commands(wanted, folder)
    paths = f"\n    paths: ['{folder}/**']" if folder else ""
    place = f"\n        working-directory: {where}" if where else ""
    steps = "".join(f"      - run: {command}{place}\n" for command in commands)
    return (
        f"name: {wanted.folder}\n\non:\n  push:{paths or ' {}'}\n  pull_request:{paths or ' {}'}\n\n"
        "jobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n"
        f"      - uses: actions/checkout@v4\n      - uses: {setup}\n{steps}"
    )


def _gitlab(wanted: Scaffold, folder: str, version: tuple[int, int]) -> str:
    _, _, image = _STEPS[wanted.ecosystem]
    image = image % ".".join(map(str, version)) if "%s" in image else image
    _, commands, where = _commands(wanted, folder)
    script = (f"cd {where}", *commands) if where else commands
    lines = "".join(f"    - {command}\n" for command in script)
    rules = f"  rules:\n    - changes: ['{folder}/**/*']\n" if folder else ""
    return f"test-{wanted.folder}:\n  image: {image}\n{rules}  script:\n{lines}"
