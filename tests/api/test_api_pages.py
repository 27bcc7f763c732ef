"""The dashboard's pages over the real application: what each shows, and what its forms do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api_kit import COOKIE, Site, ask

from codepilot.api import service
from codepilot.api.pages import board
from codepilot.api.pages.review import decisions
from codepilot.core.access import Scope
from codepilot.core.events import Event, State
from codepilot.engine.service.links import answer_link

PAGES = ("/", "/runs", "/runs?q=repo:nothing", "/new", "/approvals", "/analytics", "/workers", "/audit", "/v1/docs")
HTML = {"Accept": "text/html"}


def submit(site: Site, checkout: Path, headers: dict[str, str], **fields: str) -> str:
    """Submit a task by the form; returns the run's id."""
    form = {"csrf": headers["X-CSRF-Token"], "kind": "bugfix", "repo": str(checkout), "agent": "repair"}
    answer = site.client.post("/new", data={**form, "interaction": "ask_before_risky", **fields}, headers=HTML)
    assert answer.status_code == 303, answer.text
    return urlsplit(answer.headers["location"]).path.removeprefix("/runs/")


def test_every_page_is_shown_before_and_after_there_is_a_run(site: Site, checkout: Path) -> None:
    headers = site.browser()
    for path in PAGES:
        answer = site.client.get(path, headers=HTML)
        assert (answer.status_code, "text/html" in answer.headers["content-type"]) == (200, True), path
        assert "unsafe" not in answer.headers["content-security-policy"]
    run_id = submit(site, checkout, headers)
    for path in (
        *PAGES,
        f"/runs/{run_id}",
        f"/runs/{run_id}/diff",
        f"/runs/{run_id}/log",
        f"/compare?a={run_id}&b=last",
    ):
        answer = site.client.get(path, headers=HTML)
        assert answer.status_code == 200, path
        assert "Repair the failing test" in answer.text or path in PAGES


def test_a_task_runs_to_its_proof_and_is_applied(site: Site, checkout: Path) -> None:
    headers = site.browser()
    run_id = submit(site, checkout, headers)
    site.pilot.work(run_id)
    assert "Confirmed" in site.client.get(f"/runs/{run_id}", headers=HTML).text
    shown = site.client.get(f"/runs/{run_id}/diff?view=split", headers=HTML).text
    assert "shapes.py" in shown and "Re-verify what remains" in shown
    assert 'value="reject"' in shown
    artifact = site.client.get(f"/v1/runs/{run_id}/artifacts", headers=site.as_()).json()["artifacts"][0]
    tag = f'"{artifact["sha256"]}"'
    assert site.client.get(artifact["link"]).headers["etag"] == tag
    assert site.client.get(artifact["link"], headers={"If-None-Match": tag}).status_code == 304
    token = {"csrf": headers["X-CSRF-Token"]}
    applied = site.client.post(f"/runs/{run_id}/apply", data=token, headers=HTML)
    assert applied.status_code == 303
    assert "width * height" in (checkout / "shapes.py").read_text()
    assert "applied to the checkout" in site.client.get("/", headers=HTML).text
    figures = site.client.get("/analytics", headers=HTML).text
    assert "100%" in figures and "1 proved run" in figures and "±" not in figures.replace("mean ± deviation", "")


