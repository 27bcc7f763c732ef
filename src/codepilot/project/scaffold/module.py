"""A new module as files of its repository: the template, its registration and its CI stub. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.scaffold import Ecosystem, Scaffold
from codepilot.project.scaffold.names import namesake_of
from codepilot.project.scaffold.reactor import join_reactor
from codepilot.project.scaffold.repository import Joined, Tree, cannot_join
from codepilot.project.scaffold.templates import Surroundings, ci_stub, render
from codepilot.project.scaffold.workspaces import join_npm, join_python

CI_FILES = (".github/workflows/", ".gitlab-ci.yml", ".circleci/", "Jenkinsfile", "azure-pipelines.yml")


@dataclass(frozen=True)
class Module:
    """A module's files by their paths from the repository's top, those that register it included."""

    folder: str
    files: dict[str, bytes]
    registered: tuple[str, ...] = ()
    """The existing files that change."""
    notes: tuple[str, ...] = ()


def make_module(
    wanted: Scaffold, around: Surroundings, tree: Tree | None = None, start: str = "", out: str = ""
) -> Module:
    """The module; with `tree` it joins the build in that repository's directory `start`."""
    if tree is None:
        wanted = wanted if wanted.ci else wanted.model_copy(update={"ci": "github"})
        return Module("", {**render(wanted, around), **ci_stub(wanted, "", around.python)})
    joined = _joined(wanted, around, tree, start, out)
    if tree.has(joined.folder):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{joined.folder} exists, and nothing there is overwritten.",
            next_action="Choose another name, or another directory with --out.",
        )
    if (namesake := namesake_of(tree, wanted)) is not None:
        raise cannot_join(
            f"The module of {namesake} is called {wanted.name} too, and a build holds a name once.",
            "Choose another name.",
        )
    if wanted.ci is None and not any(path.startswith(CI_FILES) for path in tree.paths):
        wanted = wanted.model_copy(update={"ci": "github"})
    own = render(wanted, joined.around)
    if tree.has(".gitignore"):
        own.pop(".gitignore", None)
    files = {f"{joined.folder}/{path}": content for path, content in own.items()}
    stub = {
        path: content for path, content in ci_stub(wanted, joined.folder, around.python).items() if not tree.has(path)
    }
    return Module(joined.folder, {**files, **stub, **joined.edits}, tuple(joined.edits), joined.notes)


def _joined(wanted: Scaffold, around: Surroundings, tree: Tree, start: str, out: str) -> Joined:
    if wanted.ecosystem is Ecosystem.MAVEN:
        return join_reactor(tree, start, wanted.folder, out, around)
    join = join_npm if wanted.ecosystem is Ecosystem.NPM else join_python
    return join(tree, start, wanted, out, around)
