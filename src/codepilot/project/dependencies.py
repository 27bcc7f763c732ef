"""Says of a module that could not be imported whether the repository holds it and how the project declares it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from codepilot.project.boundary import read_head
from codepilot.project.import_paths import MAX_BYTES, canonical, read_ini, read_toml, table
from codepilot.project.location import walk
from codepilot.project.recipe import python_recipe

DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mysqldb": "mysqlclient",
    "openssl": "pyopenssl",
    "pil": "pillow",
    "pkg-resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "rest-framework": "djangorestframework",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Distributions that are named otherwise than the module they provide, both as `canonical` spells them."""
REMOVED = frozenset(("asynchat", "asyncore", "cgi", "distutils", "imp", "pipes", "smtpd", "telnetlib"))
"""Modules of the standard library that newer versions of Python lack."""
REQUIREMENTS = ("requirements*.txt", "*requirements.txt", "requirements/*.txt", "requirements/*.in")
MAX_FILES = 30

_QUOTED = re.compile(r"""["']([A-Za-z0-9][\w.-]*)(?:\[[\w,\s-]*\])?\s*(?:[<>=!~;@][^"']*)?["']""")


@dataclass(frozen=True)
class Declared:
    """One place where the project names a distribution, and the command that installs what stands there."""

    name: str
    where: str
    install: str
    prepared: bool = False
    """True if `codepilot prepare` installs it."""


@dataclass(frozen=True)
class ModuleFacts:
    """What is known of a module that could not be imported."""

    module: str
    in_repository: bool
    of_another_python: bool = False
    declared: Declared | None = None

    @property
    def environmental(self) -> bool:
        """True if the environment lacks it; otherwise it is code of the repository, or code that nobody knows."""
        return not self.in_repository and (self.of_another_python or self.declared is not None)


@dataclass(frozen=True)
class Dependencies:
    """The declarations of one project. They are read only when a module is missing."""

    repository: Path
    folder: str = ""

    @property
    def project(self) -> Path:
        return self.repository / self.folder

    def facts(self, module: str) -> ModuleFacts:
        top = module.partition(".")[0]
        if self._is_held(top):
            return ModuleFacts(module, in_repository=True)
        if top in sys.stdlib_module_names or top in REMOVED:
            return ModuleFacts(module, in_repository=False, of_another_python=True)
        wanted = canonical(top)
        names = {wanted, DISTRIBUTIONS.get(wanted, wanted), f"python-{wanted}", f"py{wanted}"}
        found = next((one for one in self._declarations() if canonical(one.name) in names), None)
        if found is not None and self._prepares(found):
            found = replace(found, prepared=True)
        return ModuleFacts(module, in_repository=False, declared=found)

    def _prepares(self, declared: Declared) -> bool:
        recipe = python_recipe(self.repository, self.folder)
        if recipe is None:
            return False
        named = {canonical(one) for one in recipe.requirements}
        return declared.where in recipe.files or canonical(declared.name) in named

    def _is_held(self, top: str) -> bool:
        """True if some directory of the repository has a module or a package of this name."""
        for folder, files in walk(self.repository):
            package = folder != self.repository and folder.name == top
            if f"{top}.py" in files or (package and any(name.endswith(".py") for name in files)):
                return True
        return False

    def _declarations(self) -> Iterator[Declared]:
        for folder in dict.fromkeys((self.project, self.repository)):
            at = "" if folder == self.repository else f"{self.folder}/"
            yield from _of_pyproject(folder, at)
            yield from _of_files(folder, at)


