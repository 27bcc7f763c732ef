"""Tests of the JVM: how they are named, and the XML reports that Surefire and Gradle write of them.

Ids are `package.Class#method`. Runs inside, on Python 3.8 and newer, with the standard library alone.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from codepilot.project.plugin.codepilot_build import Matches, TestReporter
    from codepilot.project.plugin.codepilot_reports import MAX_BYTES, BadReport, read_report
else:
    from codepilot_reports import MAX_BYTES, BadReport, read_report

MARK = ".codepilot"
MAX_FILES = 20_000
_SOURCE = re.compile(r"\.(?:java|kt|groovy|scala)$")
_ROOTS = re.compile(r"^(?:.*/)?(?:java|kotlin|groovy|scala)/")
_PARAMETERS = re.compile(r"[(\[{].*", re.DOTALL)
"""What reports add to the name of a method that is run with several arguments."""
_METHOD = re.compile(r"^(?P<group>(?:.*\.)?[A-Z_][\w$]*)\.(?P<method>[a-z_][\w$]*)$")


class Name(NamedTuple):
    """A test as people write it: a class with or without its package, a method or none.

    A `package` ends in a dot, and a dot alone stands for all there is.
    """

    group: str
    method: str = ""
    package: str = ""

    def matches(self, test: str) -> bool:
        group, _, method = test.partition("#")
        if self.package:
            return self.package == "." or group.startswith(self.package)
        if self.method and self.method not in (method, _PARAMETERS.sub("", method)):
            return False
        return f".{group}$".endswith(f".{self.group}$") or (not self.method and f".{self.group}$" in f".{group}$")

    @property
    def plain_method(self) -> str:
        return _PARAMETERS.sub("", self.method)


def parsed(asked: str) -> Name:
    """`Class#method`, `Class::method`, `package.Class.method`, a source file, or a directory of them."""
    place, mark, method = asked.replace("::", "#").partition("#")
    if place.startswith("./"):
        place = place[2:]
    if _SOURCE.search(place):
        return Name(_ROOTS.sub("", _SOURCE.sub("", place)).replace("/", "."), method)
    if "/" in place or place in (".", ""):
        below = _ROOTS.match(f"{place.rstrip('/')}/")
        package = place.rstrip("/")[below.end() :].replace("/", ".") if below else ""
        return Name("", package=f"{package}.")
    told = _METHOD.match(place)
    if told and not mark:
        return Name(told["group"], told["method"])
    return Name(place, method)


def meaning(asked: str) -> Matches:
    return parsed(asked).matches


class Reports:
    """The reports in some directories, each told of once it can be read."""

    def __init__(self, reporter: TestReporter, folders: Sequence[Path]) -> None:
        self._telling = reporter
        self._folders = folders
        self._read: dict[Path, tuple[int, int]] = {}
        self.unread: dict[Path, str] = {}

    def look(self) -> None:
        for folder in self._folders:
            for path in sorted(folder.glob("**/*.xml"))[:MAX_FILES]:
                if path.is_symlink() or not path.is_file():
                    continue
                seen = path.stat()
                state = (seen.st_mtime_ns, seen.st_size)
                if seen.st_size and self._read.get(path) != state:
                    self._take(path, state)

    def _take(self, path: Path, state: tuple[int, int]) -> None:
        try:
            cases = read_report(path.read_bytes() if state[1] <= MAX_BYTES else b"")
        except (OSError, BadReport) as error:
            self.unread[path] = str(error)
            return
        self.unread.pop(path, None)
        self._read[path] = state
        for case in cases:
            self._telling.test(
                f"{case.group}#{case.name}",
                case.status,
                error_type=case.kind.rpartition(".")[2],
                message=case.message,
                traceback=case.detail,
                duration=case.seconds,
            )


class Outputs:
    """Build directories. One that was not there is ours and goes again; of others only what would be stale goes."""

    def __init__(self, folders: Sequence[Path], stale: Sequence[str]) -> None:
        self._ours = []
        for folder in folders:
            if folder.is_symlink():
                continue
            if folder.is_dir() and not (folder / MARK).exists():
                for name in stale:
                    shutil.rmtree(folder / name, ignore_errors=True)
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / MARK).touch()
            self._ours.append(folder)

    def remove(self) -> None:
        for folder in self._ours:
            shutil.rmtree(folder, ignore_errors=True)
