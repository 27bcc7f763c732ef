"""One real `codepilot serve`: it logs the owner in, works on a task, streams it live, and drains."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import zipfile
from io import BytesIO
from pathlib import Path

import httpx2
import pytest
from api_kit import make_checkout

from ready import Started


@pytest.mark.variants
def test_a_task_is_watched_from_submission_to_bundle(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "shapes")
    environ = {
        **os.environ,
        "CODEPILOT_HOME": str(tmp_path / "home"),
        "CODEPILOT_PROJECT_RUNNER": "unittest",
        "CODEPILOT_POLICY_GENERATED_CODE": "off",
    }
    with (tmp_path / "log").open("wb") as log:
        serving = Started(["serve", "--port", "0", "--json"], environ, stderr=log)
        try:
            assert serving.stdout is not None
            served = json.loads(serving.stdout.readline())
            with httpx2.Client(base_url=served["url"], timeout=60) as client:
                client.get(served["login"])
                run_id = _submit(served["url"], environ, tmp_path, checkout)
                _watch(client, run_id)
                _ask_by_command(served["url"], run_id, environ, tmp_path)
        finally:
            os.kill(serving.pid, signal.SIGTERM)
            assert serving.wait(30) == 0
    logged = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in logged.splitlines()]
    answered = [line for line in lines if line["event"] == "requests"]
    assert answered and all(line["requestId"] for line in answered)
    assert served["login"].rpartition("=")[2] not in logged
    moved = [line for line in lines if line["event"] == "state_transition"]
    assert [(one["fromState"], one["toState"]) for one in moved][:2] == [("INIT", "MAP_REPO"), ("MAP_REPO", "PLAN")]
    assert {"taskId", "iteration", "durationSeconds", "tokensUsed"} <= moved[0].keys()


def _submit(url: str, environ: dict[str, str], place: Path, checkout: Path) -> str:
    """The checkout, as it is on the client's disk, goes along as bytes."""
    issued = Started(["token", "create", "ci"], environ)
    assert issued.wait(30) == 0 and issued.stdout is not None
    environ |= {"CODEPILOT_TOKEN": issued.stdout.read().strip(), "CODEPILOT_HOME": str(place / "client")}
    (checkout / "NOTES").write_text("not committed")
    sent = Started(["submit", str(checkout), "--url", url], environ)
    assert sent.wait(60) == 0 and sent.stdout is not None
    shutil.move(checkout, checkout.with_name("gone"))
    return sent.stdout.read().strip()


def _ask_by_command(url: str, run_id: str, environ: dict[str, str], place: Path) -> None:
    environ |= {"CODEPILOT_URL": url}
    for arguments, shown in (
        (["history"], run_id),
        (["show", run_id, "--json"], '"verdict":"confirmed"'),
        (["logs", run_id], "run finished"),
        (["diff", run_id], "width * height"),
        (["watch", run_id], "onfirmed"),
        (["artifacts", run_id, "--link", "60"], "signature="),
        (["approvals"], "No run waits"),
        (["cancel", run_id], "nothing to cancel"),
        (["fork", run_id], "r-"),
    ):
        ended = Started(arguments, environ)
        assert ended.stdout is not None
        output = ended.stdout.read()
        assert ended.wait(30) == 0, (arguments, output)
        assert shown in output, (arguments, output)
    assert (place / "client" / "bundles" / run_id / "patch.diff").exists()
    wrong = Started(["history"], {**environ, "CODEPILOT_TOKEN": "cpt_wrong"})
    assert wrong.wait(30) == 2


def _watch(client: httpx2.Client, run_id: str) -> None:
    seen: list[int] = []
    kinds: list[str] = []
    with client.stream("GET", f"/v1/runs/{run_id}/events", headers={"Accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            if number := re.fullmatch(r"id: (\d+)", line):
                seen.append(int(number[1]))
            if kind := re.fullmatch(r"event: (\w+)", line):
                kinds.append(kind[1])
    assert seen == list(range(1, seen[-1] + 1))
    assert kinds[-1] == "end" and "run_finished" in kinds
    run = client.get(f"/v1/runs/{run_id}").json()
    assert (run["status"], run["verdict"]) == ("DONE", "confirmed")
    assert run["steps"][-1]["inputArtifactIds"]
    assert b"width * height" in client.get(f"/v1/runs/{run_id}/diff").content
    for artifact in client.get(f"/v1/runs/{run_id}/artifacts").json()["artifacts"][:3]:
        without = httpx2.get(str(client.base_url).rstrip("/") + artifact["link"], timeout=30)
        assert len(without.content) == artifact["sizeBytes"]
    packed = zipfile.ZipFile(BytesIO(client.get(f"/v1/runs/{run_id}/bundle").content))
    assert f"{run_id}/patch.diff" in packed.namelist()
    assert client.get(f"/v1/runs/{run_id}/timeline").json()["status"] == "DONE"
    measured = client.get("/metrics").text
    assert 'codepilot_run_total{status="success"} 1.0' in measured


def test_another_address_needs_a_proxy_with_tls(tmp_path: Path) -> None:
    environ = {**os.environ, "CODEPILOT_HOME": str(tmp_path / "home")}
    refused = Started(["serve", "--host", "0.0.0.0", "--port", "0"], environ)
    assert refused.wait(30) == 2
    assert refused.stderr is not None
    assert "--behind-tls-proxy" in refused.stderr.read()
