"""The client alone: which answers it asks again for, how long it waits, and what it says when it gives up."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import RemoteExecutor, RunCode
from codepilot.executor.remote_http import Ask, Http

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@dataclass
class Scripted:
    """A server that answers as it is asked, one answer after the other."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.seen.append((self.path, dict(self.headers), body))
            server.answers.pop(0)(self)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Scripted(f"http://127.0.0.1:{listening.server_port}")
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    yield server
    listening.shutdown()
    thread.join()
    listening.server_close()


def says(status: int, body: bytes = b"{}", **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def hangs_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def failure(kind: str, message: str, next_action: str = "", /, **details: object) -> bytes:
    document = {"kind": kind, "message": message, "next_action": next_action, "details": details}
    return json.dumps(document).encode()


@pytest.mark.parametrize("trouble", [says(500), says(502), says(503), says(429), hangs_up])
def test_two_bad_answers_are_forgiven(scripted, trouble):
    waits: list[float] = []
    scripted.answers = [trouble, trouble, says(200, b"well")]
    assert Http(scripted.url, None, waits.append).ask(Ask("GET", "/x")) == b"well"
    assert len(waits) == 2
    assert waits[0] < waits[1] * 3 and all(0 < wait < 1 for wait in waits)


@pytest.mark.parametrize("trouble", [says(500), hangs_up])
def test_after_three_the_executor_is_lost(scripted, trouble):
    scripted.answers = [trouble] * 3
    with pytest.raises(CodePilotError) as caught:
        Http(scripted.url, None, lambda _: None).ask(Ask("GET", "/x"))
    assert caught.value.kind is FailureKind.EXECUTOR_LOST
    assert "codepilot executor" in caught.value.failure.next_action
    assert scripted.url in caught.value.failure.message


def test_nobody_there_is_reported_with_the_address():
    with pytest.raises(CodePilotError) as caught:
        _ = RemoteExecutor("http://127.0.0.1:1", "t").level
    assert caught.value.kind is FailureKind.EXECUTOR_LOST
    assert "127.0.0.1:1" in caught.value.failure.message


def test_a_silent_service_is_asked_again(scripted):
    silent = threading.Event()
    scripted.answers = [lambda handler: (silent.wait(30), hangs_up(handler)), says(200, b"awake")]
    assert Http(scripted.url, None, lambda _: None).ask(Ask("GET", "/x", timeout_sec=0.2)) == b"awake"
    silent.set()


def test_it_waits_as_long_as_it_is_asked(scripted):
    waits: list[float] = []
    scripted.answers = [says(429, Retry_After="7"), says(503, Retry_After="100000"), says(200)]
    Http(scripted.url, None, waits.append).ask(Ask("GET", "/x"))
    assert 7 <= waits[0] <= 9
    assert waits[1] == 30.0


def test_a_busy_service_is_waited_for_longer_than_a_broken_one(scripted):
    waits: list[float] = []
    scripted.answers = [says(429, Retry_After="1") for _ in range(10)] + [says(200, b"well")]
    assert Http(scripted.url, None, waits.append).ask(Ask("GET", "/x")) == b"well"
    assert len(waits) == 10 and all(1 <= wait <= 30 for wait in waits) and len(set(waits)) > 1


def test_a_service_that_stays_busy_is_given_up(scripted):
    waits: list[float] = []
    busy = failure("executor_lost", "64 requests are waiting already")
    scripted.answers = [says(429, busy, Retry_After="1") for _ in range(200)]
    with pytest.raises(CodePilotError, match="64 requests are waiting"):
        Http(scripted.url, None, waits.append).ask(Ask("GET", "/x"))
    assert 50 <= sum(waits) <= 100
    before = len(scripted.seen)
    with pytest.raises(CodePilotError):
        Http(scripted.url, None, waits.append).ask(Ask("GET", "/x", tries=1))
    assert len(scripted.seen) == before + 1


@pytest.mark.parametrize("trouble", [says(500), says(503), hangs_up])
def test_a_stream_is_asked_for_again_until_it_comes(scripted, trouble):
    scripted.answers = [trouble, trouble, says(200, b"stream")]
    client = Http(scripted.url, None, lambda _: None)
    assert b"".join(client.chunks("/x")) == b"stream"
    scripted.answers = [says(404, failure("path_not_found", "there is none"))]
    with pytest.raises(CodePilotError, match="there is none"):
        list(client.chunks("/x"))
    scripted.answers = [trouble] * 3
    with pytest.raises(CodePilotError):
        list(client.chunks("/x"))


def test_a_stream_that_falls_silent_is_lost(scripted):
    silent = threading.Event()

    def begins(handler: http.server.BaseHTTPRequestHandler) -> None:
        says(200, b"some", Content_Length="100")(handler)
        silent.wait(30)
        hangs_up(handler)

    scripted.answers = [begins]
    stream = Http(scripted.url, None).chunks("/x", silent_sec=0.2)
    assert next(stream) == b"some"
    with pytest.raises(CodePilotError) as caught:
        next(stream)
    silent.set()
    assert caught.value.kind is FailureKind.EXECUTOR_LOST


def test_a_stream_that_breaks_off_is_not_taken_for_whole(scripted):
    scripted.answers = [lambda handler: (says(200, b"some", Content_Length="100")(handler), hangs_up(handler))]
    with pytest.raises(CodePilotError) as caught:
        list(Http(scripted.url, None).chunks("/x"))
    assert caught.value.kind is FailureKind.EXECUTOR_LOST


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 507])
def test_a_refusal_is_final_and_arrives_whole(scripted, status):
    scripted.answers = [says(status, failure("path_not_found", "there is none", "Look.", message="m", kind="k"))]
    with pytest.raises(CodePilotError) as caught:
        Http(scripted.url, None).ask(Ask("GET", "/x"))
    reported = caught.value.failure
    assert (reported.kind, reported.message, reported.next_action) == (
        FailureKind.PATH_NOT_FOUND,
        "there is none",
        "Look.",
    )
    assert reported.details == {"message": "m", "kind": "k"}


