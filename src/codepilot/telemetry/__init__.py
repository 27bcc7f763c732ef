"""What can be seen of a run: its log, its timeline, its transcript, and the clock they share."""

from codepilot.telemetry.clock import now_us, rfc3339
from codepilot.telemetry.figures import Figures, IterationFigures, figures
from codepilot.telemetry.loglines import LogLines
from codepilot.telemetry.metrics import METRICS, Metrics
from codepilot.telemetry.redact import Redactor, redact
from codepilot.telemetry.runlog import RunLog
from codepilot.telemetry.timeline import timeline
from codepilot.telemetry.transcript import transcript

__all__ = [
    "METRICS",
    "Figures",
    "IterationFigures",
    "LogLines",
    "Metrics",
    "Redactor",
    "RunLog",
    "figures",
    "now_us",
    "redact",
    "rfc3339",
    "timeline",
    "transcript",
]
