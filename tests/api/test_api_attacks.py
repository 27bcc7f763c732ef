"""Attacks on the service: credentials, forms of other sites, paths, repository URLs, and secrets in its log."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest
from api_kit import COOKIE, Site, ask
from fastapi.routing import APIRoute

from codepilot.api import live
from codepilot.api.pages import ROUTERS as PAGES
from codepilot.api.problems import Refused
from codepilot.api.routes import events
from codepilot.core.access import Principal, Scope
from codepilot.core.failures import CodePilotError
from codepilot.workspace.addresses import check_public

FREE = {"/healthz", "/readyz", "/login", "/static/style.css", "/static/dashboard.js", "/static/icon.svg"}


def routes(site: Site) -> list[tuple[str, str]]:
    document = site.client.app.openapi()  # type: ignore[attr-defined]
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]


def filled(path: str) -> str:
    for name in ("run_id", "task_id", "approval_id", "name", "tree", "action"):
        path = path.replace(f"{{{name}}}", "x")
    return path


def test_nothing_is_answered_without_valid_credentials(site: Site) -> None:
    revoked = site.pilot.create_token("old", Scope.ADMIN)
    site.pilot.revoke_token("old")
    expired = site.pilot.create_token("late", Scope.ADMIN, days=1e-9)
    session = site.pilot.log_in(site.pilot.login_link())
    link = site.pilot.login_link()
    foreign = f"cpt_{'0' * 12}_{'A' * 43}"
    assert session is not None
    for given in (
        {},
        {"Authorization": f"Bearer {revoked.secret}"},
        {"Authorization": f"Bearer {expired.secret}"},
        {"Authorization": f"Bearer {foreign}"},
        {"Authorization": f"Bearer {session.secret}"},
        {"Authorization": f"Bearer {link}"},
        {"Authorization": "Basic YTpi"},
        {"Cookie": f"{COOKIE}={foreign}"},
        {"X-Forwarded-User": "owner"},
    ):
        for method, path in routes(site):
            if path in FREE:
                continue
            site.client.app.state.service.limits._buckets.clear()  # type: ignore[attr-defined]
            answer = site.client.request(method, filled(path), headers=given)
            assert answer.status_code == 401, (method, path, given, answer.text)
            assert set(answer.json()) == {
                "type",
                "title",
                "status",
                "detail",
                "kind",
                "nextAction",
                "requestId",
                "errors",
            }


def pages(method: str) -> list[str]:
    """The paths of pages and forms, which are not in the API's description."""
    every = [one for router in PAGES for one in router.routes if isinstance(one, APIRoute)]
    return [filled(one.path) for one in every if method in one.methods and one.path not in FREE]


