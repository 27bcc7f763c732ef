"""Texts as vectors: each is asked for once, in time or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import ModelSettings
from codepilot.models import Vectors, cosine


class EmbeddingServer:
    """Gives each text a vector of its length; `texts` are those that were asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.late: threading.Event | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.texts += body["input"]
                if outer.late is not None:
                    outer.late.wait(60)
                data = [
                    {"object": "embedding", "index": place, "embedding": [float(len(text)), 1.0]}
                    for place, text in enumerate(body["input"])
                ]
                answer = {
                    "object": "list",
                    "data": data,
                    "model": "m",
                    "usage": {"prompt_tokens": 1, "total_tokens": 1},
                }
                sent = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.spec = f"openai-compatible:http://127.0.0.1:{self.server.server_port}/v1#m"


@pytest.fixture
def served() -> Iterator[EmbeddingServer]:
    made = EmbeddingServer()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_text_is_asked_for_once(served: EmbeddingServer, tmp_path: Path) -> None:
    vectors = Vectors(served.spec, tmp_path / "vectors.db", {}, ModelSettings())
    assert [list(one) for one in vectors.of(["ab", "abcd", "ab"])] == [[2.0, 1.0], [4.0, 1.0], [2.0, 1.0]]
    assert [list(one) for one in vectors.of(["abcd", "a"])] == [[4.0, 1.0], [1.0, 1.0]]
    assert served.texts == ["ab", "abcd", "a"]


def test_a_server_that_is_late_is_not_waited_for(served: EmbeddingServer, tmp_path: Path) -> None:
    served.late = threading.Event()
    with pytest.raises(CodePilotError):
        Vectors(served.spec, tmp_path / "vectors.db", {}, ModelSettings(), timeout_sec=0.3).of(["late"])
    served.late.set()


def test_a_model_without_embeddings_is_refused(tmp_path: Path) -> None:
    vectors = Vectors("anthropic:claude-sonnet-4-6", tmp_path / "v.db", {"ANTHROPIC_API_KEY": "x"}, ModelSettings())
    with pytest.raises(CodePilotError) as refused:
        vectors.of(["text"])
    assert refused.value.kind is FailureKind.INVALID_SPEC and "openai:NAME" in refused.value.failure.advice


def test_the_cosine_says_how_much_two_vectors_agree() -> None:
    assert cosine((1.0, 0.0), (2.0, 0.0)) == 1.0
    assert cosine((1.0, 0.0), (0.0, 3.0)) == cosine((1.0, 0.0), (-1.0, 0.0)) == cosine((0.0,), (1.0,)) == 0.0
