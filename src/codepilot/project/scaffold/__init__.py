"""New modules: templates of each ecosystem, and their registration in an existing build. Files are data here."""

from codepilot.project.scaffold.maven_versions import MavenVersions, installed_versions
from codepilot.project.scaffold.module import Module, make_module
from codepilot.project.scaffold.repository import Tree
from codepilot.project.scaffold.templates import Surroundings

__all__ = ["MavenVersions", "Module", "Surroundings", "Tree", "installed_versions", "make_module"]
