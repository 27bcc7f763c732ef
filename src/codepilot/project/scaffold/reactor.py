"""Registers a module in a Maven reactor: `<module>` in the parent's POM, and what the module inherits. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from xml.parsers import expat
from xml.sax.saxutils import escape

from codepilot.project.scaffold.repository import Joined, Tree, cannot_join
from codepilot.project.scaffold.templates import Surroundings, dependency, surefire_plugin

MAX_BYTES = 4 << 20
MAX_DEPTH = 100
MAX_POMS = 200


@dataclass
class Pom:
    """What a module needs to know of a POM, and where its `<modules>` end."""

    values: dict[str, str] = field(default_factory=dict)
    """Texts by path, for example `parent/version` and `properties/junit.version`."""
    modules: list[str] = field(default_factory=list)
    tests: list[dict[str, str]] = field(default_factory=list)
    """Its own dependencies, those that it manages with `managed` set."""
    plugins: set[str] = field(default_factory=set)
    modules_end: int | None = None
    insert_at: int = 0
    """Where a missing `<modules>` belongs."""


def join_reactor(tree: Tree, start: str, name: str, out: str, around: Surroundings) -> Joined:
    """Register the module in the POM of `start`."""
    parent = posixpath.join(start, "pom.xml")
    content = tree.read(parent)
    if content is None:
        raise cannot_join(f"There is no {parent} to join.", "Name the directory of a parent POM with --into.")
    pom = read_pom(parent, content)
    if pom.values.get("packaging", "jar") != "pom":
        packaging = pom.values.get("packaging", "jar")
        raise cannot_join(
            f"{parent} has no modules: its packaging is {packaging!r}.",
            "Name the directory of a parent POM (<packaging>pom</packaging>) with --into.",
        )
    folder = out or posixpath.join(start, name)
    place = posixpath.relpath(folder, start or ".")
    if place.startswith(".."):
        raise cannot_join(f"{folder} is not below {parent}.", "Choose a directory below the parent's with --out.")
    chain = _chain(tree, parent, pom)
    junit, major = _tests(tree, start, pom, chain, around)
    group = pom.values.get("groupId") or pom.values.get("parent/groupId", "")
    around = replace(around, parent=_parent_element(parent, pom, folder), group=group, junit=junit, junit_major=major)
    edited = _with_module(content, pom, place)
    if read_pom(parent, edited).modules != [*pom.modules, place]:
        raise cannot_join(f"{parent} cannot be edited safely.", "Add the module by hand.")
    return Joined(folder, {parent: edited}, around, (f"{parent} lists the module {place}",))


def read_pom(path: str, content: bytes) -> Pom:
    """A POM by its first two levels, its dependencies and its plugins."""
    found = Pom()
    names: list[str] = []
    texts: list[list[str]] = []
    item: dict[str, str] = {}
    parser = expat.ParserCreate()

    def doctype(*_: object) -> None:
        raise ValueError("it has a DOCTYPE")

    def start(name: str, _: dict[str, str]) -> None:
        names.append(name)
        texts.append([])
        if len(names) > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if name == "dependency":
            item.clear()

    def end(name: str) -> None:
        where, text = "/".join(names[1:]), "".join(texts.pop()).strip()
        names.pop()
        if where == "modules":
            found.modules_end = parser.CurrentByteIndex
        elif where == "modules/module":
            found.modules.append(text)
        elif where.endswith("/dependency") and where.split("/")[0] in ("dependencies", "dependencyManagement"):
            managed = "yes" if where.startswith("dependencyManagement") else ""
            found.tests.append({**item, "managed": managed})
        elif where.endswith("/plugin/artifactId") and where.startswith("build/"):
            found.plugins.add(text)
        elif where.endswith(("dependency/groupId", "dependency/artifactId", "dependency/version")):
            item[name] = text
        elif len(names) == 1 or where.split("/")[0] in ("parent", "properties"):
            found.values.setdefault(where, text)
        if where in ("packaging", "version", "artifactId") and len(names) == 1:
            found.insert_at = max(found.insert_at, content.index(b">", parser.CurrentByteIndex) + 1)

    def text(data: str) -> None:
        if texts:
            texts[-1].append(data)

    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    try:
        if len(content) > MAX_BYTES:
            raise ValueError("it is too large")
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError) as error:
        raise cannot_join(f"{path} cannot be read: {error}.", "Correct the file, then try again.") from error
    return found


def _with_module(content: bytes, pom: Pom, place: str) -> bytes:
    """The POM with one more `<module>`, everything else as it was."""
    line_end = b"\r\n" if b"\r\n" in content else b"\n"
    module = f"<module>{escape(place)}</module>".encode()
    if pom.modules_end is not None:
        at = pom.modules_end
        begin = content.rfind(b"\n", 0, at) + 1
        indent = content[begin:at] if not content[begin:at].strip() else None
        if indent is None:
            return content[:at] + module + content[at:]
        return content[:begin] + indent * 2 + module + line_end + content[begin:]
    block = line_end.join((b"", b"", b"  <modules>", b"    " + module, b"  </modules>"))
    return content[: pom.insert_at] + block + content[pom.insert_at :]


def _parent_element(path: str, pom: Pom, folder: str) -> str:
    group = pom.values.get("groupId") or pom.values.get("parent/groupId", "")
    version = pom.values.get("version") or pom.values.get("parent/version", "")
    artifact = pom.values.get("artifactId", "")
    if not (group and version and artifact):
        raise cannot_join(f"{path} names no group, artifact and version.", "Complete it, then try again.")
    relative = posixpath.relpath(path, folder)
    lines = [f"<groupId>{escape(group)}</groupId>", f"<artifactId>{escape(artifact)}</artifactId>"]
    lines.append(f"<version>{escape(version)}</version>")
    if relative != "../pom.xml":
        lines.append(f"<relativePath>{escape(relative)}</relativePath>")
    return "  <parent>\n" + "".join(f"    {line}\n" for line in lines) + "  </parent>"


def _chain(tree: Tree, path: str, pom: Pom) -> list[Pom]:
    """The parent's POM and its own parents in the repository; an empty one stands for a parent outside."""
    chain, seen = [pom], {path}
    while "parent/artifactId" in chain[-1].values:
        named = chain[-1].values.get("parent/relativePath", "../pom.xml")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), named))
        path = path if path.endswith(".xml") else posixpath.join(path, "pom.xml")
        content = None if path in seen or path.startswith("..") else tree.read(path)
        if content is None:
            return [*chain, Pom()]
        seen.add(path)
        chain.append(read_pom(path, content))
    return chain


