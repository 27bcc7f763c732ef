"""How a command ends that could not do its work: two lines, or one document, and an exit code."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from codepilot.cli import output
from codepilot.cli.options import json_wanted

if TYPE_CHECKING:
    from codepilot.core.failures import Failure


def refuse_other_bytes(arguments: Sequence[str]) -> None:
    """What is not UTF-8 can be neither recorded nor printed: it is refused before anything happens."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            from codepilot.core.failures import CodePilotError, FailureKind
            from codepilot.workspace.trees import shown

            json_wanted.append("--json" in arguments)
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The argument '{shown(argument)}' is not UTF-8.",
                next_action="Write it in UTF-8; a file or directory that is called so has to be renamed.",
            ) from error


def failure_of(error: Exception) -> Failure:
    """The failure behind an error that ended the command; a defect also prints its traceback."""
    from codepilot.core.failures import CodePilotError, Failure, FailureKind

    if isinstance(error, CodePilotError):
        return error.failure
    if isinstance(error, output.Unwritable):
        output.give_up(sys.stdout)
        json_wanted.append(False)
        kind = FailureKind.DISK_FULL if error.errno == errno.ENOSPC else FailureKind.INTERNAL
        message = f"What was to be printed could not be written: {error.strerror}."
        return Failure(kind=kind, message=message, next_action="Let it be written elsewhere.")
    import traceback

    with contextlib.suppress(OSError):
        output.say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)
    return Failure(kind=FailureKind.INTERNAL, message=f"{type(error).__name__}: {error}")


def fail(problem: Failure) -> int:
    """Show a failure that ended the command itself; returns the exit code."""
    from codepilot.cli.screens import failure
    from codepilot.telemetry import exit_code_of, refusal

    code = exit_code_of(problem)
    if json_wanted[-1]:
        try:
            output.print_json(refusal(problem).model_dump_json())
            sys.stdout.flush()
        except OSError:
            output.give_up(sys.stdout)
        else:
            return code
    try:
        failure(output.console(err=True), problem)
        sys.stderr.flush()
    except OSError:
        output.give_up(sys.stderr)
    return code
