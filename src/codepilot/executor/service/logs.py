"""The service's log: one JSON object a line on standard error. Bodies, tokens and environments are never in it."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback

from codepilot.telemetry import now_us, redact, rfc3339

_LOCK = threading.Lock()


def log(event: str, *, error: BaseException | None = None, **fields: object) -> None:
    if error is not None:
        fields["error"] = redact("".join(traceback.format_exception(error)))
    line = json.dumps({"at": rfc3339(now_us()), "event": event, **fields}, default=str)
    with _LOCK:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class JsonHandler(logging.Handler):
    """What libraries log, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        log("log", error=error, level=record.levelname.lower(), source=record.name, message=redact(record.getMessage()))