def _tests(tree: Tree, start: str, pom: Pom, chain: list[Pom], around: Surroundings) -> tuple[str, int]:
    """The test framework as the reactor uses it, and the build's parts that it does not say."""
    outside = not chain[-1].values
    own = ""
    compiles = any("maven-compiler-plugin" in one.plugins for one in chain)
    if (
        not outside
        and not compiles
        and not any("properties/maven.compiler." in key for one in chain for key in one.values)
    ):
        own += _properties(around.maven.release)
    inherited = next((one for parent in chain for one in parent.tests if _is_junit(one) and not one["managed"]), None)
    if inherited is not None:
        chosen, text = inherited, ""
    else:
        chosen, text = _beside(tree, start, pom, chain, around)
    own += text
    if not outside and not any("maven-surefire-plugin" in one.plugins for one in chain):
        own += surefire_plugin(around.maven.surefire)
    major = 4 if chosen["groupId"] == "junit" else 5
    return own, major


def _beside(tree: Tree, start: str, pom: Pom, chain: list[Pom], around: Surroundings) -> tuple[dict[str, str], str]:
    """The dependency as another module writes it, else as a parent manages it, else the machine's."""
    for module in pom.modules[:MAX_POMS]:
        path = posixpath.normpath(posixpath.join(start, module, "pom.xml"))
        content = None if path.startswith("..") else tree.read(path)
        if content is None:
            continue
        other = read_pom(path, content)
        for one in other.tests:
            if _is_junit(one) and not one["managed"]:
                version = _resolved(one.get("version", ""), other, chain)
                return one, dependency(one["groupId"], one["artifactId"], version)
    managed = next((one for parent in chain for one in parent.tests if _is_junit(one)), None)
    if managed is not None:
        return managed, dependency(managed["groupId"], managed["artifactId"], "")
    group, artifact, version = around.maven.junit
    return {"groupId": group, "artifactId": artifact}, dependency(group, artifact, version)


def _resolved(version: str, module: Pom, chain: list[Pom]) -> str:
    """A version; a property that only the other module has is replaced by its value."""
    name = version[2:-1] if version.startswith("${") and version.endswith("}") else ""
    inherited = any(f"properties/{name}" in one.values for one in chain)
    return version if not name or inherited else module.values.get(f"properties/{name}", version)


def _is_junit(one: dict[str, str]) -> bool:
    return (one.get("groupId"), one.get("artifactId")) in (
        ("org.junit.jupiter", "junit-jupiter"),
        ("org.junit.jupiter", "junit-jupiter-engine"),
        ("junit", "junit"),
    )


def _properties(release: str) -> str:
    return (
        "\n  <properties>\n"
        f"    <maven.compiler.source>{release}</maven.compiler.source>\n"
        f"    <maven.compiler.target>{release}</maven.compiler.target>\n"
        "    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>\n  </properties>\n"
    )
