"""Finds the settings module of a Django project. Files are read as data; none is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from codepilot.project.boundary import read_head
from codepilot.project.import_paths import read_ini, read_toml, table

VARIABLE = "DJANGO_SETTINGS_MODULE"
SCRIPTS = ("runtests.py", "tests/runtests.py", "run_tests.py", "tests/manage.py", "manage.py")
"""Scripts that start tests, those for tests alone first."""

_SET = re.compile(rf"""setdefault\(\s*["']{VARIABLE}["']\s*,\s*["']([\w.]+)["']""")
_ASSIGNED = re.compile(rf"""environ\[\s*["']{VARIABLE}["']\s*\]\s*=\s*["']([\w.]+)["']""")
_LINE = re.compile(rf"^\s*{VARIABLE}\s*[=:]\s*([\w.]+)\s*$", re.M)


def settings_module(project: Path, roots: tuple[Path, ...] = ()) -> str:
    """The settings with which the project tests itself; empty where there are none.

    `roots` are further directories from which the project imports.
    """
    places = (project, project / "src", *roots)
    return next((name for name in _named(project) if any(_is_module(place, name) for place in places)), "")


def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _named(project: Path) -> Iterator[str]:
    for file, section in (("pytest.ini", "pytest"), ("setup.cfg", "tool:pytest"), ("tox.ini", "pytest")):
        if name := read_ini(project / file).get(section, VARIABLE, fallback=""):
            yield name.strip()
    document = read_toml(project / "pyproject.toml")
    yield str(table(document, "tool", "pytest", "ini_options").get(VARIABLE, ""))
    tox = read_ini(project / "tox.ini")
    for section in tox.sections():
        for key in ("setenv", "set_env") if section.startswith("testenv") else ():
            yield from _LINE.findall(tox.get(section, key, fallback=""))
    for one in table(document, "tool", "hatch", "envs").values():
        yield str(table(one, "env-vars").get(VARIABLE, ""))
    for script in SCRIPTS:
        text = read_head(project / script)
        yield from (*_SET.findall(text), *_ASSIGNED.findall(text))
