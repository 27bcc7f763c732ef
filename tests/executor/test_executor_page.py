"""docs/executor.md says what the service does: its operations, defaults and statuses are the real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from codepilot.executor.remote_http import _AGAIN, TRIES
from codepilot.executor.service import ServiceSettings
from codepilot.executor.service.messages import REASONS
from codepilot.executor.service.openapi import document

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "executor.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    lines = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_every_operation_is_on_the_page_as_it_is_described():
    paths = json.loads(document(token=True))["paths"]
    described = [
        [f"`{method.upper()} {path}`", operation["summary"]]
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    assert rows("Operations") == described


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requests that wait", ServiceSettings.queue),
        ("workspaces", ServiceSettings.workspaces),
        ("processes", ServiceSettings.processes),
        ("a JSON body", f"{ServiceSettings.json_bytes >> 20} MiB"),
        ("an upload", f"{ServiceSettings.upload_bytes >> 30} GiB"),
        ("all bases", f"{ServiceSettings.objects_bytes >> 30} GiB"),
        ("time for a body", f"{ServiceSettings.body_sec:.0f} s"),
        ("time for a request's head", f"{ServiceSettings.header_sec:.0f} s"),
        ("connections", ServiceSettings.connections),
        ("running work", f"{ServiceSettings.drain_sec:.0f} s"),
    ],
)
def test_limits_have_the_defaults_that_the_page_names(name, value):
    assert [default for limit, default, _ in rows("Limits") if limit.startswith(name)] == [str(value)]


def test_every_status_is_on_the_page_with_what_the_client_does():
    reported = {
        int(status): does
        for statuses, _, does in rows("Answers, and what the client does")
        for status in re.findall(r"\d{3}", statuses)
    }
    assert set(REASONS) <= set(reported)
    again = {status for status, does in reported.items() if "tries" in does or "again" in does}
    assert again == set(_AGAIN)
    assert TRIES == 3
