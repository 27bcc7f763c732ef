"""Landing through a service: a queue that survives it, and what a tree of runs costs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_kit import Site

from codepilot.client import Client
from codepilot.core.access import Scope
from codepilot.core.landing import Landed


def git(where: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def serving(site: Site) -> Iterator[None]:
    """A worker and what lands, as `codepilot serve` runs them."""
    pool = site.pilot.worker()
    thread = threading.Thread(target=pool.run)
    thread.start()
    try:
        with site.pilot.landing_worker() as landing:
            site.client.app.state.service.landing = landing  # type: ignore[attr-defined]
            yield
    finally:
        pool.stop(hurry=True)
        thread.join()


@pytest.mark.variants
def test_a_queued_change_lands_once_the_service_runs(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    wanted = {"runs": [run_id], "onto": "fixes"}
    early = site.client.post("/v1/landings", json=wanted, headers=site.as_())
    assert early.status_code == 422 and "no proved change" in early.json()["detail"]
    site.pilot.work(run_id)
    refused = site.client.post("/v1/landings", json=wanted, headers=site.as_(Scope.OPERATOR, "bob"))
    assert refused.status_code == 403, "the branch is one of the server's checkout"
    browser = site.browser()
    assert run_id in site.client.get("/landing").text
    before = (checkout / "shapes.py").read_text()
    form = {"run": run_id, "onto": "fixes", "accept_plausible": "yes"}
    assert site.client.post("/landing", data=form, headers=browser).status_code == 303
    (waiting,) = site.client.get("/v1/landings", headers=site.as_()).json()["landings"]
    assert (waiting["status"], waiting["position"], waiting["by"]) == ("queued", 1, "owner")
    assert site.pilot.queue_landing([run_id], "fixes", accept_plausible=True)[0].position == 1, "it waits already"
    assert "Send to the queue" not in site.client.get("/landing").text, "nothing else can land"
    with serving(site):
        deadline = time.monotonic() + 300
        while site.pilot.landings()[0].status == "queued" and time.monotonic() < deadline:
            time.sleep(0.1)
        (landed,) = site.pilot.landings()
        assert landed.status == "landed" and landed.commit == git(checkout, "rev-parse", "fixes"), landed
        token = site.as_()["Authorization"].removeprefix("Bearer ")
        with Client(
            "http://127.0.0.1", token, settings=site.pilot.settings, transport=site.client._transport
        ) as client:
            assert client.landings()[0].commit == landed.commit
            again = client.land([run_id], "fixes", accept_plausible=True)[run_id]
            assert isinstance(again, Landed) and again.commit == landed.commit, "nothing lands twice"
    assert (checkout / "shapes.py").read_text() == before and git(checkout, "status", "--porcelain") == ""
    assert landed.commit[:12] in site.client.get("/landing").text


def test_the_cost_of_a_run_is_that_of_its_tree(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    found = site.client.get(f"/v1/runs/{run_id}/cost", headers=site.as_()).json()
    assert found["runs"][0]["runId"] == run_id and found["costUsd"] == 0
    assert found["limitCostUsd"] == 5.0 and site.pilot.costs(run_id).tokens == 0
