"""What a long-lived process says of itself: one JSON object a line on standard error."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable

from codepilot.telemetry.clock import now_us, rfc3339
from codepilot.telemetry.redact import Redactor


class _JsonLines(logging.Formatter):
    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        said = {
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
            said["traceback"] = self.formatException(record.exc_info)
        return self._redact(json.dumps(said, ensure_ascii=False))


def json_logging(level: int, redact: Callable[[str], str] | None = None) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines(redact or Redactor(os.environ)))
    root = logging.getLogger("codepilot")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
