"""Tasks without a repository, and what a run reports in short: feedback, memory, its log as a stream."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

from api_kit import Site

from codepilot.api.pages.new import document_of, mistakes
from codepilot.core.access import Scope
from codepilot.engine import Worker

BUILD = {"kind": "build", "goal": "A command that converts CSV files to JSON", "agent": "codeact"}
MODULE = {"kind": "scaffold", "goal": "Make the module", "scaffold": {"ecosystem": "python", "name": "order-history"}}


def test_a_program_without_a_place_gets_a_directory_of_the_service(site: Site, tmp_path: Path) -> None:
    script, operator = tmp_path / "script.json", site.as_(Scope.OPERATOR)
    script.write_text("[]")
    for task, headers in (({**BUILD, "model": f"scripted:{script}"}, site.as_()), (MODULE, operator)):
        answer = site.client.post("/v1/tasks", json=task, headers=headers)
        assert answer.status_code == 201, answer.text
        run_id = answer.json()["runId"]
        assert Path(site.pilot.run(run_id).task.repo).parent == site.pilot.settings.home.builds / run_id
    assert site.client.post("/v1/tasks", json={**BUILD, "repo": "/srv/x"}, headers=operator).status_code == 403


def test_a_task_without_a_repository_does_not_work_on_the_servers_directory(site: Site) -> None:
    for task in ({"type": "BUGFIX", "prompt": "x"}, {"kind": "change", "goal": "x", "repo": "workspace"}):
        answer = site.client.post("/v1/tasks", json=task, headers=site.as_())
        assert (answer.status_code, answer.json()["detail"]) == (422, "The task names no repository.")


def test_a_module_is_downloaded_and_told_in_short(site: Site) -> None:
    run_id = site.client.post("/v1/tasks", json=MODULE, headers=site.as_()).json()["runId"]
    early = site.client.get(f"/v1/runs/{run_id}/program", headers=site.as_())
    assert (early.status_code, early.json()["kind"]) == (404, "path_not_found")
    assert Worker(site.pilot._runtime).drive(run_id).verdict is not None
    packed = site.client.get(f"/v1/runs/{run_id}/program", headers=site.as_()).content
    assert "pyproject.toml" in zipfile.ZipFile(io.BytesIO(packed)).namelist()
    feedback = site.client.get(f"/v1/runs/{run_id}/feedback", headers=site.as_()).json()
    assert {one["target"] for one in feedback["deltas"]} >= {"pyproject.toml"} and feedback["errors"] == []
    known = {event.event_id for event in site.pilot.events(run_id)}
    assert feedback["timelineRefs"] and set(feedback["timelineRefs"]) <= known
    assert site.client.get("/v1/memory", headers=site.as_()).json() == {"memories": []}
    _log_is_streamed(site, run_id)


def _log_is_streamed(site: Site, run_id: str) -> None:
    path, last = f"/v1/runs/{run_id}/logs/run.jsonl", site.pilot.run(run_id).last_seq
    whole = site.client.get(path, headers=site.as_()).text.splitlines()
    for after in (0, 3):
        headers = {**site.as_(), "Accept": "text/event-stream", "Last-Event-ID": str(after)}
        streamed = site.client.get(path, headers=headers).text
        assert [int(one) for one in re.findall(r"^id: (\d+)$", streamed, re.MULTILINE)] == list(
            range(after + 1, last + 1)
        )
        lines = re.findall(r"^event: line\ndata: (.*)$", streamed, re.MULTILINE)
        assert list(map(json.loads, lines)) == list(map(json.loads, whole[after:]))


def test_the_form_describes_a_task_of_every_kind() -> None:
    blank = dict.fromkeys(
        (
            *("goal", "repo", "ref", "tests", "accept", "constraints", "diff", "changed", "language", "ecosystem"),
            *("name", "agent", "model", "interaction", "execution_mode", "cost_usd", "wall_sec"),
        ),
        "",
    )
    asked = {**blank, "repo": "https://example.com/a.git", "ref": "main", "goal": "g", "agent": "codeact"}
    assert document_of("change", {**asked, "constraints": "a\n\nb"})["constraints"] == ["a", "b"]
    assert document_of("bugfix", asked)["ref"] == "main"
    assert document_of("question", asked)["risk_profile"] == {"capability": "read_only"}
    module = {**blank, "ecosystem": "maven", "name": "billing"}
    assert document_of("scaffold", module)["scaffold"] == {"ecosystem": "maven", "name": "billing", "join": False}
    assert mistakes("scaffold", {**module, "name": "Bad Name"}).keys() == {"name"}
    assert mistakes("bugfix", blank).keys() == {"repo"} and mistakes("scaffold", module) == {}
