"""Registers a module in an npm workspace or a Python monorepo. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from dataclasses import replace
from typing import Any

from codepilot.core.failures import CodePilotError
from codepilot.core.project_settings import parse_toml
from codepilot.core.scaffold import Scaffold
from codepilot.project.scaffold.repository import Joined, Tree, cannot_join, is_member, place_for
from codepilot.project.scaffold.templates import Surroundings

_MEMBERS = re.compile(r"^[ \t]*members[ \t]*=[ \t]*\[(?P<items>[^\]]*)\]", re.MULTILINE)
_UV_TABLE = re.compile(r"^[ \t]*\[tool\.uv\.workspace\][ \t]*(?:#.*)?$", re.MULTILINE)
_PNPM = re.compile(r"^[ \t]*-[ \t]*['\"]?([^'\"#\s]+)['\"]?[ \t]*(?:#.*)?$", re.MULTILINE)


def join_npm(tree: Tree, start: str, wanted: Scaffold, out: str, around: Surroundings) -> Joined:
    """Register the package in the workspace of `start`'s package.json, and in its lock file."""
    path = posixpath.join(start, "package.json")
    content = tree.read(path)
    if content is None:
        raise cannot_join(f"There is no {path} to join.", "Name the root of an npm workspace with --into.")
    root = _object(path, content)
    pnpm = tree.read(posixpath.join(start, "pnpm-workspace.yaml"))
    patterns = _patterns(root) or (_PNPM.findall(pnpm.decode("utf-8", "replace")) if pnpm else [])
    if not patterns:
        raise cannot_join(
            f"{path} has no workspaces.", 'Add "workspaces": ["packages/*"] to it, or leave --into out and use --out.'
        )
    place = posixpath.relpath(out, start or ".") if out else place_for(patterns, wanted.folder)
    if place.startswith(".."):
        raise cannot_join(f"{out} is not below {path}.", "Choose a directory of the workspace with --out.")
    folder, edits, notes = posixpath.join(start, place), {}, f"{path} has the workspace {place}"
    if not is_member(patterns, place):
        if pnpm and not _patterns(root):
            raise cannot_join(f"pnpm-workspace.yaml does not cover {place}.", "Choose a directory that it names.")
        edits[path] = _with_workspace(content, root, place)
    else:
        notes = f"the workspaces of {path} cover {place}"
    lock = posixpath.join(start, "package-lock.json")
    if (locked := tree.read(lock)) is not None and (edited := _locked(locked, wanted, place, root)) is not None:
        edits[lock] = edited
    around = replace(around, esm=_is_esm(tree, start, patterns))
    return Joined(folder, edits, around, (notes,))


