"""A scripted model provider on loopback, for real SDKs: Anthropic's Messages and OpenAI's chat completions, streamed.

    with ModelServer(["Hello", Call("python", {"code": "1 + 1"}), HttpError(529), Cut("half a re")]) as server:
        model = make_model("anthropic:claude-sonnet-4-6", environ=server.environ)

A script is a list of answers, given one after another, or a function of the request. Requests are recorded.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

KEY = "sk-test-0123456789abcdefghijkl"
PIECE = 7
"""How many characters come at once, so that words and JSON arrive in fragments."""


@dataclass(frozen=True)
class Tokens:
    """`input` is what was read anew; what the cache held or took in is beside it."""

    input: int = 100
    output: int = 10
    cached: int = 0
    written: int = 0


@dataclass(frozen=True)
class Said:
    """Text, and why it ends: `end`, `length` or `refusal`. `pause_sec` passes before each piece.

    Without `tokens`, nothing is counted, as some compatible servers do it.
    """

    text: str
    stop: str = "end"
    tokens: Tokens | None = Tokens()
    pause_sec: float = 0.0


@dataclass(frozen=True)
class Call:
    """A tool call; arguments given as text are sent as they are, JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str
    text: str = ""
    stop: str = "tool_use"
    tokens: Tokens = Tokens()
    pause_sec: float = 0.0


@dataclass(frozen=True)
class HttpError:
    """A refusal. Without a body it says what the provider says with that status."""

    status: int
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """Some text, and then the connection is gone; `politely` ends the stream as if that had been all."""

    text: str
    politely: bool = False


@dataclass(frozen=True)
class Garbage:
    """A stream that is not what the API promises."""

    data: str = "{not json"


@dataclass(frozen=True)
class StreamError:
    """An error that comes after the reply has begun."""

    type: str = "overloaded_error"
    message: str = "Overloaded"


Answer = str | Said | Call | HttpError | Cut | Garbage | StreamError


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    api: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    number: int

    @property
    def text(self) -> str:
        """Everything in it, to look for words."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def last(self) -> str:
        """What the last message says."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "\n".join(str(block.get("text") or block.get("content") or "") for block in content)


Script = Sequence[Answer] | Callable[[Request], Answer]


