"""Toolchains other than Python's, and what their projects depend on: fetched once a machine, shared by all tests.

Dependencies come by the machine's own configuration of Maven and npm, and lie next to the virtual environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from levels import lacking

_HOME = Path(__file__).resolve().parents[1] / ".venv"
_FETCH_SEC = 240.0

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>shop</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId><version>5.10.2</version>
      <scope>test</scope>
    </dependency>
  </dependencies>
  <build><plugins>
    <plugin>
      <groupId>org.apache.maven.plugins</groupId><artifactId>maven-surefire-plugin</artifactId><version>3.2.5</version>
    </plugin>
  </plugins></build>
</project>
"""
_ANY_TEST = "class AnyTest { @org.junit.jupiter.api.Test void any() { } }\n"


def toolchain(*programs: str) -> None:
    absent = [name for name in programs if shutil.which(name) is None]
    if absent:
        lacking(f"{', '.join(absent)} not installed")


def maven_home(home: Path) -> Path:
    """A user's home, made here, whose local repository has what a project of `POM` needs."""
    toolchain("java", "mvn")

    def fetch(place: Path) -> None:
        project = place / "any"
        tests = project / "src/test/java/AnyTest.java"
        tests.parent.mkdir(parents=True)
        tests.write_text(_ANY_TEST)
        (project / "pom.xml").write_text(POM)
        _run(["mvn", "-B", "-q", f"-Dmaven.repo.local={place / 'repository'}", "test"], project)

    made = kept("maven", POM, fetch)
    (home / ".m2").mkdir(parents=True)
    (home / ".m2/repository").symlink_to(made / "repository")
    return home


def node_modules(packages: Mapping[str, str]) -> Path:
    """A `node_modules` that holds these packages, by name and version."""
    toolchain("node", "npm")
    named = [f"{name}@{version}" for name, version in sorted(packages.items())]

    def fetch(place: Path) -> None:
        place.mkdir()
        (place / "package.json").write_text('{"name": "packages", "private": true}')
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _run(["npm", "install", *quiet, *named], place)

    return kept("node", " ".join(named), fetch) / "node_modules"


def kept(kind: str, what: str, fetch: Callable[[Path], None], home: Path = _HOME) -> Path:
    """A directory made once for what it is to hold. Several processes may ask at once: one of them makes it."""
    home.mkdir(parents=True, exist_ok=True)
    place = home / f"{kind}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            half = place.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            fetch(half)
            half.rename(place)
    return place


def _run(argv: list[str], cwd: Path) -> None:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=_FETCH_SEC, check=False, env=os.environ
    )
    if done.returncode:
        lacking(f"{argv[0]} cannot fetch what the tests need: {(done.stderr or done.stdout).strip()[-1000:]}")
