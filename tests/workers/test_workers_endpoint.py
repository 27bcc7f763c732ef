"""What a worker tells scrapers and probes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from workers_kit import Deployment, ended, has, starters, wait_for

from codepilot.core.events import EventType
from receiver import receiver
from servers import PostgresServer, postgres_server, quick_place

SEED = {
    "codepilot_run_total": "counter",
    "codepilot_pass_at_1_ratio": "gauge",
    "codepilot_run_duration_seconds": "histogram",
    "codepilot_step_duration_seconds": "histogram",
    "codepilot_step_retries_total": "counter",
    "codepilot_backtrack_total": "counter",
    "codepilot_agent_turns_total": "counter",
    "codepilot_tool_calls_total": "counter",
    "codepilot_sandbox_violations_total": "counter",
    "codepilot_workspace_snapshot_duration_seconds": "histogram",
    "codepilot_step_queue_depth": "gauge",
    "codepilot_step_heartbeat_reclaim_total": "counter",
    "codepilot_skill_calls_total": "counter",
    "codepilot_skill_duration_seconds": "histogram",
}


def test_metrics_have_their_names_and_count(alone: Deployment, shop: Path) -> None:
    with receiver() as reported:
        alone.environ_more["CODEPILOT_NOTIFY_URL"] = reported.url
        worker = alone.worker()
        with alone.runtime() as runtime:
            run_id = alone.submit(shop)
            wait_for(lambda: reported.received, 90)
            ended(runtime, run_id)
        wait_for(lambda: 'codepilot_notifications_total{result="sent"} 1.0' in worker.get("/metrics")[1], 30)
    assert (reported.received[0].json["run_id"], reported.received[0].json["verdict"]) == (run_id, "confirmed")
    wait_for(lambda: 'codepilot_run_total{status="success"} 1.0' in worker.get("/metrics")[1], 60)
    reported = worker.get("/metrics")[1].splitlines()
    assert {f"# TYPE {name} {kind}" for name, kind in SEED.items()} <= set(reported)
    assert {
        'codepilot_step_duration_seconds_count{role="FINALIZE",status="succeeded"} 1.0',
        "codepilot_run_duration_seconds_count 1.0",
        'codepilot_pass_at_1_ratio{set="runs"} 1.0',
        "codepilot_step_queue_depth 0.0",
        "codepilot_workspace_snapshot_duration_seconds_count 3.0",
        'codepilot_agent_turns_total{role="IMPLEMENT"} 1.0',
    } <= set(reported)
    assert worker.get("/elsewhere")[0] == 404


@pytest.mark.variants
def test_a_store_that_is_away_is_reported_and_outlived(tmp_path: Path, shop: Path) -> None:
    """Stopping is as a power cut to the server, so it is one of this test's own."""
    with quick_place() as place, postgres_server(place / "pg") as server:
        deployment = Deployment(
            tmp_path / "deployment", {"CODEPILOT_STORE": server.store(), "CODEPILOT_ARTIFACTS": str(tmp_path / "a")}
        )
        try:
            _outlive(deployment, server, shop)
        finally:
            deployment.close()


def _outlive(deployment: Deployment, server: PostgresServer, shop: Path) -> None:
    worker = deployment.worker()
    code, text = worker.get("/healthz")
    facts = json.loads(text)
    assert (code, facts["store"], facts["busy"], facts["concurrency"]) == (200, "answers", 0, 1)
    run_id = deployment.submit(shop)
    with deployment.runtime() as runtime:
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
    server.stop()
    wait_for(lambda: worker.get("/healthz")[0] == 503, 60)
    assert json.loads(worker.get("/healthz")[1])["store"] == "away"
    wait_for(lambda: json.loads(worker.get("/healthz")[1])["busy"] == 0, 60)  # it cannot report on its step
    server.start()
    wait_for(lambda: worker.get("/healthz")[0] == 200, 60)
    with deployment.runtime() as runtime:
        run, events = ended(runtime, run_id)
    assert run.verdict == "confirmed", "the step that nobody had was given back, and taken again"
    assert set(starters(events)) == {worker.name}
    server.stop()
    worker.signal(signal.SIGTERM)
    assert worker.wait(60) == 0, "a worker may leave while the store is away"


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "256.0.0.1:80"])
def test_an_address_that_is_none_is_refused_kindly(alone: Deployment, listen: str) -> None:
    worker = alone.worker("--listen", listen, ready=False)
    out, _ = worker.process.communicate(timeout=300)
    failure = json.loads(out)["failure"]
    assert (worker.process.returncode, failure["kind"]) == (2, "invalid_spec")
    assert listen in failure["message"]
