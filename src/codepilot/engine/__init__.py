"""The engine: drives a run from step to step. `CodePilot` is its façade and the Python API.

Names are loaded when they are first used: a command prints what it is about to do before the database library, half of
the start-up time, is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codepilot.engine.change.apply import apply_run as apply_run
    from codepilot.engine.change.apply import commit_run as commit_run
    from codepilot.engine.change.apply import patch_of as patch_of
    from codepilot.engine.change.bundle_check import Checking as Checking
    from codepilot.engine.change.bundle_check import verify_bundle as verify_bundle
    from codepilot.engine.change.review import Reviewed as Reviewed
    from codepilot.engine.close import collect as collect
    from codepilot.engine.close import fetch_bundle as fetch_bundle
    from codepilot.engine.control import cancel as cancel
    from codepilot.engine.control import go_on as go_on
    from codepilot.engine.control import pause as pause
    from codepilot.engine.control import resume as resume
    from codepilot.engine.environment.prepare import Preparation as Preparation
    from codepilot.engine.execution_context import open_executor as open_executor
    from codepilot.engine.facade.codepilot import CodePilot as CodePilot
    from codepilot.engine.facade.upkeep import Removed as Removed
    from codepilot.engine.fork import fork_run as fork_run
    from codepilot.engine.interactive.requests import Asked as Asked
    from codepilot.engine.interactive.requests import Listed as Listed
    from codepilot.engine.memory.memories import Remembered as Remembered
    from codepilot.engine.report import report_run as report_run
    from codepilot.engine.runtime import Runtime as Runtime
    from codepilot.engine.settings import Settings as Settings
    from codepilot.engine.settings import make_budget as make_budget
    from codepilot.engine.task import Begun as Begun
    from codepilot.engine.task import Request as Request
    from codepilot.engine.task import begin as begin
    from codepilot.engine.task import make_task as make_task
    from codepilot.engine.task import submit as submit
    from codepilot.engine.webhook import notify as notify
    from codepilot.engine.worker import Worker as Worker
    from codepilot.engine.worker_pool import WorkerPool as WorkerPool

_MODULES = {
    "change.apply": "apply_run commit_run patch_of",
    "change.bundle_check": "Checking verify_bundle",
    "close": "collect fetch_bundle",
    "control": "cancel go_on pause resume",
    "execution_context": "open_executor",
    "facade.codepilot": "CodePilot",
    "fork": "fork_run",
    "environment.prepare": "Preparation",
    "report": "report_run",
    "memory.memories": "Remembered",
    "change.review": "Reviewed",
    "runtime": "Runtime",
    "interactive.requests": "Asked Listed",
    "settings": "Settings make_budget",
    "task": "Begun Request begin make_task submit",
    "webhook": "notify",
    "facade.upkeep": "Removed",
    "worker": "Worker",
    "worker_pool": "WorkerPool",
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"codepilot.engine.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
