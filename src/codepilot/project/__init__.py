"""The target project: its runner, its environment, and what its tests say."""

from codepilot.project.suite import Interpreter, Project, SuiteRun, TestCase

__all__ = ["Interpreter", "Project", "SuiteRun", "TestCase"]
