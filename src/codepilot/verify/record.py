"""What is kept of a run that ended without a change: how it ended, and everything that led there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codepilot.core.events import Event
from codepilot.core.run import Run
from codepilot.telemetry import Clean, Report, redact, report, report_json, timeline, transcript
from codepilot.verify.bundle import REPORT, TIMELINE, TRANSCRIPT, pretty, write_directory


def write_record(
    directory: Path, run: Run, events: Sequence[Event], document: Report | None = None, clean: Clean = redact
) -> None:
    """Write report, transcript and timeline without secrets, whole or not at all. Writing twice gives the same."""
    files = {
        REPORT: pretty(report_json(document or report(run), clean)),
        TRANSCRIPT: transcript(events, clean),
        TIMELINE: pretty(timeline(run, events, clean)),
    }
    write_directory(directory, files)
