"""What a long-lived process says of itself: a JSON object a line, whatever is reported, and without secrets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

BEGIN = """
import logging, os, threading
from codepilot.telemetry import Redactor
from codepilot.telemetry.process_log import json_logging

json_logging(logging.INFO, Redactor(os.environ))
log = logging.getLogger("codepilot.engine.worker_pool")
"""


def logged(code: str, **environ: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], env=environ, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_line_that_quotes_a_key_is_still_json() -> None:
    first, second = logged("log.info('it begins -----BEGIN PRIVATE KEY-----, and so on')\nlog.warning('after')")
    assert (first["message"], first["event"], first["level"]) == ("it begins [redacted]", "worker_pool", "INFO")
    assert second["message"] == "after"


def test_a_secret_that_json_escapes_is_not_reported() -> None:
    (line,) = logged(
        "import os\ntry:\n    raise ValueError(os.environ['OPENAI_API_KEY'])\n"
        "except ValueError:\n    log.exception('tried %s', os.environ['OPENAI_API_KEY'])",
        OPENAI_API_KEY='pa"ss\\word1',
    )
    assert line["message"] == "tried [redacted]"
    assert line["traceback"].endswith("ValueError: [redacted]")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_lines_are_json_in_every_encoding(encoding: str) -> None:
    (line,) = logged(r"log.info('caf\xe9 \u2192 \U0001f600 \udcff')", PYTHONIOENCODING=encoding)
    assert line["message"] == "caf\xe9 \u2192 \U0001f600 \udcff"


def test_a_thread_that_dies_is_reported_as_json() -> None:
    code = "def work():\n    raise {}\nhand = threading.Thread(target=work, name='hand-1')\nhand.start()\nhand.join()"
    (line,) = logged(code.format("KeyError('x')"))
    assert (line["level"], line["message"]) == ("ERROR", "the thread hand-1 died by KeyError")
    assert line["traceback"].endswith("KeyError: 'x'")
    assert logged(code.format("SystemExit(3)")) == []


def test_a_message_of_several_lines_is_one_line_of_text() -> None:
    code = (
        "from codepilot.telemetry.process_log import text_logging\n"
        "import logging\n"
        "text_logging(2, str)\n"
        "logging.getLogger('codepilot.x').info('ran %s', 'true\\n12:00:00 INFO    codepilot: confirmed')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == 1 and "true\\n12" in done.stderr
