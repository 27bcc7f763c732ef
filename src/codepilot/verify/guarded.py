"""Which files judge the change: tests, and what configures or loads the runner. A change may not bend its judge."""

from __future__ import annotations

import configparser
import sys
import tomllib
from pathlib import PurePosixPath

from codepilot.verify import buildfiles

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
"""Directories whose files configure a build or are loaded by a runner; a path that has one of them in it."""
SECTIONED_NAMES = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})
RUNNER_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "py", "xdist"})
SOURCE_ROOTS = ("src", "lib")
MODULE_SUFFIXES = (".py", ".pyc", ".so")


def configures_runner(path: str) -> bool:
    """A file that the runner or the interpreter loads by its name alone, whatever it holds."""
    pure = PurePosixPath(path)
    if pure.name in CONFIG_NAMES or pure.suffix == ".pth":
        return True
    return any(pure.match(pattern) for pattern in CONFIG_PATTERNS) or any(
        f"/{folder}" in f"/{path}" for folder in CONFIG_FOLDERS
    )


def shadows_module(path: str) -> bool:
    """A module that, found first on the path, stands in for the runner or the standard library."""
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
    """What `content` tells the test runner, comparable by equality; the bytes themselves if they cannot be read."""
    name = PurePosixPath(path).name
    if name in buildfiles.READ:
        return buildfiles.READ[name](content)
    if name not in SECTIONED_NAMES:
        return None
    text = (content or b"").decode("utf-8", "replace")
    try:
        return _toml_settings(text) if name == "pyproject.toml" else _ini_settings(text)
    except (tomllib.TOMLDecodeError, configparser.Error, RecursionError):
        return content


def _toml_settings(text: str) -> object:
    tool = tomllib.loads(text).get("tool", {})
    return tool.get("pytest") if isinstance(tool, dict) else tool


def _ini_settings(text: str) -> object:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    sections = ("pytest", "tool:pytest", "unittest")
    return {name: sorted(parser.items(name)) for name in sections if parser.has_section(name)}


def bends_runner(path: str, before: bytes | None, after: bytes | None) -> bool:
    """Whether going from `before` to `after` (None: no such file) changes how tests are found, loaded or run."""
    if before == after:
        return False
    if configures_runner(path):
        return True
    if before is None and shadows_module(path):
        return True
    return runner_settings(path, before) != runner_settings(path, after)
