"""Configuration files in a change: those of the test runner, which a change may not bend, and those of other tools.

A file of the first kind refuses the change. One of the second kind is allowed and flagged, so that a reader sees it
first: once the change is accepted it runs code, or leads tools elsewhere, on people's machines.
"""

from __future__ import annotations

import configparser
import json
import re
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers import expat

from codepilot.core.events import FilesFlagged
from codepilot.core.project_settings import parse_toml
from codepilot.executor import FileChange

CONFIG_NAMES = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "sitecustomize.py", "usercustomize.py"}
    | {"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties"}
    | {"junit-platform.properties", "testng.xml", ".npmrc", ".pnpmfile.cjs"}
)
CONFIG_PATTERNS = (
    *("jest.config.*", "vitest.config.*", "vitest.workspace.*", "vite.config.*", ".mocharc*", "babel.config.*"),
    *(".babelrc*", "init.gradle*"),
)
CONFIG_FOLDERS = (".mvn", "buildSrc", "gradle/wrapper", "META-INF/services/org.junit")
"""Directories whose files configure a build or are loaded by a runner, anywhere in a path."""
SECTIONED_NAMES = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})
RUNNER_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist"})
SOURCE_ROOTS = ("src", "lib")
MODULE_SUFFIXES = (".py", ".pyc", ".so")


def configures_runner(path: str) -> bool:
    """True for a file that the runner or the interpreter loads because of its name."""
    pure = PurePosixPath(path)
    if pure.name in CONFIG_NAMES or pure.suffix == ".pth":
        return True
    return any(pure.match(pattern) for pattern in CONFIG_PATTERNS) or any(
        f"/{folder}" in f"/{path}" for folder in CONFIG_FOLDERS
    )


def shadows_module(path: str) -> bool:
    """True for a module that would replace the runner or a module of the standard library on the path."""
    pure = PurePosixPath(path)
    if pure.parts and pure.parts[0] in SOURCE_ROOTS:
        pure = pure.relative_to(pure.parts[0])
    if pure.suffix not in MODULE_SUFFIXES:
        return False
    package = len(pure.parts) == 2 and pure.name.split(".")[0] == "__init__"
    if not package and len(pure.parts) != 1:
        return False
    name = pure.parts[0].split(".")[0]
    return name != "test" and (name in RUNNER_MODULES or name in sys.stdlib_module_names)


def runner_settings(path: str, content: bytes | None) -> object:
    """The settings of the test runner in `content`, comparable by equality; the bytes if they cannot be parsed."""
    name = PurePosixPath(path).name
    if name in READ:
        return READ[name](content)
    if name not in SECTIONED_NAMES:
        return None
    if content is not None and len(content) > MAX_BYTES:
        return content
    try:
        return _toml_settings(content or b"") if name == "pyproject.toml" else _ini_settings(content or b"")
    except (ValueError, configparser.Error):
        return content


def _toml_settings(content: bytes) -> object:
    tool = parse_toml(content).get("tool", {})
    return tool.get("pytest") if isinstance(tool, dict) else tool


def _ini_settings(content: bytes) -> object:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(content.decode("utf-8", "replace"))
    sections = ("pytest", "tool:pytest", "unittest")
    return {name: sorted(parser.items(name)) for name in sections if parser.has_section(name)}


def bends_runner(path: str, before: bytes | None, after: bytes | None) -> bool:
    """True if the change of a file (None: no such file) changes how tests are found, loaded or run."""
    if before == after:
        return False
    if configures_runner(path):
        return True
    if before is None and shadows_module(path):
        return True
    return runner_settings(path, before) != runner_settings(path, after)


MAX_BYTES = 4 << 20
MAX_DEPTH = 100
_DESCRIBES_POM = frozenset(
    {"version", "name", "description", "url", "licenses", "developers", "contributors", "organization", "scm"}
    | {"issueManagement", "inceptionYear", "mailingLists", "distributionManagement", "ciManagement"}
)
_DESCRIBES_PACKAGE = frozenset(
    {"name", "version", "description", "keywords", "author", "contributors", "license", "repository", "bugs"}
    | {"homepage", "funding", "engines", "files", "private", "dependencies", "peerDependencies"}
    | {"optionalDependencies", "bin", "publishConfig"}
)
_JUDGES = re.compile(r"junit|testng|mockito|assertj|hamcrest|surefire|opentest|spock|kotest")