class ModelServer:
    """Serves while it is entered; `requests` has what came, `hung_up` counts clients that left before the end."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[Request] = []
        self.hung_up = 0

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environ(self) -> dict[str, str]:
        """What makes a process talk to this server in place of the providers."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": KEY,
            "NO_PROXY": "127.0.0.1",
        }

    @property
    def compatible(self) -> str:
        """This server as `openai-compatible:URL#NAME`."""
        return f"openai-compatible:{self.url}/v1#local"

    def answer(self, api: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        with self._lock:
            request = Request(api, path, headers, body, len(self.requests))
            self.requests.append(request)
            if callable(self._script):
                return self._script(request)
            if request.number < len(self._script):
                return self._script[request.number]
        return HttpError(400, {"error": {"message": f"the script has {len(self._script)} answers"}})

    def wait(self, seconds: float) -> None:
        self._closing.wait(seconds)


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                self.close_connection = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api = "anthropic" if self.path.endswith("/messages") else "openai"
            answer = server.answer(api, self.path, dict(self.headers.items()), body)
            try:
                self._give(api, str(body.get("model")), answer)
            except (BrokenPipeError, ConnectionResetError):
                server.hung_up += 1
                self.close_connection = True

        def _give(self, api: str, model: str, answer: Answer) -> None:
            if isinstance(answer, HttpError):
                self._refuse(api, answer)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in _WIRES[api](model, Said(answer) if isinstance(answer, str) else answer):
                if isinstance(event, float):
                    self._linger(event)
                elif event is None:
                    self.close_connection = True
                    return
                else:
                    self._chunk(event.encode())
            self._chunk(b"")

        def _linger(self, seconds: float) -> None:
            """Wait like a slow model, and notice a client that does not."""
            until = time.monotonic() + seconds
            self.connection.setblocking(False)
            try:
                while (left := until - time.monotonic()) > 0:
                    try:
                        if not self.connection.recv(1):
                            raise ConnectionResetError
                    except BlockingIOError:
                        server.wait(min(0.02, left))
            finally:
                self.connection.setblocking(True)

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def _refuse(self, api: str, answer: HttpError) -> None:
            said = answer.body if answer.body is not None else _usual_error(api, answer.status)
            body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "text/plain" if isinstance(said, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _usual_error(api: str, status: int) -> dict[str, Any]:
    kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error", 500: "api_error"}
    return {"type": "error", "error": {"type": kinds.get(status, "error"), "message": f"scripted {status} of {api}"}}


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _sse(data: Mapping[str, Any] | str, name: str | None = None) -> str:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def _anthropic(model: str, answer: Answer) -> Iterator[str | float | None]:
    """Events, pauses in seconds, and None where the connection breaks."""

    def event(kind: str, **fields: Any) -> str:
        return _sse({"type": kind, **fields}, kind)

    tokens = getattr(answer, "tokens", None) or Tokens()
    usage = {
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.written,
        "output_tokens": 1,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    yield event("ping")
    if isinstance(answer, Garbage):
        yield _sse(answer.data, "content_block_start")
        return
    if isinstance(answer, StreamError):
        yield event("error", error={"type": answer.type, "message": answer.message})
        return
    assert not isinstance(answer, str | HttpError)
    index = 0
    if answer.text:
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in _pieces(answer.text):
            yield getattr(answer, "pause_sec", 0.0)
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        index = 1
    if isinstance(answer, Cut):
        if not answer.politely:
            yield None
        return
    if answer.text:
        yield event("content_block_stop", index=0)
    if isinstance(answer, Call):
        block = {"type": "tool_use", "id": "toolu_1", "name": answer.name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for piece in _pieces(_arguments(answer)):
            yield answer.pause_sec
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=index)
    stops = {"end": "end_turn", "length": "max_tokens"}
    delta = {"stop_reason": stops.get(answer.stop, answer.stop), "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": tokens.output})
    yield event("message_stop")


def _openai(model: str, answer: Answer) -> Iterator[str | float | None]:
    """Events, pauses in seconds, and None where the connection breaks."""

    def event(delta: Mapping[str, Any] | None, finish: str | None = None, **fields: Any) -> str:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model}
        return _sse({**made, "choices": choices, **fields})

    tokens = getattr(answer, "tokens", Tokens())
    yield event({"role": "assistant", "content": ""})
    if isinstance(answer, Garbage):
        yield _sse(answer.data)
        return
    if isinstance(answer, StreamError):
        yield _sse({"error": {"type": answer.type, "message": answer.message}})
        return
    assert not isinstance(answer, str | HttpError)
    said = "refusal" if getattr(answer, "stop", "") == "refusal" else "content"
    for piece in _pieces(answer.text):
        yield getattr(answer, "pause_sec", 0.0)
        yield event({said: piece})
    if isinstance(answer, Cut):
        if not answer.politely:
            yield None
        return
    if isinstance(answer, Call):
        named = {"id": "call_1", "type": "function", "function": {"name": answer.name, "arguments": ""}}
        yield event({"tool_calls": [{"index": 0, **named}]})
        for piece in _pieces(_arguments(answer)):
            yield answer.pause_sec
            yield event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    stops = {"end": "stop", "refusal": "stop", "tool_use": "tool_calls"}
    yield event({}, stops.get(answer.stop, answer.stop))
    if tokens is None:
        return
    taken_in = tokens.input + tokens.cached + tokens.written
    usage = {
        "prompt_tokens": taken_in,
        "completion_tokens": tokens.output,
        "total_tokens": taken_in + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }
    yield event(None, usage=usage)
    yield _sse("[DONE]")


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


_WIRES = {"anthropic": _anthropic, "openai": _openai}
