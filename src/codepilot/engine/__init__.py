"""The engine: drives a run from step to step, and answers the doors."""

from codepilot.engine.apply import apply_run, patch_of
from codepilot.engine.close import report_run
from codepilot.engine.collect import collect
from codepilot.engine.control import cancel, request_pause, resume
from codepilot.engine.house import House
from codepilot.engine.reprove import verify_again
from codepilot.engine.submit import Request, parse_budget, submit
from codepilot.engine.worker import Worker

__all__ = [
    "House",
    "Request",
    "Worker",
    "apply_run",
    "cancel",
    "collect",
    "parse_budget",
    "patch_of",
    "report_run",
    "request_pause",
    "resume",
    "submit",
    "verify_again",
]
