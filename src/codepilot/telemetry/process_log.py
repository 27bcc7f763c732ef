"""The log of a long-lived process: one JSON object a line on standard error."""

from __future__ import annotations

import codecs
import copy
import json
import logging
import sys
import threading
from contextvars import ContextVar

from codepilot.core.contract import JsonObject
from codepilot.core.events import Event, EventType
from codepilot.telemetry.clock import now_us, rfc3339
from codepilot.telemetry.describe import describe
from codepilot.telemetry.redact import Clean, redact_json

_log = logging.getLogger(__name__)

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The HTTP request that is being answered."""


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
            "event": getattr(record, "event", None) or record.name.rpartition(".")[2],
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if request_id := REQUEST_ID.get():
            line["requestId"] = request_id
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


def text_logging(verbose: int, clean: Clean) -> None:
    """Write CodePilot's loggers as text: steps and commands, and from `verbose` 2 on every event."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TextLines(clean))
    root = logging.getLogger("codepilot")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    root.propagate = False


class _TextLines(logging.Formatter):
    def __init__(self, clean: Clean) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        self._clean = clean

    def format(self, record: logging.LogRecord) -> str:
        """A message is one line: what an agent or a repository says cannot look like another one."""
        line = copy.copy(record)
        line.msg, line.args = record.getMessage().replace("\r", "\\r").replace("\n", "\\n"), ()
        return self._clean(super().format(line))


def log_event(event: Event, role: str) -> None:
    """Log an event of a run: as information what a person would want to read, all others for debugging."""
    text = describe(event)
    frequent = event.type in _FREQUENT
    level = logging.INFO if (text or event.type in _STARTS) and not frequent else logging.DEBUG
    if _log.isEnabledFor(level):
        fields = {"run_id": event.run_id, "step_id": event.step_id, "role": role, "attempt": event.attempt}
        details = f": {text}" if text else ""
        _log.log(level, "%s %s %s%s", event.run_id, role, event.type.replace("_", " "), details, extra=fields)


_STARTS = frozenset({EventType.STEP_STARTED, EventType.RUN_PAUSED, EventType.RUN_RESUMED})
_FREQUENT = frozenset(
    {EventType.SEARCH_PROGRESSED, EventType.MODEL_ASKED, EventType.MODEL_ANSWERED, EventType.TURN_FINISHED}
)


def _thread_died(died: threading.ExceptHookArgs) -> None:
    if died.exc_value is None or isinstance(died.exc_value, SystemExit):
        return
    name = died.thread.name if died.thread else "unknown"
    trace = (died.exc_type, died.exc_value, died.exc_traceback)
    _log.error("the thread %s died by %s", name, died.exc_type.__name__, exc_info=trace)
