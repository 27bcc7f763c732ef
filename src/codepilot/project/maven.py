"""Maven projects: run offline, with the user's local repository shown read-only and nobody's settings."""

from __future__ import annotations

import re
from pathlib import Path

from codepilot.project.boundary import read_head
from codepilot.project.build import Checkout, Needs, installation, missing, search_path, shown
from codepilot.project.java import QUICK, java_environment, java_home
from codepilot.project.suite import RunnerName

REMEDY = "Run `mvn test` in the checkout once, so that ~/.m2/repository has what the tests need."
_LOCAL = re.compile(r"<localRepository>\s*([^<]+?)\s*</localRepository>")


class Maven:
    name: RunnerName = "maven"

    def found(self, root: Path) -> bool:
        return (root / "pom.xml").is_file()

    def needs(self, checkout: Checkout) -> Needs:
        program = checkout.program("mvn")
        if program is None:
            raise missing("The project is built by Maven, and there is no `mvn` on this machine.", "Install Maven.")
        home = java_home(checkout)
        repository = _repository(checkout)
        if not repository.is_dir():
            raise missing(f"There is no local Maven repository at {repository}, and tests run offline.", REMEDY)
        options = f"{QUICK} -Dmaven.repo.local={repository} -Daether.enhancedLocalRepository.trackingFilename=none"
        return Needs(
            driver=("codepilot_maven.py", str(program), str(repository)),
            mounts=shown(checkout, home, *installation(program), repository),
            env={
                "PATH": search_path(program, home / "bin/java"),
                **java_environment(home),
                "MAVEN_OPTS": options,
            },
            remedy=REMEDY,
        )


def _repository(checkout: Checkout) -> Path:
    """Where the user keeps artifacts. Their settings are read for this alone, and never shown."""
    home = checkout.home or Path("/nonexistent")
    named = _LOCAL.search(read_head(home / ".m2/settings.xml"))
    if named is None:
        return home / ".m2/repository"
    return Path(named[1].replace("${user.home}", str(home)))
