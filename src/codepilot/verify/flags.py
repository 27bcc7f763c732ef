"""Files of a change that a reader should see first: allowed, yet able to run code or to lead tools elsewhere.

None of them is refused for its name. They run only inside while CodePilot works; once the change is accepted they
run on people's machines, in places where nobody looks for code.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from codepilot.core.events import FilesFlagged
from codepilot.executor import FileChange

NAMES = (
    ".babelrc*",
    ".bazelrc",
    ".bowerrc",
    ".condarc",
    ".curlrc",
    ".devcontainer.json",
    ".envrc",
    ".git",
    ".gitattributes",
    ".gitconfig",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".hgrc",
    ".lefthook.y*ml",
    ".lintstagedrc*",
    ".npmrc",
    ".pdbrc",
    ".pnpmfile.*js",
    ".pre-commit-config.y*ml",
    ".pypirc",
    ".pythonrc*",
    ".travis.yml",
    ".wgetrc",
    ".yarnrc*",
    "*.pth",
    "azure-pipelines.y*ml",
    "gradle.properties",
    "gradle-wrapper.jar",
    "gradle-wrapper.properties",
    "init.gradle*",
    "jenkinsfile",
    "lefthook.y*ml",
    "maven-wrapper.jar",
    "maven-wrapper.properties",
    "mavenrc",
    "pip.conf",
    "pip.ini",
    "sitecustomize.py",
    "usercustomize.py",
)
"""A file of such a name, wherever it lies. Compared without regard to case: some file systems have none."""

FOLDERS = (
    ".cargo/config",
    ".cargo/config.toml",
    ".circleci/*",
    ".claude/*",
    ".cursor/*",
    ".devcontainer/*",
    ".github/actions/*",
    ".github/workflows/*",
    ".githooks/*",
    ".husky/*",
    ".idea/*",
    ".m2/*",
    ".mvn/*",
    ".vscode/launch.json",
    ".vscode/settings.json",
    ".vscode/tasks.json",
    ".yarn/plugins/*",
    ".yarn/releases/*",
    "gradle/wrapper/*",
)
"""A path that ends so, from any directory; `*` stands for anything below."""


def flagged(changes: Sequence[FileChange]) -> tuple[FilesFlagged, ...]:
    """What to show first of a change: new executables, and configuration that makes tools run or reach something."""
    present = [change for change in changes if change.change != "deleted"]
    executables = tuple(change.path for change in present if _became_executable(change))
    configurations = tuple(change.path for change in present if configures_tools(change.path))
    found = []
    if executables:
        found.append(FilesFlagged(rule="new_executable", paths=executables))
    if configurations:
        found.append(FilesFlagged(rule="tool_configuration", paths=configurations))
    return tuple(found)


def configures_tools(path: str) -> bool:
    """Whether tools read a file of this name by themselves, and run or reach what it says."""
    lowered = path.lower()
    name = PurePosixPath(lowered).name
    return any(fnmatchcase(name, pattern) for pattern in NAMES) or any(
        fnmatchcase(f"/{lowered}", f"*/{pattern}") for pattern in FOLDERS
    )


def _became_executable(change: FileChange) -> bool:
    return change.new_mode == "100755" and change.old_mode != "100755"
