"""The interface of a build system: how it is found, and what running its tests needs.

Each build system has a class here (`jvm.py`, `npm.py`) and a driver in `plugin/`. The driver runs in the sandbox,
starts the tool and reports each test as a frame. All other code reads frames and knows no build system.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project.boundary import SYSTEM, Boundary, is_within, points_into, search_folders
from codepilot.project.suite import RunnerName

PLUGIN_DIR = Path(__file__).resolve().parent / "plugin"
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True)
class Needs:
    """The driver with its arguments, the mounts and the environment."""

    driver: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    remedy: str = ""
    """How a person installs missing dependencies."""


@dataclass(frozen=True)
class Checkout:
    """A repository's path on the host and in the sandbox, the user's environment, and the project in it."""

    repository: Path
    top: str
    """The repository as the sandbox shows it."""
    environ: Mapping[str, str]
    folder: str = ""
    prepared: Path | None = None
    """A directory with the `node_modules` that were installed for it, by their places in the repository."""

    @property
    def root(self) -> Path:
        """The project's own directory."""
        return self.repository / self.folder

    @property
    def boundary(self) -> Boundary:
        return Boundary.around(self.repository, self.environ)

    @property
    def home(self) -> Path | None:
        return next(iter(self.boundary.homes), None)

    def program(self, name: str) -> Path | None:
        """A program on the user's PATH. One in the repository is ignored: only the machine's tools are mounted."""
        found = [shutil.which(name, path=str(folder)) for folder in search_folders(self.repository, self.environ)]
        return next((Path(one) for one in found if one and not points_into(Path(one), self.repository)), None)


class Build(Protocol):
    """One build system."""

    @property
    def name(self) -> RunnerName: ...

    def found(self, root: Path) -> bool:
        """True if a checkout is one of its projects."""

    def needs(self, checkout: Checkout) -> Needs:
        """What running the project's tests needs. Raises with a remedy if the machine lacks something."""


def missing(message: str, remedy: str, **details: str) -> CodePilotError:
    return CodePilotError(FailureKind.ENVIRONMENT_MISSING, message, next_action=remedy, **details)


def shown(checkout: Checkout, *places: Path) -> tuple[tuple[str, str], ...]:
    """Host directories for the sandbox, by each spelling; none that it shows anyway, none that holds too much."""
    spellings = dict.fromkeys(one for place in places for one in (place, place.resolve()))
    wanted = [one for one in spellings if one.exists() and not any(is_within(one, system) for system in SYSTEM)]
    return tuple((str(one), str(one)) for one in wanted if not checkout.boundary.holds_too_much(one))


def installation(program: Path) -> tuple[Path, ...]:
    """The directories that a program belongs to, where its link lies and where it leads: `bin`'s parent."""
    homes = [one.parent.parent if one.parent.name == "bin" else one.parent for one in (program, program.resolve())]
    return tuple(home for home in dict.fromkeys(homes) if home not in (Path("/"), Path("/usr"), Path("/usr/local")))


def search_path(*programs: Path) -> str:
    return ":".join(dict.fromkeys([*(str(program.parent) for program in programs), *SYSTEM_PATH]))
