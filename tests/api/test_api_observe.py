"""A real Prometheus scrapes a real service: every query of the dashboard has an answer, every alert rule works."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from api_kit import make_checkout

from ready import Started

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "observability" / "dashboard.json"
PANELS = (
    "pass@1 over time",
    "Run duration distribution",
    "Step retry rates by role",
    "Tool call breakdown",
    "Executor timeout rate",
)


def queries() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [(one["title"], target["expr"]) for one in panels for target in one["targets"]]


def test_the_dashboard_has_its_panels() -> None:
    assert tuple(dict.fromkeys(title for title, _ in queries())) == PANELS


@pytest.mark.observe
def test_every_query_is_answered(tmp_path: Path) -> None:
    observe = runpy.run_path(str(ROOT / "scripts" / "observe"))
    environ = {
        **os.environ,
        "CODEPILOT_HOME": str(tmp_path / "home"),
        "CODEPILOT_PROJECT_RUNNER": "unittest",
        "CODEPILOT_POLICY_GENERATED_CODE": "off",
    }
    token = _token(environ)
    with (tmp_path / "log").open("wb") as log:
        serving = Started(["serve", "--port", "0", "--json"], environ, stderr=log)
        assert serving.stdout is not None
        url = json.loads(serving.stdout.readline())["url"]
        place = tmp_path / "prometheus"
        place.mkdir()
        observe["prepare"](place, url, token, "1s")
        listen = f"127.0.0.1:{_free_port()}"
        scraping = subprocess.Popen(observe["command"](place, listen))
        try:
            _until(lambda: _asked(listen, "up")[0]["value"][1] == "1")
            _run(url, token, make_checkout(tmp_path / "shapes"))
            time.sleep(4)
            for title, query in queries():
                found = _asked(listen, query.replace("$__rate_interval", "5m"))
                assert found, f"{title}: {query}"
                assert all(one["value"][1] != "NaN" for one in found), f"{title}: {query}: {found}"
            groups = httpx2.get(f"http://{listen}/api/v1/rules").json()["data"]["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            assert len(rules) == (ROOT / "deploy" / "observability" / "alerts.yml").read_text().count("- alert:")
            assert {rule["health"] for rule in rules} == {"ok"}
            assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
        finally:
            scraping.terminate()
            scraping.wait(20)
            os.kill(serving.pid, signal.SIGTERM)
            assert serving.wait(30) == 0


def _token(environ: dict[str, str]) -> str:
    issued = Started(["token", "create", "observer", "--scope", "admin"], environ)
    assert issued.wait(30) == 0 and issued.stdout is not None
    return issued.stdout.read().strip()


def _run(url: str, token: str, checkout: Path) -> None:
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        task = {"type": "BUGFIX", "repoUrl": str(checkout), "prompt": "area multiplies"}
        run_id = client.post("/v1/tasks", json=task).json()["runId"]
        _until(lambda: client.get(f"/v1/runs/{run_id}").json()["status"] == "DONE")


def _asked(listen: str, query: str) -> list[dict[str, Any]]:
    answer = httpx2.get(f"http://{listen}/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", answer
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def _until(condition: Any, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (httpx2.TransportError, IndexError):
            pass
        time.sleep(0.2)
    raise AssertionError("it did not come true in time")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
