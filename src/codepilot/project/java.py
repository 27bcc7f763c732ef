"""The Java that runs a build: what of it must be seen inside, and how much memory it may think there is."""

from __future__ import annotations

from pathlib import Path

from codepilot.project.build import Checkout, installation, missing

MEMORY = "-XX:MaxRAM=1g"
"""Inside, Java sees the host's memory and would take a quarter of it. A heap that a project sets itself counts."""
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For the build tool's own JVM, which ends before slower compilation pays."""


def java_home(checkout: Checkout) -> Path:
    """The JDK by `JAVA_HOME`, else the one that `java` on the PATH belongs to."""
    named = checkout.environ.get("JAVA_HOME", "")
    if named.startswith("/") and (Path(named) / "bin/java").is_file():
        return Path(named)
    program = checkout.program("java")
    if program is None:
        raise missing("There is no Java on this machine.", "Install a JDK, or set JAVA_HOME to one.")
    return installation(program.resolve())[0] if installation(program.resolve()) else Path("/usr")


def java_environment(home: Path) -> dict[str, str]:
    named = {"JAVA_HOME": str(home)} if (home / "bin/javac").exists() else {}
    return {**named, "JAVA_TOOL_OPTIONS": MEMORY}
