"""A change as a commit: what its branch may be called, and what its message says. Pure."""

import re
from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind

COMMIT = "commit"
"""What a run that could not commit its change goes without, in the event that says so."""
RUN = "{run}"
"""Stands for the run's id in the name of a branch."""
MOST_BYTES, MOST_NAMES, SUBJECT = 180, 20, 72

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]")


class CommitRecorded(Contract):
    """The change is a commit on a branch of its own in the user's repository."""

    checkout: str
    branch: str
    commit: str
    parent: str


def branch_name(wanted: str, run_id: str) -> str:
    return wanted.replace(RUN, run_id)


def branch_problem(wanted: str) -> str:
    """Why git would not have a branch of this name, or a person would regret it; nothing if it is fine."""
    name = branch_name(wanted, "r-1")
    parts = name.split("/")
    if _FORBIDDEN.search(name):
        return "it holds a space, a control character or one of ~ ^ : ? * [ \\"
    if "" in parts:
        return "it is empty, or has a slash at an end or two in a row"
    if name.startswith(("-", "refs/")) or name in ("@", "HEAD"):
        return "it is no plain name: leave out a leading dash and refs/, and do not use @ or HEAD"
    if ".." in name or "@{" in name or name.endswith("."):
        return "it holds .. or @{, or ends with a dot"
    if any(part.startswith(".") or part.endswith(".lock") for part in parts):
        return "a part of it begins with a dot, or ends with .lock"
    if len(name.encode()) > MOST_BYTES:
        return f"it is longer than {MOST_BYTES} bytes"
    return ""


def checked_branch(wanted: str, run_id: str) -> str:
    """The branch that a run's change goes to, by the name that somebody wishes for."""
    if problem := branch_problem(wanted):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{wanted!r} cannot be a branch: {problem}.",
            next_action="Name a new branch as `git branch` would take it, for example codepilot/{run}.",
        )
    return branch_name(wanted, run_id)


def commit_message(
    goal: str, rationale: str, run_id: str, worth: str, tests: Sequence[str], uncommitted: Sequence[str] = ()
) -> str:
    """What was asked, what was done, and where that can be looked up.

    `uncommitted` is what lay beside the change when it was proved and is in no commit: what it may need to work.
    """
    asked = _line(goal)
    short = asked if len(asked) <= SUBJECT else f"{asked[: SUBJECT - 1].rstrip()}…"
    told = [asked] if short != asked else []
    told += [done] if (done := _line(rationale)) else []
    facts = "\n".join([f"Run: {run_id}", f"Verdict: {_line(worth)}", *_some("Test", tests)])
    if uncommitted:
        facts += "\n\nProved together with files that were not committed:\n" + "\n".join(_some("File", uncommitted))
    return "\n\n".join([short, *told, facts]) + "\n"


def _some(what: str, names: Sequence[str]) -> list[str]:
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return [*(f"{what}: {_line(name)}" for name in names[:MOST_NAMES]), *more]


def _line(text: str) -> str:
    """On one line, without what a terminal would obey."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
