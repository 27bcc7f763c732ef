"""The versions of JUnit and Surefire for a new Maven module: those that the local repository has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from codepilot.project.boundary import read_head

_SUREFIRE = "org/apache/maven/plugins/maven-surefire-plugin"
_PROVIDERS = "org/apache/maven/surefire"
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
LONG_TERM = (17, 11, 8)
"""The Java versions that a new module is written for, the first that the machine's JDK supports."""


@dataclass(frozen=True)
class MavenVersions:
    """The versions of a new module's build."""

    junit: tuple[str, str, str] = ("org.junit.jupiter", "junit-jupiter", "5.10.2")
    """Group, artifact and version of the test framework."""
    surefire: str = "3.2.5"
    release: str = "17"

    @property
    def junit_major(self) -> int:
        return 5 if self.junit[0] == "org.junit.jupiter" else 4


def installed_versions(repository: Path, java_home: Path) -> MavenVersions:
    """The newest versions that lie in the local repository whole; the defaults where there is none."""
    usual = MavenVersions()
    release = _release(java_home)
    for platform, junit in (
        ("surefire-junit-platform", _jupiter(repository)),
        ("surefire-junit4", _junit4(repository)),
    ):
        surefire = _surefire(repository, platform)
        if junit is not None and surefire is not None:
            return MavenVersions(junit, surefire, release)
    return MavenVersions(usual.junit, usual.surefire, release)


def _jupiter(repository: Path) -> tuple[str, str, str] | None:
    """JUnit 5 by its aggregate artifact, which needs the API, the engine and the parameters as well."""
    group = repository / "org/junit/jupiter"
    parts = ("junit-jupiter-api", "junit-jupiter-engine", "junit-jupiter-params")
    for version in _versions(group / "junit-jupiter", ".pom"):
        if version.startswith("5.") and all(_has(group / part, version, ".jar") for part in parts):
            return "org.junit.jupiter", "junit-jupiter", version
    return None


def _junit4(repository: Path) -> tuple[str, str, str] | None:
    found = [one for one in _versions(repository / "junit/junit", ".jar") if one.startswith("4.")]
    return ("junit", "junit", found[0]) if found else None


def _surefire(repository: Path, provider: str) -> str | None:
    """The newest Surefire with this provider. A release is preferred to a milestone."""
    plugins = [
        one
        for one in _versions(repository / _SUREFIRE, ".jar")
        if _has(repository / _PROVIDERS / provider, one, ".jar")
    ]
    return next(iter([*(one for one in plugins if "-" not in one), *plugins]), None)


def _versions(artifact: Path, suffix: str) -> list[str]:
    """The versions of an artifact that lie there with a file of this kind, newest first."""
    if not artifact.is_dir():
        return []
    found = [one.name for one in artifact.iterdir() if _has(artifact, one.name, suffix)]
    return sorted(found, key=_order, reverse=True)


def _has(artifact: Path, version: str, suffix: str) -> bool:
    return (artifact / version / f"{artifact.name}-{version}{suffix}").is_file()


def _order(version: str) -> tuple[tuple[int, ...], bool, str]:
    numbers, _, rest = version.partition("-")
    return tuple(int(one) if one.isdigit() else 0 for one in numbers.split(".")), not rest, rest


def _release(java_home: Path) -> str:
    named = _RELEASE.search(read_head(java_home / "release"))
    version = int(named[1]) if named else LONG_TERM[0]
    return str(next((one for one in LONG_TERM if one <= version), LONG_TERM[-1]))
