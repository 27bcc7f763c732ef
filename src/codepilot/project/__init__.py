"""The target project: its runner, its environment, and what its tests say."""

from codepilot.project.build import PLUGIN_DIR
from codepilot.project.dependencies import Dependencies, ModuleFacts
from codepilot.project.detect import check_level, detect, mounts_of
from codepilot.project.fresh import fresh_project
from codepilot.project.interpreter import find_interpreter
from codepilot.project.location import holding, holds_tests, is_project, locate
from codepilot.project.repo_map import map_repo
from codepilot.project.run import command, environment, run_tests
from codepilot.project.suite import (
    Interpreter,
    Project,
    SuiteRun,
    SuiteStatus,
    TestCase,
    suite_from_json,
    suite_to_json,
    summarise,
)
from codepilot.project.test_files import is_test, is_test_file
from codepilot.project.version_files import version_files

__all__ = [
    "PLUGIN_DIR",
    "Dependencies",
    "Interpreter",
    "ModuleFacts",
    "Project",
    "SuiteRun",
    "SuiteStatus",
    "TestCase",
    "check_level",
    "command",
    "detect",
    "environment",
    "find_interpreter",
    "fresh_project",
    "holding",
    "holds_tests",
    "is_project",
    "is_test",
    "is_test_file",
    "locate",
    "map_repo",
    "mounts_of",
    "run_tests",
    "suite_from_json",
    "suite_to_json",
    "summarise",
    "version_files",
]