def test_every_try_is_the_same_request(scripted):
    answer = b'{"status": "ok"}'
    scripted.answers = [says(500), hangs_up, says(200, answer)]
    RemoteExecutor(scripted.url, "a-token").run_code(RunCode(workspace="w", code="1"))
    bodies = {body for _, _, body in scripted.seen}
    ids = {headers["X-Request-Id"] for _, headers, _ in scripted.seen}
    assert (len(scripted.seen), len(bodies), len(ids)) == (3, 1, 1)
    assert json.loads(bodies.pop())["idempotency_key"]
    assert {headers["Authorization"] for _, headers, _ in scripted.seen} == {"Bearer a-token"}


def test_a_connection_is_kept_and_a_stale_one_costs_no_try(scripted):
    def once(handler: http.server.BaseHTTPRequestHandler) -> None:
        says(200)(handler)
        handler.close_connection = True

    waits: list[float] = []
    client = Http(scripted.url, None, waits.append)
    ports: list[int] = []
    noting = lambda handler: (ports.append(handler.client_address[1]), says(200)(handler))  # noqa: E731
    scripted.answers = [noting, noting, once, noting]
    for _ in range(4):
        client.ask(Ask("GET", "/x"))
    client.close()
    assert ports[0] == ports[1] != ports[2]
    assert waits == []


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "127.0.0.1:80", "http://", "http://u:p@x", "http://:p@x", "http://@x", "http://x:99999"]
)
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(CodePilotError) as caught:
        RemoteExecutor(url)
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert ":p" not in str(caught.value)


def test_a_token_that_no_header_takes_is_refused():
    with pytest.raises(CodePilotError) as caught:
        RemoteExecutor("http://127.0.0.1:1", "secret\nX: y")
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert "secret" not in str(caught.value)
