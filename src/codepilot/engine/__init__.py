"""The engine: drives a run from step to step, and answers the doors.

Names are loaded when they are first asked for: a door can say what it is about to do before the database library,
half of the start-up time, is in.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codepilot.engine.apply import apply_run, commit_run
    from codepilot.engine.bundle_check import Checking, verify_bundle
    from codepilot.engine.change import patch_of
    from codepilot.engine.close import fetch_bundle, recording
    from codepilot.engine.control import cancel, go_on, pause, resume
    from codepilot.engine.executor_factory import level_of, open_executor
    from codepilot.engine.follower import EventFollower
    from codepilot.engine.fork import fork_run
    from codepilot.engine.garbage import collect, prune
    from codepilot.engine.links import link_to
    from codepilot.engine.report import report_run
    from codepilot.engine.runtime import Runtime
    from codepilot.engine.settings import Settings
    from codepilot.engine.task import Begun, Request, begin, make_task, parse_budget, submit
    from codepilot.engine.webhook import notifications_of, notify, open_webhook, webhook_place
    from codepilot.engine.worker import Worker
    from codepilot.engine.worker_pool import WorkerPool

_HOMES = {
    "Begun": "task",
    "Checking": "bundle_check",
    "EventFollower": "follower",
    "WorkerPool": "worker_pool",
    "Runtime": "runtime",
    "Request": "task",
    "Settings": "settings",
    "Worker": "worker",
    "apply_run": "apply",
    "begin": "task",
    "cancel": "control",
    "collect": "garbage",
    "commit_run": "apply",
    "fetch_bundle": "close",
    "fork_run": "fork",
    "go_on": "control",
    "level_of": "executor_factory",
    "link_to": "links",
    "make_task": "task",
    "notifications_of": "webhook",
    "notify": "webhook",
    "open_executor": "executor_factory",
    "open_webhook": "webhook",
    "parse_budget": "task",
    "patch_of": "change",
    "pause": "control",
    "prune": "garbage",
    "recording": "close",
    "report_run": "report",
    "resume": "control",
    "submit": "task",
    "verify_bundle": "bundle_check",
    "webhook_place": "webhook",
}

__all__ = [
    "Begun",
    "Checking",
    "EventFollower",
    "Request",
    "Runtime",
    "Settings",
    "Worker",
    "WorkerPool",
    "apply_run",
    "begin",
    "cancel",
    "collect",
    "commit_run",
    "fetch_bundle",
    "fork_run",
    "go_on",
    "level_of",
    "link_to",
    "make_task",
    "notifications_of",
    "notify",
    "open_executor",
    "open_webhook",
    "parse_budget",
    "patch_of",
    "pause",
    "prune",
    "recording",
    "report_run",
    "resume",
    "submit",
    "verify_bundle",
    "webhook_place",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"codepilot.engine.{_HOMES[name]}"), name)