@pytest.mark.slow
def test_rejecting_a_hunk_has_what_remains_judged(site: Site, checkout: Path) -> None:
    headers = site.browser()
    run_id = submit(site, checkout, headers)
    site.pilot.work(run_id)
    token = {"csrf": headers["X-CSRF-Token"]}
    keys = re.findall(r'name="hunk:([^"]+)" value="reject"', site.client.get(f"/runs/{run_id}/diff", headers=HTML).text)
    tests = [key for key in keys if key.startswith("test_")]
    assert len(keys) == 2 and len(tests) == 1, "the source and the regression test"
    nothing = site.client.post(f"/runs/{run_id}/review", data={**token, f"hunk:{keys[0]}": "accept"}, headers=HTML)
    assert "Nothing%20was%20rejected" in nothing.headers["location"]
    chosen = {f"hunk:{key}": "reject" if key in tests else "accept" for key in keys}
    form = {**token, **chosen, "reason": "not needed", f"line:7:{tests[0]}": "why this one?", "do": "review"}
    judged = site.client.post(f"/runs/{run_id}/review", data=form, headers=HTML)
    judging = urlsplit(judged.headers["location"]).path.removeprefix("/runs/")
    assert judging != run_id
    assert [step.status for step in site.pilot.steps(judging)] == ["PENDING"], "any worker may take it"
    site.pilot.work(judging)
    remaining = site.pilot.run(judging)
    assert remaining.state is State.DONE and remaining.proposal is not None
    assert b"test_shapes" not in site.pilot.diff(judging)
    shown = site.client.get(f"/runs/{run_id}/diff", headers=HTML).text
    assert "Reviewed by owner" in shown and "line 7: why this one?" in shown and f'href="/runs/{judging}"' in shown


def test_a_decision_on_a_file_comes_before_those_on_its_hunks() -> None:
    fields = {
        "hunk:a.py:1": "accept",
        "hunk:a.py:2": "reject",
        "file:a.py": "reject",
        "comment:a.py": "keep the old one",
        "line:12:a.py:2": " slow ",
        "file:b.py": "",
        "hunk:b.py:1": "accept",
        "hunk:b.py:2": "reject",
        "hunk:do": "accept",
        "do": "review",
        "reason": "in general",
    }
    found = decisions(fields)
    assert found.accept == ("b.py:1", "do")
    assert found.reasons == {"a.py": "keep the old one\nline 12: slow", "b.py:2": "in general"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "change", "goal": ""}, "Say what should be done."),
        ({"kind": "build", "goal": "short"}, "10 to 500 characters"),
        ({"repo": ""}, "Name a checkout or a URL."),
        ({"cost_usd": "much"}, "Give a number"),
        ({"repo": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"agent": "nobody"}, "nobody"),
    ],
)
def test_a_form_says_what_is_wrong_and_keeps_what_was_typed(site: Site, fields: dict[str, str], message: str) -> None:
    headers = site.browser()
    form = {"csrf": headers["X-CSRF-Token"], "kind": "bugfix", "repo": ".", "goal": "kept words", "model": "kept"}
    answer = site.client.post("/new", data={**form, **fields}, headers=HTML)
    assert (answer.status_code, message in answer.text) == (422, True), answer.text[-3000:]
    assert 'value="kept"' in answer.text
    assert site.pilot.runs() == []


def test_an_approval_is_answered_in_the_inbox(site: Site, checkout: Path) -> None:
    headers = site.browser()
    run_id = submit(site, checkout, headers)
    ask(site, run_id)
    for path in ("/approvals", f"/runs/{run_id}", "/"):
        shown = site.client.get(path, headers=HTML).text
        assert "<b>why" not in shown
    assert "pypi.org" in site.client.get("/approvals", headers=HTML).text
    form = {"csrf": headers["X-CSRF-Token"], "decision": "denied", "reason": "no"}
    assert site.client.post(f"/runs/{run_id}/approvals/a-1", data={**form, "decision": "x"}).status_code == 422
    assert site.client.post(f"/runs/{run_id}/approvals/a-1", data=form, headers=HTML).status_code == 303
    (asked,) = site.pilot.approvals(run_id)
    assert (asked.status, asked.reason) == ("denied", "no")
    assert "Nothing waits for you" in site.client.get("/approvals", headers=HTML).text


