"""A change as a commit: the name of its branch, and its message. Pure."""

import re
from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind

COMMIT = "commit"
"""The `dependency` of the event for a change that could not be committed."""
RUN = "{run}"
"""The placeholder for the run's id in the name of a branch."""
MOST_BYTES, MOST_NAMES, SUBJECT = 180, 20, 72

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]")


class CommitRecorded(Contract):
    """The change was committed to a new branch of the user's repository."""

    checkout: str
    branch: str
    commit: str
    parent: str


def branch_name(wanted: str, run_id: str) -> str:
    return wanted.replace(RUN, run_id)


def branch_problem(wanted: str) -> str:
    """Why a branch cannot have this name; empty if it can."""
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
    """The branch for a run's change; raise if `wanted` is no valid name."""
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
    """The commit message: the goal, the rationale, and the run with its verdict.

    `uncommitted` are files that were part of the proof and are in no commit: the change may depend on them.
    """
    asked = _line(goal)
    short = asked if len(asked) <= SUBJECT else f"{asked[: SUBJECT - 1].rstrip()}…"
    body = [asked] if short != asked else []
    body += [done] if (done := _line(rationale)) else []
    facts = "\n".join([f"Run: {run_id}", f"Verdict: {_line(worth)}", *_some("Test", tests)])
    if uncommitted:
        facts += "\n\nProved together with files that were not committed:\n" + "\n".join(_some("File", uncommitted))
    return "\n\n".join([short, *body, facts]) + "\n"


def run_named(message: str) -> str:
    """The run of a commit message. An agent writes one line of it, and so cannot name another run."""
    found = re.search(r"^Run: (\S+)\nVerdict: ", message, re.MULTILINE)
    return found[1] if found is not None else ""


def _some(what: str, names: Sequence[str]) -> list[str]:
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return [*(f"{what}: {_line(name)}" for name in names[:MOST_NAMES]), *more]


def _line(text: str) -> str:
    """The text on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
