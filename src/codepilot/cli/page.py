"""`codepilot show --html`: a run as a page in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from codepilot.cli.output import say
from codepilot.core.failures import CodePilotError, FailureKind

if TYPE_CHECKING:
    from codepilot.engine import CodePilot


def write_page(pilot: CodePilot, run_id: str, file: str | None, *, html: bool) -> None:
    """Write the page to `file`, by default RUN.html here, and print its path. `-` means standard output."""
    from codepilot.views import bundle_page

    if not html:
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"{file!r} is not needed.", "A file is written with --html only."
        )
    if file is None and (run_id == "-" or run_id.endswith(".html")):
        run_id, file = "last", run_id
    run = pilot.run(run_id)
    page = bundle_page(run, pilot.events(run.run_id), pilot.settings.redact).encode()
    if file == "-":
        sys.stdout.buffer.write(page)
        return
    place = Path(file or f"{run.run_id}.html").absolute()
    try:
        place.write_bytes(page)
    except OSError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{place} cannot be written: {error.strerror}.",
            "Name another file: codepilot show RUN FILE --html",
        ) from error
    say(str(place))
