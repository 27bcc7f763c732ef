"""Maven and Gradle projects: run offline, with the user's dependencies mounted read-only and nobody's settings."""

from __future__ import annotations

import re
from pathlib import Path

from codepilot.project.boundary import read_head
from codepilot.project.build import Checkout, Needs, installation, missing, search_path, shown
from codepilot.project.suite import RunnerName

DRIVER = "codepilot_jvm.py"
MAVEN_REMEDY = "Run `mvn test` in the checkout once, so that ~/.m2/repository has what the tests need."
GRADLE_REMEDY = (
    "Run `gradle test` (or `./gradlew test`) in the checkout once, so that ~/.gradle has what the tests need."
)
GRADLE_FILES = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
MEMORY = "-XX:MaxRAM=1g"
"""In the sandbox Java sees the host's memory and would take a quarter of it. A project may set its own heap."""
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Maven's own JVM, which ends before slower compilation pays."""

_LOCAL = re.compile(r"<localRepository>\s*([^<]+?)\s*</localRepository>")
_DISTRIBUTION = re.compile(r"^distributionUrl=.*/(gradle-[\w.-]+?)\.zip\s*$", re.MULTILINE)


class Maven:
    name: RunnerName = "maven"

    def found(self, root: Path) -> bool:
        return (root / "pom.xml").is_file()

    def needs(self, checkout: Checkout) -> Needs:
        program = checkout.program("mvn")
        if program is None:
            raise missing("The project is built by Maven, and there is no `mvn` on this machine.", "Install Maven.")
        java = _java_home(checkout)
        repository = _repository(checkout)
        if not repository.is_dir():
            raise missing(f"There is no local Maven repository at {repository}, and tests run offline.", MAVEN_REMEDY)
        options = f"{QUICK} -Dmaven.repo.local={repository} -Daether.enhancedLocalRepository.trackingFilename=none"
        return Needs(
            driver=(DRIVER, "maven", str(program), str(repository)),
            mounts=shown(checkout, java, *installation(program), repository),
            env={**_environment(program, java), "MAVEN_OPTS": options},
            remedy=MAVEN_REMEDY,
        )


def maven_places(checkout: Checkout) -> tuple[Path, Path]:
    """The local repository and the JDK that a build by Maven uses here."""
    return _repository(checkout), _java_home(checkout)


class Gradle:
    name: RunnerName = "gradle"

    def found(self, root: Path) -> bool:
        return any((root / name).is_file() for name in GRADLE_FILES)

    def needs(self, checkout: Checkout) -> Needs:
        program = _wrapped(checkout) or checkout.program("gradle")
        if program is None:
            raise missing("The project is built by Gradle, and there is none on this machine.", GRADLE_REMEDY)
        java = _java_home(checkout)
        caches = (checkout.home or Path("/nonexistent")) / ".gradle/caches"
        cached = {"GRADLE_RO_DEP_CACHE": str(caches)} if (caches / "modules-2").is_dir() else {}
        return Needs(
            driver=(DRIVER, "gradle", str(program)),
            mounts=shown(checkout, java, *installation(program), caches / "modules-2"),
            env={**_environment(program, java), "GRADLE_USER_HOME": "/tmp/gradle", **cached},
            remedy=GRADLE_REMEDY,
        )


def _java_home(checkout: Checkout) -> Path:
    """The JDK named by `JAVA_HOME`, else the one that `java` on the PATH belongs to."""
    named = checkout.environ.get("JAVA_HOME", "")
    if named.startswith("/") and (Path(named) / "bin/java").is_file():
        return Path(named)
    program = checkout.program("java")
    if program is None:
        raise missing("There is no Java on this machine.", "Install a JDK, or set JAVA_HOME to one.")
    return next(iter(installation(program.resolve())), Path("/usr"))


def _environment(program: Path, java: Path) -> dict[str, str]:
    home = {"JAVA_HOME": str(java)} if (java / "bin/javac").exists() else {}
    return {"PATH": search_path(program, java / "bin/java"), **home, "JAVA_TOOL_OPTIONS": MEMORY}


def _repository(checkout: Checkout) -> Path:
    """The user's local repository. Their settings are read only for its path and are never mounted."""
    home = checkout.home or Path("/nonexistent")
    named = _LOCAL.search(read_head(home / ".m2/settings.xml"))
    return Path(named[1].replace("${user.home}", str(home))) if named else home / ".m2/repository"


def _wrapped(checkout: Checkout) -> Path | None:
    """The distribution that the project's wrapper names, if it is downloaded."""
    properties = checkout.root / "gradle/wrapper/gradle-wrapper.properties"
    named = _DISTRIBUTION.search(read_head(properties, within=checkout.root))
    if named is None or checkout.home is None:
        return None
    distribution = checkout.home / ".gradle/wrapper/dists" / named[1]
    return next(iter(sorted(distribution.glob("*/gradle-*/bin/gradle"))), None)
