"""A scripted model provider on loopback, for real SDKs and agents: Anthropic, OpenAI (Responses and Chat), Gemini.

    with ModelServer(["Hello", Call("python", {"code": "1 + 1"}), HttpError(529), Cut("half a re")]) as server:
        model = make_model("anthropic:claude-sonnet-4-6", environ=server.environ)

A script is a list of answers, given one after another, or a function of the request. Requests are recorded.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from model_answers import Answer, Call, Cut, Garbage, Hang, HttpError, StreamError, TextReply, Tokens
from model_wires import WIRES, usual_error, whole

__all__ = [
    "KEY",
    "Answer",
    "Call",
    "Cut",
    "Garbage",
    "Hang",
    "HttpError",
    "ModelServer",
    "Request",
    "Script",
    "StreamError",
    "TextReply",
    "Tokens",
]

KEY = "sk-test-0123456789abcdefghijkl"


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
        """What the last message of a conversation says."""
        content = self.body["messages"][-1]["content"]
        if isinstance(content, str):
            return content
        return "\n".join(str(block.get("text") or block.get("content") or "") for block in content)


Script = Sequence[Answer] | Callable[[Request], Answer]


class ModelServer:
    """Serves while it is entered; `requests` has what came, `hung_up` counts clients that left before the end.

    `models` is what it lists under `/v1/models`, if it lists any; `looked` counts who asked for that.
    """

    def __init__(self, script: Script, models: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._script = script
        self.models = models
        self.looked = 0
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
            "GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": KEY,
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

        def do_GET(self) -> None:
            server.looked += 1
            if server.models is None or not self.path.endswith("/models"):
                self._refuse("openai", HttpError(404))
                return
            self._document({"object": "list", "data": server.models})

        def _document(self, document: Mapping[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api, model = _asked(self.path, body)
            if api == "count":
                self._document({"input_tokens": 100, "totalTokens": 100})
                return
            answer = server.answer(api, self.path, dict(self.headers.items()), body)
            try:
                self._give(api, model, answer, streamed=_streamed(self.path, body))
            except (BrokenPipeError, ConnectionResetError):
                server.hung_up += 1
                self.close_connection = True

        def _give(self, api: str, model: str, answer: Answer, *, streamed: bool) -> None:
            if isinstance(answer, Hang):
                self._linger(answer.seconds)
                self.close_connection = True
                return
            if isinstance(answer, HttpError):
                self._refuse(api, answer)
                return
            answer = TextReply(answer) if isinstance(answer, str) else answer
            if not streamed and isinstance(answer, TextReply | Call):
                self._document(whole(api, model, answer))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in WIRES[api](model, answer):
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
            sentence = answer.body if answer.body is not None else usual_error(api, answer.status)
            body = sentence.encode() if isinstance(sentence, str) else json.dumps(sentence).encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", "text/plain" if isinstance(sentence, str) else "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _asked(path: str, body: Mapping[str, Any]) -> tuple[str, str]:
    """The API and the model of a request."""
    plain = path.partition("?")[0]
    if "/models/" in plain:
        model, _, action = plain.rpartition("/")[2].partition(":")
        return ("count" if action == "countTokens" else "gemini"), model
    apis = {"messages": "anthropic", "responses": "responses", "count_tokens": "count"}
    return apis.get(plain.rpartition("/")[2], "openai"), str(body.get("model"))


def _streamed(path: str, body: Mapping[str, Any]) -> bool:
    return bool(body.get("stream")) or "streamGenerateContent" in path