def pom_settings(content: bytes | None) -> object:
    """A POM without its description and the product's dependencies; the bytes if it cannot be parsed."""
    if not content or len(content) > MAX_BYTES:
        return content
    try:
        root = _parsed(content)
    except (expat.ExpatError, ParseError, ValueError, LookupError):
        return content
    kept = []
    for child in root:
        tag = child.tag.rpartition("}")[2]
        if tag in ("dependencies", "dependencyManagement"):
            kept += [_canonical(one) for one in child.iter() if one.tag.endswith("dependency") and _judges(one)]
        elif tag not in _DESCRIBES_POM:
            kept.append(_canonical(child))
    return tuple(sorted(kept))


def _parsed(content: bytes) -> Element:
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def opened(name: str, given: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        builder.start(name, given)

    def closed(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    def declared(*_: object) -> None:
        raise ValueError("it declares a DTD or entities")

    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = declared
    parser.Parse(content, True)
    return builder.close()


def _judges(dependency: Element) -> bool:
    fields = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in dependency}
    return fields.get("scope") == "test" or bool(_JUDGES.search(f"{fields.get('groupId')} {fields.get('artifactId')}"))


def _canonical(element: Element) -> str:
    inner = "".join(_canonical(child) for child in element)
    return f"<{element.tag}>{(element.text or '').strip()}{inner}</>"


def package_settings(content: bytes | None) -> object:
    """A package's scripts and tool configuration; the bytes if it cannot be parsed."""
    if not content or len(content) > MAX_BYTES:
        return content
    try:
        package = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(package, dict):
        return content
    return {key: value for key, value in package.items() if key not in _DESCRIBES_PACKAGE}


READ: dict[str, Callable[[bytes | None], object]] = {"pom.xml": pom_settings, "package.json": package_settings}
"""The parsers of build files that hold more than configuration, by file name."""


# Flagged files --------------------------------------------------------------------------------------

TOOL_FILES = (
    *(".babelrc*", ".bazelrc", ".bowerrc", ".condarc", ".curlrc", ".devcontainer.json", ".envrc", ".git"),
    *(".gitattributes", ".gitconfig", ".gitlab-ci.yml", ".gitmodules", ".hgrc", ".lefthook.y*ml", ".lintstagedrc*"),
    *(".npmrc", ".pdbrc", ".pnpmfile.*js", ".pre-commit-config.y*ml", ".pypirc", ".pythonrc*", ".travis.yml"),
    *(".wgetrc", ".yarnrc*", "*.pth", "azure-pipelines.y*ml", "gradle.properties", "gradle-wrapper.jar"),
    *("gradle-wrapper.properties", "init.gradle*", "jenkinsfile", "lefthook.y*ml", "maven-wrapper.jar"),
    *("maven-wrapper.properties", "mavenrc", "pip.conf", "pip.ini", "sitecustomize.py", "usercustomize.py"),
)
"""Names of files that tools read by themselves, in any directory. They are compared without regard to case."""
TOOL_FOLDERS = (
    *(".cargo/config", ".cargo/config.toml", ".circleci/*", ".claude/*", ".cursor/*", ".devcontainer/*"),
    *(".github/actions/*", ".github/workflows/*", ".githooks/*", ".husky/*", ".idea/*", ".m2/*", ".mvn/*"),
    *(".vscode/launch.json", ".vscode/settings.json", ".vscode/tasks.json", ".yarn/plugins/*", ".yarn/releases/*"),
    "gradle/wrapper/*",
)
"""Endings of paths that tools read by themselves; `*` matches anything below."""


def flagged(changes: Sequence[FileChange]) -> tuple[FilesFlagged, ...]:
    """The files of a change to show first: new executables, and configuration of tools."""
    present = [change for change in changes if change.change != "deleted"]
    executables = tuple(change.path for change in present if _became_executable(change))
    configurations = tuple(change.path for change in present if configures_tools(change.path))
    found = (
        FilesFlagged(rule="new_executable", paths=executables),
        FilesFlagged(rule="tool_configuration", paths=configurations),
    )
    return tuple(one for one in found if one.paths)


def configures_tools(path: str) -> bool:
    """True if tools read a file of this name by themselves."""
    lowered = path.lower()
    name = PurePosixPath(lowered).name
    return any(fnmatchcase(name, pattern) for pattern in TOOL_FILES) or any(
        fnmatchcase(f"/{lowered}", f"*/{pattern}") for pattern in TOOL_FOLDERS
    )


def _became_executable(change: FileChange) -> bool:
    return change.new_mode == "100755" and change.old_mode != "100755"