def test_no_page_is_shown_without_a_session(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    found = pages("GET")
    assert len(found) > 12 and "/runs/x/diff" in found
    for path in found:
        site.client.app.state.service.limits._buckets.clear()  # type: ignore[attr-defined]
        answer = site.client.get(path.replace("/x", f"/{run_id}"), headers={"Accept": "text/html"})
        assert answer.status_code == (404 if path.startswith("/answer/") else 401), path
        assert "area multiplies" not in answer.text


def test_no_form_is_taken_without_its_token(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    before = len(site.pilot.events(run_id))
    site.browser()
    found = [path for path in pages("POST") if not path.startswith("/answer/")]
    assert {"/new", "/runs/x/review", "/runs/x/x", "/logout"} <= set(found)
    for path in found:
        for form in ({}, {"csrf": "0" * 64}):
            answer = site.client.post(path.replace("/x", f"/{run_id}"), data=form, headers={"Accept": "text/html"})
            assert answer.status_code == 403, path
    assert len(site.pilot.events(run_id)) == before and site.client.get("/v1/me").status_code == 200


def test_no_form_is_taken_from_a_viewer(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    before = len(site.pilot.events(run_id))
    site.client.get("/login", params={"link": site.pilot.login_link("vic", Scope.VIEWER)})
    csrf = site.client.get("/v1/me").json()["csrfToken"]
    for path in pages("POST"):
        if path.startswith("/answer/") or path == "/logout":
            continue
        action = path.replace("/x/x", f"/{run_id}/cancel").replace("/x", f"/{run_id}")
        answer = site.client.post(action, data={"csrf": csrf}, headers={"Accept": "text/html"})
        assert answer.status_code == 403, action
    assert len(site.pilot.events(run_id)) == before


def test_signing_in_leads_to_the_page_that_was_wanted(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    wanted = f"/runs/{run_id}/diff?view=split"
    refused = site.client.get(wanted, headers={"Accept": "text/html"})
    assert refused.status_code == 401 and f'name="next" value="{wanted}"' in refused.text
    token = site.pilot.create_token("ann", Scope.VIEWER).secret
    wrong = site.client.post("/login", data={"token": "x", "next": wanted})
    assert wrong.status_code == 401 and f'name="next" value="{wanted}"' in wrong.text
    assert f'content="0; url={wanted}"' in site.client.post("/login", data={"token": token, "next": wanted}).text


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "/\t/evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        " //evil.example",
        "/\n//evil.example",
        '/"><script>',
        "/login?link=x",
        "/logout",
        "/ü",
    ],
)
def test_signing_in_leads_to_no_other_site(site: Site, place: str) -> None:
    token = site.pilot.create_token("ann", Scope.VIEWER).secret
    shown = site.client.post("/login", data={"token": token, "next": place}).text
    leads = re.search(r'http-equiv="refresh" content="0; url=([^"]*)"', shown)
    assert leads is not None and leads[1] == "/"


def revoke_once_streaming(site: Site, credential_id: str) -> None:
    deadline = time.monotonic() + 60
    while not site.client.app.state.service.live._streams and time.monotonic() < deadline:  # type: ignore[attr-defined]
        time.sleep(0.01)
    site.pilot.revoke_token(credential_id)


def test_a_stream_ends_with_its_credentials(site: Site, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RECHECK_SEC", 0.0)
    monkeypatch.setattr(live, "HEARTBEAT_SEC", 0.1)
    run_id = site.submit(checkout).json()["runId"]
    token = site.pilot.create_token("ann", Scope.VIEWER)
    headers = {"Authorization": f"Bearer {token.secret}", "Accept": "text/event-stream"}
    for path in (f"/v1/runs/{run_id}/events", f"/v1/runs/{run_id}/logs/run.jsonl", "/v1/runs/changes"):
        revoking = threading.Thread(target=revoke_once_streaming, args=(site, token.credential.credential_id))
        revoking.start()
        answer = site.client.get(path, headers=headers)
        revoking.join()
        assert answer.status_code == 200
        assert site.client.app.state.service.live._streams == 0  # type: ignore[attr-defined]
        token = site.pilot.create_token("ann", Scope.VIEWER)
        headers["Authorization"] = f"Bearer {token.secret}"


def test_one_user_leaves_streams_to_the_others(site: Site) -> None:
    followed = live.LiveRuns(site.pilot, 4)
    with ExitStack() as held:
        for _ in range(3):
            followed.refuse_if_full("ann")
            held.enter_context(followed.counted("ann"))
        with pytest.raises(Refused, match="ann has 3 live streams open"):
            followed.refuse_if_full("ann")
        followed.refuse_if_full("bea")
    followed.refuse_if_full("ann")


def test_a_guesser_is_slowed_down(open_site: Callable[..., Site]) -> None:
    site = open_site(service={"requests_per_min": 60})
    codes = [site.client.get("/v1/me", headers={"Authorization": "Bearer x"}).status_code for _ in range(8)]
    assert codes[-1] == 429


def test_scopes_are_a_ladder(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    viewer, operator = site.as_(Scope.VIEWER, "vic"), site.as_(Scope.OPERATOR, "olga")
    assert site.client.get(f"/v1/runs/{run_id}", headers=viewer).status_code == 200
    changing = [(method, path) for method, path in routes(site) if method != "GET"]
    assert len(changing) > 12
    for method, path in changing:
        path = filled(path.replace("{run_id}", run_id))
        answer = site.client.request(method, path, headers=viewer, json={"decision": "once"})
        assert (answer.status_code, answer.json()["kind"]) == (403, "denied"), (method, path)
    assert site.client.post(f"/v1/runs/{run_id}/apply", headers=operator).status_code == 403
    for more in (
        {"repoUrl": str(checkout)},
        {"repoUrl": f"file://{checkout}"},
        {"repoUrl": "https://github.com/a/b", "python": "/usr/bin/python3"},
        {"repoUrl": "https://github.com/a/b", "agent": "codeact", "model": "openai-compatible:http://evil.test#m"},
    ):
        answer = site.client.post("/v1/tasks", json={"prompt": "x", **more}, headers=operator)
        assert answer.status_code in (403, 422), more
    for name in ("model", "fallback_model", "fallbackModel"):
        for kind in ("scripted", "replay"):
            task = {"prompt": "x", "repoUrl": "https://github.com/a/b", "agent": "codeact", name: f"{kind}:/etc/passwd"}
            answer = site.client.post("/v1/tasks", json=task, headers=operator)
            assert (answer.status_code, "root:" in answer.text) == (403, False), "a file of the server is looked at"


def test_forms_of_other_sites_do_nothing(site: Site, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    headers = site.browser()
    stop = f"/v1/runs/{run_id}/pause"
    other = site.pilot.log_in(site.pilot.login_link("mallory", Scope.VIEWER))
    assert other is not None
    theirs = {"Cookie": f"{COOKIE}={other.secret}"}
    foreign = site.client.get("/v1/me", headers=theirs).json()["csrfToken"]
    for refused in (
        {},
        {"X-CSRF-Token": "0" * 64},
        {"X-CSRF-Token": foreign},
        {**headers, "Sec-Fetch-Site": "cross-site"},
    ):
        assert site.client.post(stop, headers=refused).status_code == 403
    assert site.pilot.run(run_id).state == "INIT"
    assert site.client.post(stop, headers=headers).status_code == 202
    cross = {"Sec-Fetch-Site": "cross-site"}
    token = site.pilot.create_token("ann", Scope.ADMIN).secret
    assert site.client.post("/login", data={"token": token}, headers=cross).status_code == 403


def test_a_link_from_another_site_signs_in_only_by_hand(site: Site) -> None:
    link = site.pilot.login_link("mallory", Scope.ADMIN)
    asked = site.client.get("/login", params={"link": link}, headers={"Sec-Fetch-Site": "cross-site"})
    assert asked.status_code == 200 and "set-cookie" not in asked.headers
    assert "Another site led you" in asked.text and f'value="{link}"' in asked.text
    assert site.client.get("/v1/me").status_code == 401
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert site.client.post("/login", data={"link": link}, headers=cross).status_code == 403
    assert site.client.post("/login", data={"link": link}).status_code == 200
    assert site.client.get("/v1/me").json()["name"] == "mallory"


def test_a_session_is_a_strict_cookie_and_ends(site: Site) -> None:
    link = site.pilot.login_link()
    answer = site.client.get("/login", params={"link": link})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert site.client.get("/v1/me").json()["name"] == "owner"
    assert site.client.get("/login", params={"link": link}).status_code == 401
    token = {"X-CSRF-Token": site.client.get("/v1/me").json()["csrfToken"]}
    secret = site.client.cookies[COOKIE]
    assert site.client.post("/logout", headers=token).status_code == 303
    assert site.client.get("/v1/me", headers={"Cookie": f"{COOKIE}={secret}"}).status_code == 401


def test_the_audit_says_who_got_access(site: Site) -> None:
    site.pilot.create_token("ann", Scope.OPERATOR)
    site.pilot.revoke_token("ann")
    site.client.get("/login", params={"link": site.pilot.login_link()})
    entries = site.client.get("/v1/audit").json()["entries"]
    seen = [(one["decision"], one["operation"], one["by"]) for one in entries if one["what"] == "access"]
    assert seen == [("create", "token", "ann"), ("revoke", "token", "ann"), ("sign in", "session", "owner")]
    assert "operator until" in entries[0]["subject"]
    assert "sign in" in site.client.get("/audit", headers={"Accept": "text/html"}).text


def test_a_revoked_token_ends_the_sessions_it_began(site: Site) -> None:
    began = site.pilot.log_in_with_token(site.pilot.create_token("ann", Scope.ADMIN).secret)
    other = site.pilot.log_in_with_token(site.pilot.create_token("bob", Scope.ADMIN).secret)
    assert began is not None and other is not None
    site.pilot.revoke_token("ann")
    for session, status in ((began, 401), (other, 200)):
        assert site.client.get("/v1/me", headers={"Cookie": f"{COOKIE}={session.secret}"}).status_code == status


def test_a_proxy_is_trusted_only_where_it_is(open_site: Callable[..., Site]) -> None:
    given = {"X-Forwarded-User": "zoe"}
    far = open_site(service={"trusted_header": "X-Forwarded-User", "trusted_proxies": ["10.9.9.9"]})
    assert far.client.get("/v1/me", headers=given).status_code == 401
    near = open_site(service={"trusted_header": "X-Forwarded-User", "trusted_proxies": ["testclient"]})
    me = near.client.get("/v1/me", headers=given).json()
    assert (me["name"], me["scope"], me["by"]) == ("zoe", "operator", "proxy")
    assert near.client.post("/v1/runs/x/cancel", headers=given).status_code == 403
    csrf = {**given, "X-CSRF-Token": me["csrfToken"]}
    assert near.client.post("/v1/runs/x/cancel", headers=csrf).status_code == 404


def test_signed_links_open_one_artifact(site: Site) -> None:
    expires, signature = site.pilot.sign_until("artifact", 60, "r-1", "a-x")
    past, late = site.pilot.sign_until("artifact", -1, "r-1", "a-x")
    other = site.pilot.sign("artifact", str(expires), "r-2", "a-x")
    for query in (
        {"expires": expires + 1, "signature": signature},
        {"expires": past, "signature": late},
        {"expires": expires, "signature": other},
        {"expires": expires, "signature": site.pilot.sign("csrf", str(expires), "r-1", "a-x")},
    ):
        assert site.client.get("/v1/runs/r-1/artifacts/a-x", params=query).status_code == 403
    good = {"expires": expires, "signature": signature}
    assert site.client.get("/v1/runs/r-1/artifacts/a-x", params=good).status_code == 404


@pytest.mark.parametrize("part", ["../../../etc/passwd", "..%2f..%2fcodepilot.db", "%2e%2e/x", "x%00", "a\\..\\b"])
def test_paths_lead_nowhere(site: Site, checkout: Path, part: str) -> None:
    run_id, headers = site.submit(checkout).json()["runId"], site.as_()
    for path in (
        f"/v1/runs/{run_id}/logs/{part}",
        f"/v1/runs/{run_id}/artifacts/{part}",
        f"/v1/runs/{part}",
        f"/static/{part}",
        f"/v1/runs/{run_id}/diff?path={part}",
    ):
        assert site.client.get(path, headers=headers).status_code == 404


@pytest.mark.parametrize("place", ['[Infinity,"x"]', '[1,"\\ud800"]', '[1,"\\u0000"]', "[[1],2]"])
def test_a_cursor_of_nobody_is_refused(site: Site, place: str) -> None:
    cursor = base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")
    assert site.client.get(f"/v1/runs?cursor={cursor}", headers=site.as_()).status_code == 404
    assert site.client.get(f"/runs?before={cursor}", headers=site.as_()).status_code == 404


def test_odd_fields_of_forms_are_refused(site: Site, checkout: Path) -> None:
    run_id, headers = site.submit(checkout).json()["runId"], site.browser()
    for fields in ({"run": "x" * 300, "onto": "b"}, {"run": "", "onto": "b"}):
        assert site.client.post("/landing", data=fields, headers=headers).status_code == 422
    assert site.client.post("/new", data={"repo": "x" * 5000}, headers=headers).status_code == 422
    assert site.client.post(f"/runs/{run_id}/fork", data={"at": "9" * 5000}, headers=headers).status_code == 303


def test_a_run_that_cannot_be_read_ends_no_other_stream(site: Site, checkout: Path) -> None:
    damaged, other = (site.submit(checkout).json()["runId"] for _ in range(2))
    last = site.pilot.run(other).last_seq

    async def watch() -> bytes:
        runs = live.LiveRuns(site.pilot, 9)
        streams = [runs.run_events(run_id, last) for run_id in (damaged, other)]
        for stream in streams:
            await anext(stream)
        while any(channel.base is None for channel in runs._channels.values()):
            await asyncio.sleep(0.01)
        with sqlite3.connect(site.pilot.settings.home.path / "codepilot.db") as database:
            database.execute(
                "INSERT INTO events VALUES (?, ?, 1, 'nonsense', NULL, 1, '{}', '[]')", [damaged, last + 1]
            )
            database.execute("UPDATE runs SET last_seq = last_seq + 1 WHERE run_id = ?", [damaged])
        site.pilot.pause(other, by="ann")
        found = await asyncio.wait_for(anext(streams[1]), live.HEARTBEAT_SEC)
        runs.close()
        for stream in streams:
            await stream.aclose()
        return found

    assert asyncio.run(watch()).startswith(f"id: {last + 1}".encode())


INSIDE = [
    "http://127.0.0.1/a",
    "https://localhost/a.git",
    "https://[::1]/a",
    "https://[::ffff:127.0.0.1]/a",
    "https://[64:ff9b::7f00:1]/a",
    "https://[2002:7f00:1::]/a",
    "http://169.254.169.254/latest/meta-data",
    "http://[fd00:ec2::254]/a",
    "https://100.100.100.200/a",
    "http://192.0.0.192/opc/v2",
    "http://168.63.129.16/machine",
    "http://192.88.99.1/a",
    "http://[fec0::1]/a",
    "http://[3fff::1]/a",
    "http://[::ffff:0:7f00:1]/a",
    "https://10.1.2.3/a",
    "http://2130706433/a",
    "http://0x7f.1/a",
    "http://0/a",
    "ssh://git@192.168.1.1/a",
    "git@172.16.0.1:a.git",
    "git://93.184.216.34/a",
    "file:///etc",
    "ext::sh -c id",
    "https://good.example\\@127.0.0.1/a",
    "https://user:password@10.0.0.1/a",
    "https://a..b/",
    "https://-oProxyCommand=id/a",
]


@pytest.mark.parametrize("url", INSIDE)
def test_a_repository_url_reaches_no_private_address(site: Site, url: str) -> None:
    with pytest.raises(CodePilotError):
        check_public(url)
    answer = site.client.post("/v1/tasks", json={"prompt": "x", "repoUrl": url}, headers=site.as_(Scope.OPERATOR))
    assert answer.status_code in (403, 409, 422)
    assert site.pilot.runs() == []


def test_a_name_is_checked_where_it_leads_and_held_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"two.test": ["93.184.216.34", "127.0.0.1"], "good.test": ["93.184.216.34", "2606:2800:220:1::1"]}

    def resolve(host: str, port: int, **more: object) -> list[tuple[object, ...]]:
        return [(2, 1, 6, "", (address, port)) for address in answers[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(CodePilotError, match="not a public host"):
        check_public("https://two.test/a")
    assert check_public("https://two.test/a", ("two.test",)) is None
    pinned = check_public("https://good.test:8443/a.git")
    assert pinned is not None
    options = pinned.git_options()
    assert "http.followRedirects=false" in options
    assert "http.curloptResolve=good.test:8443:93.184.216.34,[2606:2800:220:1::1]" in options
    assert "HostName=93.184.216.34" in pinned.ssh_command()


def test_tokens_and_links_are_in_no_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token, link = site.pilot.create_token("ann", Scope.ADMIN).secret, site.pilot.login_link()
    site.client.get("/login", params={"link": link})
    session = site.client.cookies[COOKIE]
    site.client.post("/login", data={"token": token})
    site.client.get(f"/v1/runs/{token}", headers={"Authorization": f"Bearer {token}"})
    logged = caplog.text
    assert "GET /login" in logged
    assert token not in site.pilot.settings.redact(logged)
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("codepilot"))
    for secret in (token, link, session):
        assert secret not in ours


EVIL = "\"><img src=x onerror=alert(1)><script>alert(1)</script>'"


def test_text_of_a_run_is_escaped_on_every_page(site: Site, checkout: Path) -> None:
    name = "<img src=x>.py"
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    diff = f"{head}@@ -0,0 +1 @@ {EVIL}\n+# {EVIL}\n"
    task = {
        "kind": "prove",
        "goal": EVIL,
        "proposed": {"diff": diff},
        "repo": str(checkout),
    }
    run_id = site.client.post("/v1/tasks", json=task, headers=site.as_()).json()["runId"]
    site.pilot.work(run_id)
    waiting = site.submit(checkout, prompt=EVIL, constraints=[EVIL]).json()["runId"]
    ask(site, waiting, operation="command", details=EVIL, reasons=(EVIL,), snippet=EVIL)
    site.browser()
    paths = ["/", "/runs", "/approvals", "/audit", "/analytics", "/workers", f"/compare?a={run_id}&b={waiting}"]
    paths += [f"/runs/{one}{part}" for one in (run_id, waiting) for part in ("", "/diff", "/diff?view=split", "/log")]
    paths += [
        f"/runs?q={quote(EVIL)}",
        f"/runs/{run_id}?notice={quote(EVIL)}",
        f"/nowhere/{quote(EVIL)}",
        f"/new?kind={quote(EVIL)}",
    ]
    for path in paths:
        page = site.client.get(path, headers={"Accept": "text/html"})
        assert "<img" not in page.text and "<script>" not in page.text, path
        assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "&lt;img src=x&gt;.py" in site.client.get(f"/runs/{run_id}/diff", headers={"Accept": "text/html"}).text


def test_scope_order() -> None:
    who = Principal(name="x", scope=Scope.OPERATOR, by="token")
    assert who.scope.allows(Scope.VIEWER) and not who.scope.allows(Scope.ADMIN)
