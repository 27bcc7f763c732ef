"""The model gateway on its socket: every dialect passes through, the key stays out, and each call is metered."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from codepilot.core.events import Usage
from codepilot.models.gateway import CallRefused, Dialect
from codepilot.models.gateway.requests import examine
from codepilot.models.gateway.routes import route
from codepilot.models.gateway.server import MOST_BODY, Gateway
from codepilot.models.gateway.upstream import Upstream
from codepilot.telemetry.redact import Redactor
from model_server import KEY, Call, Cut, Garbage, Hang, HttpError, ModelServer, StreamError, TextReply, Tokens

USED = Tokens(input=1000, output=40, cached=600, written=200)
PATHS = {
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
    "gemini stream": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
MODELS = {"messages": "claude-sonnet-4-6", "responses": "gpt-5.1", "chat": "gpt-5.1"}


@dataclass
class Counted:
    """A meter that keeps its reports."""

    most_tokens: int = 10**9
    begun: list[tuple[str, Usage]] = field(default_factory=list)
    ended: list[Usage | None] = field(default_factory=list)
    resets: list[int | None] = field(default_factory=list)

    def begin(self, model: str, estimate: Usage) -> Counted:
        if estimate.tokens > self.most_tokens:
            raise CallRefused("The run's budget is spent.")
        self.begun.append((model, estimate))
        return self

    def grow(self, used: Usage) -> bool:
        return used.tokens <= self.most_tokens

    def quota_is_back(self, at_us: int | None) -> None:
        self.resets.append(at_us)

    def end(self, used: Usage | None) -> None:
        self.ended.append(used)


@contextmanager
def opened(
    server: ModelServer, meter: Counted | None = None, **options: Any
) -> Iterator[tuple[Gateway, httpx2.Client]]:
    bases: Sequence[tuple[Dialect, str]] = (
        ("anthropic", server.url),
        ("openai", f"{server.url}/v1"),
        ("gemini", server.url),
    )
    upstreams = [Upstream(dialect, url, KEY) for dialect, url in bases]
    with Gateway(upstreams, meter or Counted(), clean=Redactor(secrets=[KEY]), **options) as gateway:
        transport = httpx2.HTTPTransport(uds=str(gateway.socket))
        headers = {"authorization": f"Bearer {gateway.token}"}
        with httpx2.Client(transport=transport, base_url="http://model", headers=headers, timeout=20) as client:
            yield gateway, client


def body_of(api: str, *, stream: bool = False) -> dict[str, Any]:
    text = "Say hello."
    match api:
        case "responses":
            return {"model": MODELS[api], "input": text, "stream": stream, "max_output_tokens": 500}
        case "gemini" | "gemini stream":
            contents = [{"role": "user", "parts": [{"text": text}]}]
            return {"contents": contents, "generationConfig": {"maxOutputTokens": 500}}
        case _:
            messages = [{"role": "user", "content": text}]
            return {"model": MODELS[api], "messages": messages, "stream": stream, "max_tokens": 500}


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_every_api_passes_through_and_is_counted_and_priced(api: str, stream: bool) -> None:
    meter = Counted()
    with ModelServer([TextReply("Hello there.", tokens=USED)]) as server, opened(server, meter) as (_, client):
        reply = client.post(PATHS[api], json=body_of(api, stream=stream))
    assert reply.status_code == 200
    assert "Hell" in reply.text
    [sent] = server.requests
    keys = {name: text for name, text in sent.headers.items() if KEY in text}
    assert set(keys) <= {"x-api-key", "X-Api-Key", "Authorization", "authorization", "x-goog-api-key", "X-Goog-Api-Key"}
    assert len(keys) == 1
    [(_, estimate)] = meter.begun
    assert estimate.output_tokens == 500
    assert estimate.cost_usd > 0
    [used] = meter.ended
    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.cached_tokens) == (1800, 40, 600)
    assert used.cost_usd > 0


def test_a_reply_arrives_while_it_is_written() -> None:
    with ModelServer([TextReply("one two three four", pause_sec=0.3)]) as server, opened(server) as (_, client):
        started = time.monotonic()
        with client.stream("POST", PATHS["messages"], json=body_of("messages", stream=True)) as reply:
            times = [time.monotonic() - started for _ in reply.iter_raw()]
    assert times[0] < times[-1] - 0.5


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("POST /v1/files", "POST /v1/files"),
        ("GET /v1/messages/batches", "GET /v1/messages/batches"),
        ("POST /v1beta/models/gemini-2.5-pro:embedContent", "embedContent"),
        ("POST /v1/messages/../files", "/v1/messages/../files"),
        ("DELETE /v1/models/x", "Unsupported method"),
    ],
)
def test_what_is_not_the_model_api_is_refused_by_name(path: str, named: str) -> None:
    method, _, target = path.partition(" ")
    with ModelServer([]) as server, opened(server) as (gateway, _), socket.socket(socket.AF_UNIX) as plain:
        plain.connect(str(gateway.socket))
        head = f"{method} {target} HTTP/1.1\r\nhost: x\r\nx-api-key: {gateway.token}\r\ncontent-length: 2\r\n\r\n{{}}"
        plain.sendall(head.encode())
        with plain.makefile("r") as reading:
            answer = reading.read()
    assert answer.split(" ")[1][0] in "45"
    assert named in answer
    assert not server.requests


def test_only_the_session_s_own_key_opens_it() -> None:
    with ModelServer([]) as server, opened(server) as (_, client):
        for headers in ({"authorization": "Bearer x"}, {"x-api-key": KEY}, {"x-goog-api-key": ""}):
            assert client.post(PATHS["messages"], json=body_of("messages"), headers=headers).status_code == 401
    assert not server.requests


@pytest.mark.parametrize("api", PATHS)
def test_a_call_beyond_the_budget_is_not_made(api: str) -> None:
    meter = Counted(most_tokens=100)
    with ModelServer(["never"]) as server, opened(server, meter) as (_, client):
        reply = client.post(PATHS[api], json=body_of(api))
    assert reply.status_code == 400
    assert "budget is spent" in reply.json()["error"]["message"]
    assert not server.requests
    assert not meter.ended


def test_a_reply_that_grows_beyond_the_budget_is_cut_off() -> None:
    meter = Counted(most_tokens=1200)
    long = TextReply("word " * 3000, tokens=Tokens(input=100, output=4000))
    with ModelServer([long]) as server, opened(server, meter) as (_, client):
        reply = client.post(PATHS["messages"], json=body_of("messages", stream=True))
    assert "cut the reply off" in reply.text
    [used] = meter.ended
    assert used is not None
    assert 1000 < used.tokens < 3000


def test_what_a_provider_refuses_costs_nothing_and_is_passed_back_without_the_key() -> None:
    meter = Counted()
    refused = HttpError(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, {"retry-after": "7"})
    with ModelServer([refused]) as server, opened(server, meter) as (_, client):
        reply = client.post(PATHS["responses"], json=body_of("responses"))
    assert reply.status_code == 401
    assert reply.headers["retry-after"] == "7"
    assert KEY not in reply.text
    assert "Incorrect API key" in reply.text
    assert (meter.ended, meter.resets) == ([None], [])


def test_the_reset_that_a_provider_names_with_a_used_up_quota_is_reported() -> None:
    meter, began = Counted(), time.time()
    refused = [HttpError(429, headers={"retry-after": "3600"}), HttpError(429), HttpError(402)]
    with ModelServer(refused) as server, opened(server, meter) as (_, client):
        for _ in refused:
            client.post(PATHS["messages"], json=body_of("messages"))
    first, *others = meter.resets
    assert first is not None
    assert began + 3600 <= first / 1e6 <= time.time() + 3600
    assert others == [None, None]


def test_a_provider_that_cannot_be_reached_costs_nothing() -> None:
    meter = Counted()
    upstream = Upstream("anthropic", "http://127.0.0.1:9", KEY)
    with Gateway([upstream], meter) as gateway:
        transport = httpx2.HTTPTransport(uds=str(gateway.socket))
        with httpx2.Client(transport=transport, base_url="http://model") as client:
            reply = client.post(PATHS["messages"], json=body_of("messages"), headers={"x-api-key": gateway.token})
    assert reply.status_code == 502
    assert "cannot reach the anthropic API" in reply.json()["error"]["message"]
    assert meter.ended == [None]


@pytest.mark.parametrize("broken", [Cut("half a reply"), Garbage(), StreamError()], ids=["cut", "garbage", "error"])
def test_a_broken_reply_passes_as_it_is_and_is_charged_what_it_seems(broken: Cut | Garbage | StreamError) -> None:
    meter = Counted()
    with ModelServer([broken]) as server, opened(server, meter) as (_, client):
        try:
            client.post(PATHS["messages"], json=body_of("messages", stream=True))
        except httpx2.RemoteProtocolError:
            assert isinstance(broken, Cut)
    [used] = meter.ended
    assert used is not None
    assert used.input_tokens == 100


@pytest.mark.parametrize("answer", [Hang(60), TextReply("slow " * 100, pause_sec=1.0)], ids=["silent", "slow"])
def test_a_client_that_leaves_ends_its_call(answer: Hang | TextReply) -> None:
    meter = Counted()
    with ModelServer([answer]) as server, opened(server, meter) as (_, client):
        with pytest.raises(httpx2.ReadTimeout):
            client.post(PATHS["chat"], json=body_of("chat", stream=True), timeout=0.5)
        until = time.monotonic() + 5
        while not (meter.ended and server.hung_up) and time.monotonic() < until:
            time.sleep(0.02)
        assert server.hung_up == 1
        assert len(meter.ended) == 1


def test_closing_drops_the_calls_in_flight_and_counts_them() -> None:
    meter = Counted()
    with ModelServer([Hang(60)]) as server:
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                client.post(PATHS["messages"], json=body_of("messages"))
            except httpx2.TransportError as error:
                failed.append(error)

        with opened(server, meter) as (gateway, client):
            asking = threading.Thread(target=ask)
            asking.start()
            while not server.requests:
                time.sleep(0.01)
            started = time.monotonic()
            gateway.close()
            took = time.monotonic() - started
            asking.join()
        assert not gateway.socket.exists()
    assert failed
    assert took < 30
    assert len(meter.ended) == 1


@pytest.mark.parametrize(
    ("api", "more", "refused"),
    [
        ("messages", {"mcp_servers": [{"type": "url", "url": "https://elsewhere.example"}]}, "mcp_servers"),
        ("responses", {"background": True}, "background"),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"url": "https://x.example/?a"}}]}]},
            "url",
        ),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]},
            "image_url",
        ),
        ("gemini", {"contents": [{"parts": [{"fileData": {"fileUri": "gs://x/y"}}]}]}, "fileUri"),
    ],
)
def test_the_provider_does_nothing_elsewhere_for_a_program_inside(api: str, more: dict[str, Any], refused: str) -> None:
    with ModelServer([]) as server, opened(server) as (_, client):
        reply = client.post(PATHS[api], json={**body_of(api), **more})
    assert reply.status_code == 400
    assert repr(refused) in reply.json()["error"]["message"]
    assert not server.requests


def test_tools_that_the_provider_would_run_are_left_out() -> None:
    own = {"name": "Bash", "input_schema": {"type": "object", "properties": {"url": {"default": "https://x"}}}}
    tools = [own, {"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
    inside = [
        {"type": "mcp", "server_url": "https://x"},
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "function", "name": "f"},
    ]
    fetching = [
        {"urlContext": {}},
        {"google_search": {}},
        {"functionDeclarations": [{"name": "f"}], "codeExecution": {}},
    ]
    asked = {
        "messages": {**body_of("messages"), "tools": tools},
        "responses": {**body_of("responses"), "tools": inside, "service_tier": "priority"},
        "gemini": {**body_of("gemini"), "tools": fetching},
    }
    answers = [Call("Bash", {"command": "true"}), "done", "done"]
    with ModelServer(answers) as server, opened(server) as (_, client):
        for api, body in asked.items():
            assert client.post(PATHS[api], json=body).status_code == 200
    first, second, third = server.requests
    assert third.body["tools"] == [{"functionDeclarations": [{"name": "f"}]}]
    assert [tool["name"] for tool in first.body["tools"]] == ["Bash", "bash"]
    assert second.body["tools"] == [{"type": "function", "name": "f"}]
    assert "service_tier" not in second.body


def test_a_model_named_twice_is_the_one_that_is_charged() -> None:
    meter = Counted()
    twice = json.dumps(body_of("messages"))[:-1] + ', "model": "claude-opus-4-5"}'
    with ModelServer(["hello"]) as server, opened(server, meter) as (_, client):
        client.post(PATHS["messages"], content=twice)
    assert meter.begun[0][0] == server.requests[0].body["model"]


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /v1/messages HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /v1/messages HTTP/1.1\r\n\r\n",
        "POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        "POST /v1/messages HTTP/1.1\r\ncontent-length: 8\r\n\r\n[[[[[[[[",
    ],
)
def test_a_request_without_a_sound_body_is_refused(request_text: str) -> None:
    with ModelServer([]) as server, opened(server) as (gateway, _), socket.socket(socket.AF_UNIX) as plain:
        plain.connect(str(gateway.socket))
        plain.sendall(request_text.replace("\r\n", f"\r\nx-api-key: {gateway.token}\r\n", 1).encode())
        assert plain.recv(65536).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 "))
    assert not server.requests


def test_a_body_of_more_parts_than_memory_is_refused_before_it_is_read() -> None:
    """A list of empty lists takes twenty times its size, and minutes."""
    asked = route("POST", PATHS["messages"], {})
    assert asked is not None
    with pytest.raises(CallRefused, match="too many parts"):
        examine(asked, b'{"model": "m", "messages": [' + b"[]," * 400_000 + b"[]]}")


def test_requests_packed_by_gzip_are_read_and_bombs_are_not() -> None:
    import gzip

    with ModelServer(["hello"]) as server, opened(server) as (_, client):
        packed = gzip.compress(json.dumps(body_of("messages")).encode())
        headers = {"content-encoding": "gzip"}
        assert client.post(PATHS["messages"], content=packed, headers=headers).status_code == 200
        bomb = gzip.compress(b" " * (MOST_BODY + 1))
        assert client.post(PATHS["messages"], content=bomb, headers=headers).status_code == 413
    assert len(server.requests) == 1