def _of_pyproject(folder: Path, at: str) -> Iterator[Declared]:
    document, file = read_toml(folder / "pyproject.toml"), f"{at}pyproject.toml"
    tool = _installer(folder)

    def of(entries: object, part: str, install: str) -> Iterator[Declared]:
        names = list(entries) if isinstance(entries, (list, dict)) else []
        for name in names:
            if isinstance(name, str):
                yield Declared(_name(name), f"{file}, {part}", install)

    project = table(document, "project")
    yield from of(project.get("dependencies"), "[project] dependencies", tool or "pip install -e .")
    for name, entries in table(project, "optional-dependencies").items():
        plain = quote(name)
        extra = {"uv sync": f"uv sync --extra {plain}", "poetry install": f"poetry install --extras {plain}"}
        install = extra.get(tool, f"pip install -e {quote(f'.[{name}]')}")
        yield from of(entries, f"[project.optional-dependencies] {name}", install)
    for name, entries in table(document, "dependency-groups").items():
        install = {"uv sync": f"uv sync --group {quote(name)}"}.get(tool, f"pip install --group {quote(name)}")
        yield from of(entries, f"[dependency-groups] {name}", tool if tool == "pdm install" else install)
    poetry = table(document, "tool", "poetry")
    yield from of(table(poetry, "dependencies"), "[tool.poetry.dependencies]", "poetry install")
    yield from of(table(poetry, "dev-dependencies"), "[tool.poetry.dev-dependencies]", "poetry install")
    for name, group in table(poetry, "group").items():
        install = f"poetry install --with {quote(name)}"
        yield from of(table(group, "dependencies"), f"[tool.poetry.group.{name}.dependencies]", install)
    for name, entries in table(document, "tool", "pdm", "dev-dependencies").items():
        yield from of(entries, f"[tool.pdm.dev-dependencies] {name}", "pdm install")
    yield from of(table(document, "tool", "uv").get("dev-dependencies"), "[tool.uv] dev-dependencies", "uv sync")
    for name, environment in table(document, "tool", "hatch", "envs").items():
        install = f"hatch env create {quote(name)}"
        for key in ("dependencies", "extra-dependencies"):
            yield from of(table(environment).get(key), f"[tool.hatch.envs.{name}] {key}", install)


def _installer(folder: Path) -> str:
    """The command of the tool that a lock file names."""
    locks = {"uv.lock": "uv sync", "poetry.lock": "poetry install", "pdm.lock": "pdm install"}
    return next((command for lock, command in locks.items() if (folder / lock).is_file()), "")


def _of_files(folder: Path, at: str) -> Iterator[Declared]:
    setup = read_ini(folder / "setup.cfg")
    yield from _lines(setup.get("options", "install_requires", fallback=""), f"{at}setup.cfg", "pip install -e .")
    if setup.has_section("options.extras_require"):
        for name, text in setup.items("options.extras_require"):
            yield from _lines(text, f"{at}setup.cfg, extra {name}", f"pip install -e {quote(f'.[{name}]')}")
    for name in _QUOTED.findall(read_head(folder / "setup.py", MAX_BYTES)):
        yield Declared(name, f"{at}setup.py", "pip install -e .")
    files = [path for pattern in REQUIREMENTS for path in sorted(folder.glob(pattern))]
    for path in list(dict.fromkeys(files))[:MAX_FILES]:
        file = f"{at}{path.relative_to(folder).as_posix()}"
        yield from _lines(read_head(path, MAX_BYTES, within=folder), file, f"pip install -r {quote(file)}")
    pipfile = read_toml(folder / "Pipfile")
    for part in ("packages", "dev-packages"):
        for name in table(pipfile, part):
            yield Declared(name, f"{at}Pipfile, [{part}]", "pipenv install --dev")
    tox = read_ini(folder / "tox.ini")
    for section in tox.sections():
        yield from _lines(tox.get(section, "deps", fallback=""), f"{at}tox.ini, [{section}]", "tox run --notest")
    for name in _QUOTED.findall(read_head(folder / "noxfile.py", MAX_BYTES)):
        yield Declared(name, f"{at}noxfile.py", "nox --install-only")
    for file in ("environment.yml", "environment.yaml"):
        text = re.sub(r"(?m)^[ \t]*-[ \t]*", "", read_head(folder / file, MAX_BYTES))
        yield from _lines(text, f"{at}{file}", f"conda env update -f {quote(at + file)}")


def _lines(text: str, where: str, install: str) -> Iterator[Declared]:
    for line in text.splitlines():
        if canonical(line) and not line.lstrip().startswith(("-", "#")):
            yield Declared(_name(line), where, install)


def _name(requirement: str) -> str:
    """The distribution that a requirement names, as it spells it."""
    return re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
