"""Gradle projects: run offline, with the user's dependency cache shown read-only."""

from __future__ import annotations

import re
from pathlib import Path

from codepilot.project.boundary import read_head
from codepilot.project.build import Checkout, Needs, installation, missing, search_path, shown
from codepilot.project.java import java_environment, java_home
from codepilot.project.suite import RunnerName

REMEDY = "Run `gradle test` (or `./gradlew test`) in the checkout once, so that ~/.gradle has what the tests need."
FILES = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
_DISTRIBUTION = re.compile(r"^distributionUrl=.*/(gradle-[\w.-]+?)\.zip\s*$", re.MULTILINE)


class Gradle:
    name: RunnerName = "gradle"

    def found(self, root: Path) -> bool:
        return any((root / name).is_file() for name in FILES)

    def needs(self, checkout: Checkout) -> Needs:
        program = _wrapped(checkout) or checkout.program("gradle")
        if program is None:
            raise missing("The project is built by Gradle, and there is none on this machine.", REMEDY)
        home = java_home(checkout)
        caches = (checkout.home or Path("/nonexistent")) / ".gradle/caches"
        return Needs(
            driver=("codepilot_gradle.py", str(program)),
            mounts=shown(checkout, home, *installation(program), caches / "modules-2"),
            env={
                "PATH": search_path(program, home / "bin/java"),
                **java_environment(home),
                "GRADLE_USER_HOME": "/tmp/gradle",
                **({"GRADLE_RO_DEP_CACHE": str(caches)} if (caches / "modules-2").is_dir() else {}),
            },
            remedy=REMEDY,
        )


def _wrapped(checkout: Checkout) -> Path | None:
    """The distribution that the project's wrapper names, if it was downloaded."""
    named = _DISTRIBUTION.search(
        read_head(checkout.root / "gradle/wrapper/gradle-wrapper.properties", within=checkout.root)
    )
    if named is None or checkout.home is None:
        return None
    kept = checkout.home / ".gradle/wrapper/dists" / named[1]
    return next(iter(sorted(kept.glob("*/gradle-*/bin/gradle"))), None)