def test_a_signed_link_answers_one_request_and_nothing_else(open_site: Callable[..., Site], checkout: Path) -> None:
    site = open_site(service={"requests_per_min": 60_000, "url": "http://pilot.example"})
    run_id = submit(site, checkout, site.browser())
    ask(site, run_id)
    site.client.cookies.clear()
    link = answer_link(site.pilot._runtime, site.pilot.run(run_id))
    assert link is not None and link.startswith("http://pilot.example/answer/")
    path = link.removeprefix("http://pilot.example")
    shown = site.client.get(path, headers=HTML).text
    assert "pypi.org" in shown and "Repair the failing test" in shown and "denied in 1:" in shown
    for wrong in (path[:-1] + ("0" if path[-1] != "0" else "1"), path.partition("?")[0], path.replace("a-1", "a-2")):
        refused = site.client.post(wrong, data={"decision": "once"}, headers=HTML)
        assert refused.status_code == 404 and "The link is wrong" in refused.text
    assert site.client.get(f"/runs/{run_id}", headers=HTML).status_code == 401, "a link is no login"
    assert "Allowed once" in site.client.post(path, data={"decision": "once"}, headers=HTML).text
    assert site.pilot.approvals(run_id)[0].by == "link"
    assert "Already answered" in site.client.get(path, headers=HTML).text


def test_a_viewer_sees_and_changes_nothing(site: Site, checkout: Path) -> None:
    run_id = submit(site, checkout, site.browser())
    session = site.pilot.log_in_with_token(site.pilot.create_token("eve", Scope.VIEWER).secret, 1.0)
    assert session is not None
    site.client.cookies.clear()
    site.client.cookies.set(COOKIE, session.secret)
    token = {"X-CSRF-Token": site.client.get("/v1/me").json()["csrfToken"], **HTML}
    assert "New task" not in site.client.get("/", headers=HTML).text
    for path in (
        "/new",
        f"/runs/{run_id}/pause",
        f"/runs/{run_id}/cancel",
        f"/runs/{run_id}/review",
        f"/runs/{run_id}/apply",
    ):
        assert site.client.post(path, headers=token, data={}).status_code == 403, path
    assert not site.pilot.run(run_id).cancel_requested


def test_buttons_control_a_run(site: Site, checkout: Path) -> None:
    headers = site.browser()
    run_id = submit(site, checkout, headers)
    form = {"csrf": headers["X-CSRF-Token"]}
    assert site.client.post(f"/runs/{run_id}/pause", data=form, headers=HTML).status_code == 303
    assert site.pilot.run(run_id).state is State.PAUSED
    assert site.client.post(f"/runs/{run_id}/resume", data=form, headers=HTML).status_code == 303
    forked = site.client.post(f"/runs/{run_id}/fork", data={**form, "at": "1"}, headers=HTML)
    assert urlsplit(forked.headers["location"]).path != f"/runs/{run_id}"
    assert site.client.post(f"/runs/{run_id}/cancel", data=form, headers=HTML).status_code == 303
    assert site.pilot.run(run_id).state is State.ABORTED
    assert site.client.post(f"/runs/{run_id}/explode", data=form, headers=HTML).status_code == 404


def test_a_list_shows_a_run_as_it_is_now(site: Site, checkout: Path) -> None:
    headers = site.browser()
    run_id = submit(site, checkout, headers)
    first = site.pilot.views([run_id, "r-none"])
    assert list(first) == [run_id] and site.pilot.views([run_id])[run_id] is first[run_id]
    site.pilot.pause(run_id)
    assert site.pilot.views([run_id])[run_id].state is State.PAUSED
    assert "paused" in site.client.get("/", headers=HTML).text


def test_the_list_is_filtered_by_words_and_facts(site: Site, checkout: Path) -> None:
    headers = site.browser()
    one = submit(site, checkout, headers, goal="The area is wrong")
    two = submit(site, checkout, headers, goal="Something else")

    def listed(query: str) -> set[str]:
        shown = site.client.get("/runs", params={"q": query}, headers=HTML).text
        return {run_id for run_id in (one, two) if f'href="/runs/{run_id}"' in shown}

    assert listed("") == {one, two}
    assert listed("area") == {one}
    assert listed("kind:bugfix repo:shapes else") == {two}
    assert listed("state:done") == set()
    assert "is no filter" in site.client.get("/runs?q=colour:red", headers=HTML).text


