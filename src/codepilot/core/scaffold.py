"""What a task of kind scaffold makes: a module of an ecosystem, with a name that its build system accepts. Pure."""

from __future__ import annotations

import keyword
import re
import sys
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from codepilot.core.contract import Contract
from codepilot.core.git_names import check_folder

MAX_NAME = 100
_MAVEN = re.compile(r"[a-z][a-z0-9]*(?:[-.][a-z0-9]+)*")
_PYTHON = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_NPM = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
_NPM_TAKEN = frozenset({"node_modules", "favicon.ico", "package.json", "test"})
_JAVA_PART = re.compile(r"[a-z_][a-z0-9_]*")
_JAVA_WORDS = frozenset(
    {"abstract", "assert", "boolean", "break", "byte", "case", "catch", "char", "class", "const", "continue", "default"}
    | {"do", "double", "else", "enum", "extends", "false", "final", "finally", "float", "for", "goto", "if", "int"}
    | {"implements", "import", "instanceof", "interface", "long", "native", "new", "null", "package", "private"}
    | {"protected", "public", "return", "short", "static", "strictfp", "super", "switch", "synchronized", "this"}
    | {"throw", "throws", "transient", "true", "try", "void", "volatile", "while", "_"}
)
_FORMS = {
    "maven": "small letters, digits and hyphens, a letter first, for example order-history",
    "python": "letters, digits, '.', '-' and '_', for example order-history",
    "npm": "small letters, digits, '-', '.' and '_', and a scope if you like, for example @shop/order-history",
}


class Ecosystem(StrEnum):
    """The build systems for which a module can be made."""

    MAVEN = "maven"
    PYTHON = "python"
    NPM = "npm"


class Scaffold(Contract):
    """The module that a task of kind scaffold makes."""

    ecosystem: Ecosystem
    name: str
    package: str = ""
    """The Java package or the Python package to import. Left out, it follows from the name."""
    ci: Literal["github", "gitlab"] | None = None
    """The CI system of the stub. Left out: github, and none for a repository that has CI."""
    join: bool = False
    """True if the module becomes part of the build of `repo`; else `repo` is the new directory."""
    out: Annotated[str, AfterValidator(check_folder)] = ""
    """The module's directory in the repository that it joins. Left out, it follows from the build."""

    @model_validator(mode="after")
    def _can_be_named(self) -> Self:
        if problem := name_problem(self.ecosystem, self.name):
            raise ValueError(problem)
        if self.package and (problem := package_problem(self.ecosystem, self.package)):
            raise ValueError(problem)
        if not self.package and (problem := package_problem(self.ecosystem, self.import_name)):
            raise ValueError(f"{problem} Name one with --package.")
        return self

    @property
    def folder(self) -> str:
        """The name of its directory: the name without an npm scope."""
        return self.name.rpartition("/")[2]

    @property
    def import_name(self) -> str:
        """The package that its code is in; empty for npm."""
        if self.package or self.ecosystem is Ecosystem.NPM:
            return self.package
        if self.ecosystem is Ecosystem.PYTHON:
            return re.sub(r"[-.]+", "_", self.name).lower()
        return "com.example." + re.sub(r"[-.]+", "", self.name)


def name_problem(ecosystem: Ecosystem, name: str) -> str:
    """Why the ecosystem refuses this name for a module; empty if it does not."""
    pattern = {Ecosystem.MAVEN: _MAVEN, Ecosystem.PYTHON: _PYTHON, Ecosystem.NPM: _NPM}[ecosystem]
    shown = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"
    if len(name) > MAX_NAME or not name.isascii() or not pattern.fullmatch(name) or ".." in name:
        return f"{shown!r} cannot be the name of a module of {ecosystem}: use {_FORMS[ecosystem]}."
    if ecosystem is Ecosystem.NPM and (name in _NPM_TAKEN or name.startswith((".", "_"))):
        return f"npm does not accept {name!r} as the name of a package."
    return ""


def package_problem(ecosystem: Ecosystem, package: str) -> str:
    """Why code cannot be in this package; empty if it can."""
    if ecosystem is Ecosystem.NPM:
        return f"A module of npm has no package apart from its name, and --package says {package!r}." if package else ""
    parts = package.split(".")
    if ecosystem is Ecosystem.PYTHON:
        wrong = [one for one in parts if not (one.isascii() and one.isidentifier()) or keyword.iskeyword(one)]
        if wrong or len(parts) > 1:
            return f"{package!r} cannot be a Python package: use one name of letters, digits and '_'."
        return f"{package!r} would hide Python's own module of that name." if package in _STDLIB else ""
    wrong = [one for one in parts if not _JAVA_PART.fullmatch(one) or one in _JAVA_WORDS]
    if wrong or len(package) > MAX_NAME * 2:
        return f"{package!r} cannot be a Java package: use names like org.example.shop, and no word of the language."
    return ""


_STDLIB = frozenset(sys.stdlib_module_names) | {"tests", "test", "src"}
