"""Observability of runs and processes: logs, metrics, timeline, transcript, report, redaction, and the clock."""

from codepilot.telemetry.clock import now_us, rfc3339
from codepilot.telemetry.figures import Figures, IterationFigures, figures
from codepilot.telemetry.loglines import LogLines
from codepilot.telemetry.metrics import METRICS, Metrics
from codepilot.telemetry.redact import Clean, Redactor, redact, redact_json
from codepilot.telemetry.report import (
    EXIT_PLAUSIBLE,
    EXIT_VERIFIED,
    Report,
    ReportedFailure,
    ReportedNotification,
    exit_code,
    exit_code_of,
    refusal,
    report,
    report_json,
    reported,
)
from codepilot.telemetry.runlog import RunLog
from codepilot.telemetry.timeline import timeline, transcript

__all__ = [
    "EXIT_PLAUSIBLE",
    "EXIT_VERIFIED",
    "METRICS",
    "Clean",
    "Figures",
    "IterationFigures",
    "LogLines",
    "Metrics",
    "Redactor",
    "Report",
    "ReportedFailure",
    "ReportedNotification",
    "RunLog",
    "exit_code",
    "exit_code_of",
    "figures",
    "now_us",
    "redact",
    "redact_json",
    "refusal",
    "report",
    "report_json",
    "reported",
    "rfc3339",
    "timeline",
    "transcript",
]
