"""Batches: a file of prompts, each worked on by an agent's program as a run; the file also holds the results."""

from codepilot.batch.runner import Batch, Options, Progress, reset_words
from codepilot.batch.tasks_file import EXAMPLE, OPEN, STATUSES, BatchTask, Status, TasksFile, read_tasks, result_of
from codepilot.batch.tools import TOOLS, BatchTools, Driven, drive

__all__ = [
    "EXAMPLE",
    "OPEN",
    "STATUSES",
    "TOOLS",
    "Batch",
    "BatchTask",
    "BatchTools",
    "Driven",
    "Options",
    "Progress",
    "Status",
    "TasksFile",
    "drive",
    "read_tasks",
    "reset_words",
    "result_of",
]
