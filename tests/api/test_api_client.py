"""`codepilot.client.Client` has the façade's methods, and passes on the service's messages."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from api_kit import Site

from codepilot.client import Client
from codepilot.client.http import Http
from codepilot.client.sending import unpack_bundle
from codepilot.core.access import Scope
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Request
from configured import configured


@pytest.fixture
def client(site: Site, tmp_path: Path) -> Client:
    settings = configured({"CODEPILOT_HOME": str(tmp_path / "elsewhere")})
    token = site.pilot.create_token("ann", Scope.OPERATOR).secret
    return Client("http://127.0.0.1", token, settings=settings, transport=site.client._transport)


def test_a_checkout_is_sent_and_its_run_read(site: Site, client: Client, checkout: Path) -> None:
    (checkout / "draft.txt").write_text("only here")
    run = client.submit(Request(repo=str(checkout), prompt="area multiplies", elsewhere=True), "ci-1")
    again = client.submit(Request(repo=str(checkout), prompt="area multiplies", elsewhere=True), "ci-1")
    assert again.run_id == run.run_id
    here = site.pilot.run(run.run_id)
    assert here == run
    assert here.task.repo == "sent:shapes" and here.task.public_hosts_only
    assert here.base is not None and here.base.checkout is None and here.base.dirty
    assert [row.run_id for row in client.runs()] == [run.run_id]
    assert client.activities(run.run_id) == site.pilot.activities(run.run_id)
    assert client.report(run.run_id).run_id == run.run_id
    assert client.find(run.run_id[:-2]) == run.run_id
    assert client.pause().state == "PAUSED"
    assert [event.type for event in client.follow()] == [event.type for event in site.pilot.events()]
    assert client.resume().state == "INIT"
    assert client.cancel(run.run_id).state == "ABORTED"
    assert client.fork(run.run_id, 2).run_id != run.run_id
    assert client.approvals() == [] and client.diff(run.run_id) == b""
    assert client.workers() == []


def test_a_sent_base_is_its_senders(site: Site, client: Client, checkout: Path) -> None:
    client.submit(Request(repo=str(checkout), prompt="area multiplies", elsewhere=True))
    base = site.pilot.run().base
    assert base is not None
    task = {
        "goal": "x",
        "name": "../../etc",
        "base": {"repository": "0" * 16, "commit": base.commit, "commitTree": base.commit_tree, "tree": base.tree},
    }
    answer = site.client.post("/v1/tasks", json=task, headers=site.as_(Scope.OPERATOR, "bob"))
    assert (answer.status_code, "missing" in answer.json()["detail"]) == (422, True)
    for more in ({"kind": "build"}, {"sandbox_level": "none"}, {"approved_hosts": ["a.test"]}, {"branch": "x"}):
        refused = site.client.post("/v1/tasks", json={**task, **more}, headers=site.as_(Scope.OPERATOR, "bob"))
        assert refused.status_code == 422, more


def test_a_wrong_stream_changes_nothing(site: Site) -> None:
    headers = {**site.as_(Scope.OPERATOR), "Content-Type": "application/octet-stream"}
    tree = "0" * 64
    answer = site.client.put(f"/v1/bases/{'0' * 16}/{tree}", content=b"nonsense", headers=headers)
    assert 400 <= answer.status_code < 500
    assert site.client.get(f"/v1/bases/{'0' * 16}/{tree}", headers=headers).json()["present"] is False


def test_failures_keep_their_kind_and_advice(site: Site, client: Client) -> None:
    with pytest.raises(CodePilotError, match="no run") as missing:
        client.run("r-none")
    assert missing.value.kind is FailureKind.INVALID_SPEC
    stranger = Client("http://127.0.0.1", "cpt_wrong", transport=site.client._transport)
    with pytest.raises(CodePilotError) as refused:
        stranger.runs()
    assert "CODEPILOT_TOKEN" in refused.value.failure.advice
    with pytest.raises(CodePilotError, match="does not answer") as away:
        Client("http://127.0.0.1:1", "t").runs()
    assert away.value.kind is FailureKind.STORE_UNAVAILABLE


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a@b", "http://service.test", "http://a/?token=x"])
def test_an_address_that_is_none_or_not_safe_is_refused(url: str) -> None:
    with pytest.raises(CodePilotError):
        Http(url, "t")
    assert Http("http://service.test", "t", plain_http=True).url == "http://service.test"


@pytest.mark.parametrize("answer", [httpx2.Response(302), httpx2.Response(200, text="<html>Sign in</html>")])
def test_a_page_in_front_of_a_service_is_named(answer: httpx2.Response) -> None:
    with Client("http://127.0.0.1", "t", transport=httpx2.MockTransport(lambda request: answer)) as client:
        with pytest.raises(CodePilotError, match=r"answered 302|is no CodePilot service"):
            client.locks()
        with pytest.raises(CodePilotError, match="nowhere else"):
            client._http.read("https://elsewhere.example/x")


def test_a_bundle_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CodePilotError, match="can be read"):
        unpack_bundle(b"PK no zip", tmp_path, "r-1")
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_is_unpacked_where_it_belongs(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("r-1/patch.diff", "r-1/../../escape", "/absolute", "other/x"):
            archive.writestr(name, "x")
    unpack_bundle(packed.getvalue(), tmp_path, "r-1")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["r-1", "r-1/patch.diff"]


def test_the_client_has_the_facades_methods(open_site: Callable[..., Site]) -> None:
    names = "submit run runs events follow pause resume cancel fork approvals decide_approval audit diff review apply"
    more = "artifacts workers report log feedback analytics memory policy policy_explain verify timeline"
    for name in f"{names} {more}".split():
        assert callable(getattr(Client, name)) and callable(getattr(type(open_site().pilot), name))


def test_figures_and_policy_are_those_of_the_service(site: Site, client: Client, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    site.pilot.remember("tests need TZ=UTC", str(checkout))
    assert client.analytics() == site.pilot.analytics()
    assert client.feedback(run_id) == site.pilot.feedback(run_id)
    assert client.memory("quirk") == site.pilot.memory("quirk") != []
    assert client.policy() == site.pilot.policy(None)
    assert client.policy_explain(["git", "push"]) == site.pilot.policy_explain(["git", "push"], None)
    site.pilot.pause(run_id)
    assert client.resume(run_id, limits={"iterations": 9}).limits == {"iterations": 9}


def test_a_change_is_reviewed_and_its_bundle_verified_from_afar(site: Site, client: Client, checkout: Path) -> None:
    run_id = site.submit(checkout).json()["runId"]
    site.pilot.work(run_id)
    assert client.verify(run_id, repo=checkout).ok
    taken = client.review(run_id, reject=["test_shapes.py"], reason={"test_shapes.py": "not needed"})
    rejected = [one for one in taken["decisions"] if one["decision"] == "rejected"]
    assert {one["reason"] for one in rejected} == {"not needed"}
    assert [step.status for step in site.pilot.steps(taken["judgedBy"])] == ["PENDING"], "any worker may take it"
