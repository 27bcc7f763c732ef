"""Observability of runs and processes: logs, metrics, timeline, transcript, report, redaction, and the clock."""

from codepilot.telemetry.agent_lines import AgentLine, agent_lines
from codepilot.telemetry.analytics import Analytics, Group, analyse
from codepilot.telemetry.ci_reports import junit_xml, sarif_json
from codepilot.telemetry.clock import now_us, rfc3339
from codepilot.telemetry.costs import Costs, RunCost, costs
from codepilot.telemetry.describe import describe, gate_line
from codepilot.telemetry.feedback import Feedback, feedback
from codepilot.telemetry.figures import Figures, IterationFigures, figures
from codepilot.telemetry.loglines import LogLines
from codepilot.telemetry.metrics import METRICS, Metrics
from codepilot.telemetry.plan import PlanPart, plan_parts
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
    "AgentLine",
    "Analytics",
    "Clean",
    "Costs",
    "Feedback",
    "Figures",
    "Group",
    "IterationFigures",
    "LogLines",
    "Metrics",
    "PlanPart",
    "Redactor",
    "Report",
    "ReportedFailure",
    "ReportedNotification",
    "RunCost",
    "RunLog",
    "agent_lines",
    "analyse",
    "costs",
    "describe",
    "exit_code",
    "exit_code_of",
    "feedback",
    "figures",
    "gate_line",
    "junit_xml",
    "now_us",
    "plan_parts",
    "redact",
    "redact_json",
    "refusal",
    "report",
    "report_json",
    "reported",
    "rfc3339",
    "sarif_json",
    "timeline",
    "transcript",
]
