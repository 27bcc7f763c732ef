"""What a build file tells the test runner, comparable by equality: all but what describes the project or its parts.

Dependencies may change with a repair; those that bring or are the tests' own judge may not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers import expat

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
    """A POM without its description and its product's dependencies; the bytes themselves if it cannot be read."""
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
    told = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in dependency}
    return told.get("scope") == "test" or bool(_JUDGES.search(f"{told.get('groupId')} {told.get('artifactId')}"))


def _canonical(element: Element) -> str:
    inner = "".join(_canonical(child) for child in element)
    return f"<{element.tag}>{(element.text or '').strip()}{inner}</>"


def package_settings(content: bytes | None) -> object:
    """A package's scripts and what configures its tools; the bytes themselves if it cannot be read."""
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
"""How each build file that is more than configuration is read, by its name."""
