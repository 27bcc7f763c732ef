"""The log of a long-lived process: one JSON object a line on standard error."""

from __future__ import annotations

import codecs
import json
import logging
import sys
import threading

from codepilot.core.contract import JsonObject
from codepilot.telemetry.clock import now_us, rfc3339
from codepilot.telemetry.redact import Clean, redact_json

_log = logging.getLogger(__name__)


class _JsonLines(logging.Formatter):
    def __init__(self, clean: Clean, *, ascii_only: bool) -> None:
        super().__init__()
        self._clean = clean
        self._ascii_only = ascii_only

    def format(self, record: logging.LogRecord) -> str:
        line: JsonObject = {
            "ts": rfc3339(now_us()),
            "level": record.levelname,
            "runId": getattr(record, "run_id", None),
            "stepId": getattr(record, "step_id", None),
            "role": getattr(record, "role", None),
            "attempt": getattr(record, "attempt", None),
            "event": record.name.rpartition(".")[2],
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(redact_json(line, self._clean), ensure_ascii=self._ascii_only)


def json_logging(level: int, clean: Clean) -> None:
    """Write all of CodePilot's loggers, and threads that die, as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    ascii_only = codecs.lookup(sys.stderr.encoding or "ascii").name != "utf-8"
    handler.setFormatter(_JsonLines(clean, ascii_only=ascii_only))
    root = logging.getLogger("codepilot")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
    threading.excepthook = _thread_died


def _thread_died(died: threading.ExceptHookArgs) -> None:
    if died.exc_value is None or isinstance(died.exc_value, SystemExit):
        return
    name = died.thread.name if died.thread else "unknown"
    trace = (died.exc_type, died.exc_value, died.exc_traceback)
    _log.error("the thread %s died by %s", name, died.exc_type.__name__, exc_info=trace)
