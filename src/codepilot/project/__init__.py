"""The target project: its runner, its environment, and what its tests say."""

from codepilot.project.build import PLUGIN_DIR
from codepilot.project.detect import check_level, detect
from codepilot.project.interpreter import find_interpreter
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

__all__ = [
    "PLUGIN_DIR",
    "Interpreter",
    "Project",
    "SuiteRun",
    "SuiteStatus",
    "TestCase",
    "check_level",
    "command",
    "detect",
    "environment",
    "find_interpreter",
    "is_test",
    "is_test_file",
    "map_repo",
    "run_tests",
    "suite_from_json",
    "suite_to_json",
    "summarise",
]
