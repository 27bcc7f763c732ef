"""The /v1 API: names, pages, problems, entity tags, artifacts and control, through the real application."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from api_kit import Site
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from codepilot.api import requests
from codepilot.api.patches import only_path
from codepilot.api.routes import ROUTERS
from codepilot.api.shapes import BodyIn, microseconds, moment
from codepilot.core.access import Scope
from codepilot.core.contract import Contract
from codepilot.core.events import Event
from codepilot.core.run import replay


@pytest.fixture
def run_id(site: Site, checkout: Path) -> str:
    return str(site.submit(checkout).json()["runId"])


def test_a_task_is_submitted_by_the_seeds_names_and_read_back(site: Site, checkout: Path) -> None:
    answer = site.submit(checkout, constraints=["keep the API"])
    assert answer.status_code == 201
    ids = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{ids['runId']}"
    task = site.client.get(f"/v1/tasks/{ids['taskId']}", headers=site.as_()).json()
    assert (task["type"], task["prompt"], task["constraints"]) == ("bugfix", "area multiplies", ["keep the API"])
    assert [run["runId"] for run in task["runs"]] == [ids["runId"]]
    run = site.client.get(f"/v1/runs/{ids['runId']}", headers=site.as_()).json()
    assert (run["status"], run["currentState"], run["iterationCount"]) == ("QUEUED", "INIT", 0)
    assert run["budget"]["limit"]["iterations"] == 6
    assert run["budget"]["used"]["tokens"] == 0
    assert run["steps"][0]["role"] == "INIT"
    assert re.fullmatch(r"\d{4}-.*T.*Z", run["createdAt"])
    wanted = "stepId role attempt status workerId claimedAt heartbeatAt inputArtifactIds outputArtifactIds budgets"
    assert set(wanted.split()) <= run["steps"][0].keys()


def test_an_idempotency_key_submits_once(site: Site, checkout: Path) -> None:
    headers = {**site.as_(), "Idempotency-Key": "ci-4711"}
    task = {"type": "BUGFIX", "repoUrl": str(checkout), "prompt": "area multiplies"}
    first, second = (site.client.post("/v1/tasks", json=task, headers=headers) for _ in range(2))
    assert first.json() == second.json()
    other = site.client.post("/v1/tasks", json={**task, "prompt": "other"}, headers=headers)
    assert (other.status_code, other.json()["kind"]) == (422, "invalid_spec")
    assert len(site.client.get("/v1/runs", headers=headers).json()["runs"]) == 1


def test_pages_of_runs_follow_each_other(site: Site, checkout: Path) -> None:
    made = [site.submit(checkout, prompt=f"run number {number}").json()["runId"] for number in range(5)]
    site.pilot.cancel(made[0])
    headers, cursor, seen = site.as_(), None, []
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = site.client.get("/v1/runs", params=query, headers=headers).json()
        seen += [run["runId"] for run in page["runs"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert seen == made[::-1]
    for query, wanted in (
        ({"state": "ABORTED"}, made[:1]),
        ({"goal": "NUMBER 3"}, made[3:4]),
        ({"goal": "100%"}, []),
        ({"repo": "elsewhere"}, []),
    ):
        found = site.client.get("/v1/runs", params=query, headers=headers).json()["runs"]
        assert [run["runId"] for run in found] == wanted


def test_events_are_paged_and_replayable(site: Site, run_id: str) -> None:
    headers = site.as_()
    page = site.client.get(f"/v1/runs/{run_id}/events", params={"limit": 1}, headers=headers).json()
    assert [event["seq"] for event in page["events"]] == [1]
    rest = site.client.get(f"/v1/runs/{run_id}/events", params={"after": page["lastSeq"]}, headers=headers).json()
    raw = [*page["events"], *rest["events"]]
    events = [Event.model_validate({**one, "at": microseconds(one["at"])}) for one in raw]
    assert replay(events) == site.pilot.run(run_id)


def test_a_stream_ends_with_the_run_and_goes_on_where_it_broke(site: Site, run_id: str) -> None:
    site.pilot.cancel(run_id)
    headers = {**site.as_(), "Accept": "text/event-stream"}
    text = site.client.get(f"/v1/runs/{run_id}/events", headers=headers).text
    ids = [int(number) for number in re.findall(r"^id: (\d+)$", text, re.MULTILINE)]
    assert ids == [event.seq for event in site.pilot.events(run_id)]
    assert "event: end" in text
    broken = site.client.get(f"/v1/runs/{run_id}/events", headers={**headers, "Last-Event-ID": str(ids[1])}).text
    assert [int(number) for number in re.findall(r"^id: (\d+)$", broken, re.MULTILINE)] == ids[2:]
    done = site.client.get(f"/v1/runs/{run_id}/events", headers={**headers, "Last-Event-ID": str(ids[-1])})
    assert done.status_code == 204


@pytest.mark.parametrize(("verb", "status"), [("cancel", "ABORTED"), ("pause", "PAUSED")])
def test_runs_are_controlled_and_the_log_says_by_whom(site: Site, run_id: str, verb: str, status: str) -> None:
    headers = site.as_(Scope.OPERATOR, "bea")
    answer = site.client.post(f"/v1/runs/{run_id}/{verb}", headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (202, status)
    requested = [event for event in site.pilot.events(run_id) if event.type == f"{verb}_requested"]
    assert requested[0].data.model_dump()["by"] == "bea"
    lines = site.client.get("/v1/audit", params={"run": run_id}, headers=headers).json()["entries"]
    assert [(one["decision"], one["by"]) for one in lines] == [("submit", "ann"), (verb, "bea")]
    if verb == "pause":
        assert site.client.post(f"/v1/runs/{run_id}/resume", headers=headers).json()["status"] == "QUEUED"
        resumed = site.pilot.events(run_id)[-1].data.model_dump()
        assert resumed["by"] == "bea"


def test_entity_tags_save_the_body(site: Site, run_id: str) -> None:
    headers = site.as_()
    first = site.client.get(f"/v1/runs/{run_id}", headers=headers)
    again = site.client.get(f"/v1/runs/{run_id}", headers={**headers, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    site.pilot.pause(run_id)
    changed = site.client.get(f"/v1/runs/{run_id}", headers={**headers, "If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


@pytest.mark.parametrize("path", ["", "/events", "/timeline", "/report", "/feedback", "/diff", "/logs", "/approvals"])
def test_every_answer_about_a_run_has_an_entity_tag(site: Site, run_id: str, path: str) -> None:
    first = site.client.get(f"/v1/runs/{run_id}{path}", headers=site.as_())
    again = site.client.get(
        f"/v1/runs/{run_id}{path}", headers={**site.as_(), "If-None-Match": f'"x", W/{first.headers["etag"]}'}
    )
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])


def test_a_run_is_resumed_with_new_limits(site: Site, run_id: str) -> None:
    headers = site.as_()
    site.pilot.pause(run_id)
    wrong = site.client.post(f"/v1/runs/{run_id}/resume", json={"limits": {"patience": 3}}, headers=headers)
    assert (wrong.status_code, "patience" in wrong.json()["detail"]) == (422, True)
    assert (
        site.client.post(f"/v1/runs/{run_id}/resume", json={"limits": {"iterations": 9}}, headers=headers).status_code
        == 202
    )
    run = site.client.get(f"/v1/runs/{run_id}", headers=headers).json()
    assert run["budget"]["limit"]["iterations"] == 9


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", "/v1/runs/r-none", None, 404, "invalid_spec"),
        ("GET", "/v1/tasks/t-none", None, 404, "invalid_spec"),
        ("GET", "/v1/nowhere", None, 404, "invalid_spec"),
        ("DELETE", "/v1/runs", None, 405, "invalid_spec"),
        ("GET", "/v1/runs?limit=0", None, 422, "invalid_spec"),
        ("GET", "/v1/runs?cursor=%21", None, 422, "invalid_spec"),
        ("GET", "/v1/runs?cursor=0", None, 404, "invalid_spec"),
        ("POST", "/v1/tasks", b"{", 422, "invalid_spec"),
        ("POST", "/v1/tasks", b"[]", 422, "invalid_spec"),
        ("POST", "/v1/tasks", b"\xff", 422, "invalid_spec"),
        ("POST", "/v1/tasks", b'{"prompt": "x", "colour": 1}', 422, "invalid_spec"),
    ],
)
def test_a_problem_says_what_and_what_next(
    site: Site, method: str, path: str, body: bytes | None, status: int, kind: str
) -> None:
    headers = {**site.as_(), "Content-Type": "application/json", "X-Request-Id": "from-ci-1"}
    answer = site.client.request(method, path, content=body, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["kind"]) == (status, kind)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["nextAction"] and problem["detail"] and problem["requestId"] == "from-ci-1"
    assert answer.headers["x-request-id"] == "from-ci-1"


def test_a_name_of_several_runs_is_a_conflict(site: Site, run_id: str, checkout: Path) -> None:
    site.submit(checkout)
    answer = site.client.get(f"/v1/runs/{run_id[:6]}", headers=site.as_())
    assert (answer.status_code, "several runs" in answer.json()["detail"]) == (409, True)


def test_a_path_says_what_it_takes(site: Site) -> None:
    answer = site.client.patch(f"/v1/bases/{'0' * 16}/{'0' * 64}", headers=site.as_())
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT")


def test_bodies_are_bounded(open_site: Callable[..., Site]) -> None:
    site = open_site(service={"body_mb": 1})
    headers = {**site.as_(), "Content-Type": "application/json"}
    answer = site.client.post("/v1/tasks", content=b" " * ((1 << 20) + 1), headers=headers)
    assert answer.status_code == 413
    chunks = iter([b" " * (1 << 19)] * 3)
    assert site.client.post("/v1/tasks", content=chunks, headers=headers).status_code == 413


def test_a_body_that_trickles_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODY_SEC", 0.1)

    async def trickle() -> dict[str, object]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read() -> None:
        receive = requests._bounded({"type": "http", "headers": []}, trickle, 10**6)
        async with asyncio.timeout(5):
            while True:
                await receive()

    with pytest.raises(HTTPException) as refused:
        asyncio.run(read())
    assert refused.value.status_code == 408


def test_users_are_limited_one_by_one(open_site: Callable[..., Site]) -> None:
    site = open_site(service={"requests_per_min": 60})
    ann, bob = site.as_(), site.as_(name="bob")
    answers = [site.client.get("/v1/me", headers=ann) for _ in range(12)]
    assert [one.status_code for one in answers][-1] == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert site.client.get("/v1/me", headers=bob).status_code == 200


def test_a_draining_service_takes_no_tasks(site: Site, checkout: Path) -> None:
    assert site.client.get("/readyz").json()["status"] == "ok"
    site.client.app.state.service.draining.set()  # type: ignore[attr-defined]
    answer = site.submit(checkout)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert site.client.get("/readyz").status_code == 503
    assert site.client.get("/healthz").status_code == 200


def test_the_description_covers_every_route(site: Site) -> None:
    document = site.client.get("/v1/openapi.json", headers=site.as_()).json()
    paths = document["paths"]
    for path in ("/v1/tasks", "/v1/runs", "/v1/runs/{run_id}/diff", "/v1/approvals", "/v1/workers", "/healthz"):
        assert path in paths
    assert all("Problem" in json.dumps(one["responses"]["default"]) for each in paths.values() for one in each.values())
    page = site.client.get("/v1/docs", headers={**site.as_(), "Accept": "text/html"})
    for shown in (
        "/v1/runs/{run_id}/fork",
        "iterationCount",
        "acceptPlausible",
        "commons-lang-3.12.0",
        "list of StepOut",
    ):
        assert shown in page.text


def test_logs_are_listed_and_read(site: Site, run_id: str) -> None:
    headers = site.as_()
    names = [one["name"] for one in site.client.get(f"/v1/runs/{run_id}/logs", headers=headers).json()["logs"]]
    assert names[0] == "run.jsonl"
    lines = site.client.get(f"/v1/runs/{run_id}/logs/run.jsonl", headers=headers).text.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["task_spec_recorded", "base_pinned", "step_queued"]


def test_one_file_of_a_patch() -> None:
    patch = (
        b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-diff --git a/y.py b/y.py\n+a\n"
        b"diff --git a/old b/new name\nsimilarity index 100%\nrename from old\nrename to new name\n"
    )
    assert only_path(patch, "new name") == patch[patch.index(b"diff --git a/old") :]
    assert only_path(patch, "y.py") is None
    odd = b'diff --git "a/\\303\\274.py" "b/\\303\\274.py"\n--- /dev/null\n+++ "b/\\303\\274.py"\n'
    assert only_path(patch + odd, "ü.py") == odd
    assert io.BytesIO(only_path(patch, "x.py") or b"").readline() == b"diff --git a/x.py b/x.py\n"


def test_a_parameter_that_a_route_does_not_know_is_refused(site: Site, run_id: str) -> None:
    headers = site.as_(Scope.VIEWER)
    answer = site.client.get("/v1/runs", params={"status": "DONE", "limit": 5}, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert "query.status: there is no such parameter; the route takes state, verdict, repo" in answer.json()["detail"]
    bare = site.client.get("/v1/me", params={"x": "1"}, headers=headers).json()
    assert bare["errors"] == ["query.x: there is no such parameter; the route takes no parameters"]
    listed = site.client.get(f"/v1/runs/{run_id}/artifacts", params={"linkSec": 5}, headers=headers)
    assert listed.status_code == 200, "a name in camelCase is known"
    assert site.client.get("/v1/me", params={"x": "1"}).status_code == 401, "nothing is said without credentials"


def test_what_is_not_there_is_404_and_what_does_not_fit_a_run_is_409(site: Site, run_id: str) -> None:
    headers = site.as_()
    for path in ("/checkpoints/0/diff", "/checkpoints/0/changes", "/checkpoints/compare?from=0"):
        assert site.client.get(f"/v1/runs/{run_id}{path}", headers=headers).status_code == 404, path
    for verb, body in (("checkpoint", None), ("message", {"text": "x"}), ("rollback", None)):
        answer = site.client.post(f"/v1/runs/{run_id}/{verb}", json=body, headers=headers)
        assert answer.status_code == 409, (verb, answer.text)


def test_bodies_are_built_with_their_routes() -> None:
    """Pydantic warns on standard error of a field that is built when its first request arrives."""
    fields = [
        one for router in ROUTERS for route in router.routes for one in cast(APIRoute, route).dependant.body_params
    ]
    bare = [kind for one in fields if isinstance(kind := one.field_info.annotation, type)]
    late = [kind.__name__ for kind in bare if issubclass(kind, Contract) and not issubclass(kind, BodyIn)]
    assert bare and not late


def test_times_lose_nothing() -> None:
    assert microseconds(moment(1_763_516_400_123_456)) == 1_763_516_400_123_456


def test_figures_and_policy_are_answered(site: Site, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = site.as_(Scope.VIEWER)
    tally, read = site.pilot._runtime.store.listing.tally, []
    monkeypatch.setattr(
        site.pilot._runtime.store.listing, "tally", lambda run_id: (read.append(run_id), tally(run_id))[1]
    )
    for _ in range(2):
        assert site.client.get("/v1/analytics", headers=headers).json()["total"]["runs"] == 1
    assert read == [run_id], "a log that did not grow is not read again"
    settings = site.client.get("/v1/policy", headers=headers).json()["settings"]
    assert {one["source"] for one in settings} <= {"default", "environment (CODEPILOT_POLICY_GENERATED_CODE)"}
    explained = site.client.get("/v1/policy/explain", params={"subject": ["git", "push"]}, headers=headers).json()
    assert explained["subject"] == "git push" and explained["reason"]


def test_a_request_of_a_run_is_answered(site: Site, run_id: str) -> None:
    headers = site.as_(Scope.OPERATOR, "bea")
    assert site.client.get(f"/v1/runs/{run_id}/approvals", headers=headers).json() == {"approvals": []}
    answer = site.client.post(f"/v1/runs/{run_id}/approvals/a-none", json={"decision": "once"}, headers=headers)
    assert answer.status_code == 404
    wrong = site.client.post(f"/v1/runs/{run_id}/approvals/a-none", json={"decision": "maybe"}, headers=headers)
    assert wrong.status_code == 422 and "decision" in wrong.json()["errors"][0]
    review = site.client.post(f"/v1/runs/{run_id}/review", json={"accept": ["x.py"]}, headers=headers)
    assert review.status_code in (409, 422)


def test_a_defect_is_a_problem_for_programs_and_a_page_for_people(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **more: object) -> None:
        raise RuntimeError("nobody may read this")

    site.browser()
    monkeypatch.setattr(site.pilot, "workers", broken)
    answer = site.client.get("/v1/workers", headers={"X-Request-Id": "d-1"})
    assert (answer.status_code, answer.json()["kind"], answer.json()["requestId"]) == (500, "internal", "d-1")
    page = site.client.get("/workers", headers={"Accept": "text/html", "X-Request-Id": "d-2"})
    assert page.status_code == 500 and "All runs" in page.text and "d-2" in page.text
    assert "nobody may read" not in answer.text + page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_body_of_two_lengths_is_refused(site: Site) -> None:
    """A proxy and the service could take different bytes for the next request."""
    headers = {**site.as_(), "Transfer-Encoding": "chunked", "Content-Length": "5"}
    answer = site.client.post("/v1/tasks", content=b"0\r\n\r\n", headers=headers)
    assert (answer.status_code, answer.headers["connection"]) == (400, "close")
