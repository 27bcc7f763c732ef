"""The pages of docs/ and the README: links lead somewhere, nothing is missing, and marked commands work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from codepilot.cli.app import app
from codepilot.core.failures import HANDLING, FailureKind, Origin
from ready import without_plugins

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCE = re.compile(r"^(```+)([^\n]*)\n(.*?)^\1[ ]*$", re.M | re.S)
_COMMAND = re.compile(r"(?:^(?:- run: )?|[|`] *|\$ )codepilot ([a-z]+(?: [^`|;&#>\n]*)?)", re.M)
"""A command at the beginning of a line of code, behind a pipe, or between backticks."""
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that a forge gives to the headings of a page."""
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.M):
        words = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(words.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for link in _LINK.findall(prose(page)):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_index_names_every_page() -> None:
    named = {link.partition("#")[0] for link in _LINK.findall(prose(ROOT / "docs" / "README.md"))}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - named == {"README.md"}
    assert "docs/README.md" in _LINK.findall(prose(ROOT / "README.md"))


def test_every_failure_is_explained_under_its_origin() -> None:
    """A new kind of failure needs a row in docs/troubleshooting.md."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    for origin in Origin:
        section = text.partition(f"\n## {origin.value.capitalize()}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section, re.M)
        wanted = {kind.value for kind in FailureKind if HANDLING[kind].origin is origin}
        assert set(rows) == wanted, origin
        assert len(rows) == len(set(rows))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    unknown = []
    for line in _COMMAND.findall(page.read_text(encoding="utf-8")):
        name, *rest = line.partition(" -- ")[0].split()
        if name not in commands:
            unknown.append(name)
            continue
        known = {
            "--help",
            *(option for one in _parameters(commands[name]) for option in (*one.opts, *one.secondary_opts)),
        }
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        unknown += [f"{name} {word}" for word in used - known]
    assert unknown == []


def _parameters(command: Any) -> list[Any]:
    inner = [one for child in getattr(command, "commands", {}).values() for one in child.params]
    return [*command.params, *inner]


def marked(page: Path) -> list[str]:
    """The blocks of a page that are marked `run`."""
    return [body for _, info, body in _FENCE.findall(page.read_text(encoding="utf-8")) if "run" in info.split()[1:]]


def test_marked_commands_work_as_printed(tmp_path: Path) -> None:
    """In the order of the pages, by one shell, in a home of its own."""
    blocks = [block for page in PAGES for block in marked(page)]
    assert len(blocks) >= 4
    kept = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
    kept["XDG_CONFIG_HOME"] = str(without_plugins(tmp_path / "config"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail"],
        input="\n".join(blocks),
        env={**kept, "PATH": path, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for text in (
        "sandbox",
        "max(cursor, span.end)",
        "confirmed",
        "test_gaps_regression was added",
        "apply r-",
        "The bundle holds",
        "2 files changed",
    ):
        assert text in done.stdout, text
    assert (tmp_path / "run.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_picture_loads_nothing() -> None:
    svg = (ROOT / "docs" / "demo.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\"' <]+", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"@font-face|@import|<script|<image|href=|url\((?!#)", svg)
    assert "confirmed" in svg