def _object(path: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise cannot_join(f"{path} is not JSON.", "Correct the file, then try again.") from error
    if not isinstance(found, dict):
        raise cannot_join(f"{path} is no JSON object.", "Correct the file, then try again.")
    return found


def _patterns(root: dict[str, Any]) -> list[str]:
    named = root.get("workspaces")
    listed = named.get("packages") if isinstance(named, dict) else named
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


def _with_workspace(content: bytes, root: dict[str, Any], place: str) -> bytes:
    named = root["workspaces"]
    listed = [*_patterns(root), place]
    changed = {**root, "workspaces": {**named, "packages": listed} if isinstance(named, dict) else listed}
    return _dumped(changed, content)


def _dumped(document: dict[str, Any], like: bytes) -> bytes:
    """The document with the indentation of the file that it replaces."""
    found = re.search(rb"\n([ \t]+)\S", like)
    indent: str | int = found[1].decode() if found else 2
    return (json.dumps(document, indent=indent, ensure_ascii=False) + "\n").encode()


def _locked(content: bytes, wanted: Scaffold, place: str, root: dict[str, Any]) -> bytes | None:
    """The lock file with the new member, so that `npm ci` goes on to work; None for the format without packages."""
    lock = _object("package-lock.json", content)
    packages = lock.get("packages")
    if not isinstance(packages, dict) or not isinstance(packages.get("", {}), dict):
        return None
    member = {"version": "0.1.0", "engines": {"node": ">=20"}}
    if wanted.folder != wanted.name or posixpath.basename(place) != wanted.name:
        member = {"name": wanted.name, **member}
    own = dict(packages.get("", {}))
    if isinstance(own.get("workspaces"), list) and not is_member(_patterns(root), place):
        own["workspaces"] = [*own["workspaces"], place]
    added = {place: member, f"node_modules/{wanted.name}": {"resolved": place, "link": True}}
    rest = dict(sorted({**{key: value for key, value in packages.items() if key}, **added}.items()))
    return _dumped({**lock, "packages": {"": own, **rest}}, content)


def _is_esm(tree: Tree, start: str, patterns: list[str]) -> bool:
    """True if most members are ES modules; a workspace without members gets them."""
    kinds: Counter[bool] = Counter()
    for folder in tree.folders_with("package.json"):
        if folder != start and is_member(patterns, posixpath.relpath(folder, start or ".")):
            try:
                kinds[
                    _object("", tree.read(posixpath.join(folder, "package.json")) or b"{}").get("type") == "module"
                ] += 1
            except CodePilotError:  # a broken member says nothing about the others
                continue
    return kinds[True] >= kinds[False]


# Python ----------------------------------------------------------------------------------------------


def join_python(tree: Tree, start: str, wanted: Scaffold, out: str, around: Surroundings) -> Joined:
    """Register the package in the uv workspace of `start`; without one it goes next to the other packages."""
    path = posixpath.join(start, "pyproject.toml")
    content = tree.read(path)
    members = None if content is None else _uv_members(path, content)
    if content is None or members is None:
        folder = out or posixpath.join(start, _usual_place(tree, start), wanted.folder)
        return Joined(posixpath.normpath(folder), {}, around, ("there is no uv workspace to register it in",))
    patterns, excluded = members
    place = posixpath.relpath(out, start or ".") if out else place_for(patterns, wanted.folder)
    if place.startswith("..") or is_member(excluded, place):
        raise cannot_join(f"{place} is no place for a member of {path}.", "Choose another directory with --out.")
    folder = posixpath.join(start, place)
    if is_member(patterns, place):
        edits, note = {}, f"the workspace members of {path} cover {place}"
    else:
        edits, note = {path: _with_member(path, content, place)}, f"{path} has the workspace member {place}"
    lock = ("run `uv lock` to renew uv.lock",) if tree.has(posixpath.join(start, "uv.lock")) else ()
    return Joined(folder, edits, around, (note, *lock))


def _uv_members(path: str, content: bytes) -> tuple[list[str], list[str]] | None:
    """The patterns of a uv workspace, and those that it excludes; None if there is none."""
    try:
        workspace = parse_toml(content).get("tool", {}).get("uv", {}).get("workspace")
    except (ValueError, AttributeError) as error:
        raise cannot_join(f"{path} cannot be read: {error}.", "Correct the file, then try again.") from error
    if not isinstance(workspace, dict):
        return None
    named = (workspace.get("members"), workspace.get("exclude"))
    both = [one if isinstance(one, list) else [] for one in named]
    members, excluded = ([one for one in listed if isinstance(one, str)] for listed in both)
    return members, excluded


def _with_member(path: str, content: bytes, place: str) -> bytes:
    """The file with one more member, everything else as it was; checked by reading it again."""
    text, before = content.decode(), _uv_members(path, content)
    table = _UV_TABLE.search(text)
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, table.end()) if table else None
    end = following.start() if following else len(text)
    found = _MEMBERS.search(text, table.end(), end) if table else None
    edited = text
    if found is not None:
        lines = re.match(r"[ \t]*(?:#[^\n]*)?\n([ \t]*)", found["items"])
        rest = found["items"].strip()
        first = f'\n{lines[1] or "    "}"{place}",' if lines else f'"{place}"{", " if rest else ""}'
        edited = text[: found.start("items")] + first + text[found.start("items") :]
    elif table is not None:
        edited = f'{text[: table.end()]}\nmembers = ["{place}"]{text[table.end() :]}'
    after = _uv_members(path, edited.encode())
    if before is None or after is None or after != ([place, *before[0]], before[1]):
        raise cannot_join(f"{path} cannot be edited safely.", f'Add "{place}" to its members by hand.')
    return edited.encode()


def _usual_place(tree: Tree, start: str) -> str:
    """The directory that holds most of the repository's packages, relative to `start`; "" if they are next to it."""
    above: Counter[str] = Counter()
    for folder in tree.folders_with("pyproject.toml"):
        place = posixpath.relpath(folder, start or ".")
        if not place.startswith("..") and place != ".":
            above[posixpath.dirname(place)] += 1
    return above.most_common(1)[0][0] if above else ""