def test_a_list_leaves_no_match_out_between_its_pages(
    site: Site, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch of runs has more matches than the page has room for."""
    monkeypatch.setattr(board, "SHOWN", 4)
    headers = site.browser()
    goals = ("red", "red", "red", "blue", "red", "red", "red", "blue", "red")
    runs = {goal_run: goal for goal in goals for goal_run in [submit(site, checkout, headers, goal=goal)]}
    seen: list[str] = []
    path: str | None = "/runs?q=red"
    while path is not None:
        shown = site.client.get(path, headers=HTML).text
        seen += re.findall(r'<a href="/runs/(r-\w+)"', shown)
        older = re.search(r'href="(/runs\?q=red&amp;before=[^"]+)"', shown)
        path = older[1].replace("&amp;", "&") if older else None
    assert sorted(seen) == sorted(run for run, goal in runs.items() if goal == "red")


def test_a_list_says_that_older_runs_were_not_looked_at(
    site: Site, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "SHOWN", 2)
    monkeypatch.setattr(board, "LOOKED_AT", 2)
    headers = site.browser()
    wanted = submit(site, checkout, headers, goal="the oldest")
    for _ in range(3):
        submit(site, checkout, headers, goal="another")
    shown = site.client.get("/runs?q=oldest", headers=HTML).text
    assert "Look at older runs" in shown and "No run matches" not in shown
    older = re.search(r'href="(/runs\?q=oldest&amp;before=[^"]+)"', shown)
    assert older is not None
    assert wanted in site.client.get(older[1].replace("&amp;", "&"), headers=HTML).text


def test_the_board_says_when_it_has_not_counted_all(
    site: Site, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "SHOWN", 1)
    headers = site.browser()
    for _ in range(3):
        site.pilot.cancel(submit(site, checkout, headers))
    shown = site.client.get("/", headers=HTML).text
    assert re.search(r'Failed <span class="soft">2\+</span>', shown)
    assert re.search(r'Working <span class="soft">0</span>', shown)


def test_a_form_that_is_sent_twice_submits_one_task(site: Site, checkout: Path) -> None:
    headers = site.browser()
    shown = site.client.get("/new?goal=Words&repo=/x", headers=HTML).text
    once = re.search(r'name="once" value="(\w+)"', shown)
    assert once is not None and ">Words</textarea>" in shown and 'value="/x"' in shown
    first = submit(site, checkout, headers, once=once[1])
    assert submit(site, checkout, headers, once=once[1]) == first
    assert submit(site, checkout, headers, once=once[1], goal="Other words") != first
    assert submit(site, checkout, headers) != submit(site, checkout, headers)


def test_a_page_that_is_asked_for_again_reads_only_new_events(
    site: Site, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(site, checkout, site.browser())
    read: list[int] = []
    events = site.pilot.events

    def counted(name: str, after: int = 0, limit: int | None = None) -> list[Event]:
        read.append(after)
        return events(name, after, limit)

    def lines(run_id: str) -> int:
        return site.client.get(f"/runs/{run_id}/log", headers=HTML).text.count("<li><time")

    monkeypatch.setattr(site.pilot, "events", counted)
    before, last = lines(run_id), site.pilot.run(run_id).last_seq
    site.pilot.pause(run_id)
    assert lines(run_id) > before
    assert read == [0, last]
    for _ in range(service.KnownEvents.MOST_RUNS):
        lines(submit(site, checkout, site.browser()))
    del read[:]
    lines(run_id)
    assert read == [0], "only the newest are kept"


def test_only_the_service_puts_a_notice_on_a_page(site: Site, checkout: Path) -> None:
    headers = site.browser()
    run_id = submit(site, checkout, headers)
    sent = site.client.post(f"/runs/{run_id}/pause", headers={**HTML, **headers}).headers["location"]
    said = "pauses at its next safe point"
    assert said in site.client.get(sent, headers=HTML).text
    for forged in (sent.replace("pauses", "calls"), f"/runs/{run_id}?notice=calls", f"{sent}&notice=calls"):
        assert 'class="notice"' not in site.client.get(forged, headers=HTML).text, forged
