"""Real SDKs against a scripted provider: what a reply is made of, and what is sent."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import KnownModel, ModelSettings
from codepilot.models import Message, Model, Reply, Retry, Tool, ToolCall, make_model
from model_server import KEY, Call, Garbage, HttpError, ModelServer, Request, StreamError, TextReply, Tokens

PYTHON = Tool(
    name="python",
    description="Run it.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
ASKED = (Message(role="system", content="be brief"), Message(role="user", content="fix it"))
ACTED = (
    *ASKED,
    Message(
        role="assistant",
        content="I look.",
        tool_calls=(ToolCall(id="c1", name="python", arguments={"code": "print(1)"}),),
    ),
    Message(role="tool", content="1", tool_call_id="c1"),
    Message(role="user", content="Two turns are left."),
)
BOTH = ("anthropic:claude-sonnet-4-6", "openai:gpt-5.1")
EVERY = (*BOTH, "compatible")


def model_of(server: ModelServer, spec: str, **settings: Any) -> Model:
    retry = Retry(sleep=lambda seconds: None)
    named = server.compatible if spec == "compatible" else spec
    return make_model(named, environ=server.environ, settings=ModelSettings(**settings), retry=retry)


def ask(model: Model, messages: tuple[Message, ...] = ASKED, **more: Any) -> Reply:
    return model.reply(messages, **{"temperature": 0.2, "max_tokens": 100, "tools": (PYTHON,), **more})


@pytest.mark.parametrize("spec", EVERY)
def test_a_plain_reply_is_received_in_pieces_and_counted(spec: str) -> None:
    received: list[str] = []
    tokens = Tokens(input=40, output=12, cached=1000, written=60)
    with ModelServer([TextReply("The bug is in slots.py — line 3.", tokens=tokens)]) as server:
        reply = ask(model_of(server, spec), on_text=received.append)
    assert reply.text == "".join(received) == "The bug is in slots.py — line 3."
    assert len(received) > 3
    assert (reply.stop_reason, reply.tool_calls) == ("end", ())
    usage = reply.usage
    assert (usage.turns, usage.tokens, usage.input_tokens) == (1, 1112, 1100)
    assert (usage.output_tokens, usage.cached_tokens) == (12, 1000)


def test_cost_follows_the_providers_list_with_cheaper_cached_tokens() -> None:
    with ModelServer(
        [TextReply("x", tokens=Tokens(10_000, 100, 0)), TextReply("x", tokens=Tokens(0, 100, 10_000))]
    ) as server:
        model = model_of(server, BOTH[0])
        dear, cheap = ask(model).usage, ask(model).usage
    assert dear.tokens == cheap.tokens
    assert 0 < cheap.cost_usd < dear.cost_usd / 3
    assert dear.unpriced_tokens == 0


def test_a_model_without_a_known_price_says_so_until_it_is_configured() -> None:
    known = {"local": KnownModel(input_usd=2.0, output_usd=10.0, cached_usd=0.5, context_tokens=8000)}
    tokens = Tokens(1_000_000, 100_000, 1_000_000)
    with ModelServer([TextReply("x", tokens=tokens), TextReply("x", tokens=tokens)]) as server:
        unknown, configured = model_of(server, "compatible"), model_of(server, "compatible", known=known)
        used = ask(unknown).usage
        assert (used.cost_usd, used.unpriced_tokens) == (0.0, 2_100_000)
        assert unknown.context_tokens is None
        used = ask(configured).usage
    assert (used.cost_usd, used.unpriced_tokens) == (2.0 + 0.5 + 1.0, 0)
    assert configured.context_tokens == 8000


@pytest.mark.parametrize("spec", EVERY)
def test_a_tool_call_streamed_in_fragments_is_put_together(spec: str) -> None:
    code = "for each in ['a', \"b\"]:\n    print(each, 'ü')\n"
    with ModelServer([Call("python", {"code": code}, text="I look.")]) as server:
        reply = ask(model_of(server, spec))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("python", {"code": code})]
    assert reply.tool_calls[0].id
    assert (reply.text, reply.stop_reason) == ("I look.", "tool_use")


@pytest.mark.parametrize("spec", EVERY)
@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_why_a_reply_ends_is_reported(spec: str, stop: str) -> None:
    with ModelServer([TextReply("I cannot", stop=stop)]) as server:
        reply = ask(model_of(server, spec))
    assert (reply.stop_reason, reply.text) == (stop, "I cannot")


@pytest.mark.parametrize("spec", BOTH)
def test_a_call_that_is_cut_at_the_length_limit_is_no_call(spec: str) -> None:
    with ModelServer([Call("python", '{"code": "print(', stop="length")]) as server:
        reply = ask(model_of(server, spec))
    assert (reply.stop_reason, reply.tool_calls) == ("length", ())


def test_anthropic_gets_the_conversation_with_its_steady_parts_cached() -> None:
    with ModelServer(["ok"]) as server:
        ask(model_of(server, BOTH[0]), ACTED)
        sent = server.requests[0].body
    cached = {"cache_control": {"type": "ephemeral"}}
    assert sent["system"] == [{"type": "text", "text": "be brief", **cached}]
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "fix it", **cached}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "python", "input": {"code": "print(1)"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "1"},
                {"type": "text", "text": "Two turns are left.", **cached},
            ],
        },
    ]
    assert (sent["temperature"], sent["max_tokens"], sent["stream"]) == (0.2, 100, True)
    assert sent["tools"][0]["input_schema"] == PYTHON.parameters


def test_openai_gets_the_conversation_in_its_own_words() -> None:
    with ModelServer(["ok"]) as server:
        ask(model_of(server, BOTH[1]), ACTED)
        sent = server.requests[0].body
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "user"]
    function = {"name": "python", "arguments": '{"code": "print(1)"}'}
    assert sent["messages"][2]["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
    assert sent["messages"][3] == {"role": "tool", "content": "1", "tool_call_id": "c1"}
    assert (sent["max_completion_tokens"], sent["temperature"]) == (100, 0.2)
    assert "max_tokens" not in sent
    assert sent["tools"][0]["function"]["parameters"] == PYTHON.parameters


@pytest.mark.parametrize("spec", BOTH)
def test_half_a_character_does_not_stop_a_request(spec: str) -> None:
    with ModelServer(["ok"]) as server:
        ask(model_of(server, spec), (*ASKED, Message(role="user", content="broken \ud83d")))
        assert "broken ?" in server.requests[0].text


@pytest.mark.parametrize("spec", EVERY)
def test_a_model_that_refuses_a_temperature_is_asked_without_one_from_then_on(spec: str) -> None:
    def script(request: Request) -> HttpError | str:
        if "temperature" in request.body:
            message = "temperature: Extra inputs are not permitted"
            return HttpError(400, {"error": {"type": "invalid_request_error", "message": message}})
        return "ok"

    with ModelServer(script) as server:
        model = model_of(server, spec)
        assert [ask(model).text, ask(model).text] == ["ok", "ok"]
        assert ["temperature" in request.body for request in server.requests] == [True, False, False]


def test_a_server_that_knows_only_one_name_for_the_limit_gets_that_one() -> None:
    def script(request: Request) -> HttpError | str:
        if "max_tokens" in request.body:
            message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            return HttpError(400, {"error": {"message": message, "param": "max_tokens"}})
        return "ok"

    with ModelServer(script) as server:
        model = model_of(server, "compatible")
        assert [ask(model).text, ask(model).text] == ["ok", "ok"]
        assert len(server.requests) == 3


def test_a_server_that_accepts_neither_is_not_asked_for_ever() -> None:
    def script(request: Request) -> HttpError:
        named = "max_tokens" if "max_tokens" in request.body else "max_completion_tokens"
        return HttpError(400, {"error": {"message": f"unknown field {named}", "param": named}})

    with ModelServer(script) as server:
        with pytest.raises(CodePilotError, match="unknown field") as caught:
            ask(model_of(server, "compatible"))
        assert len(server.requests) <= 3
    assert caught.value.kind is FailureKind.MODEL_REFUSED


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, "registry.ollama.ai/library/gemma:latest does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use."),
    ],
)
def test_a_server_without_tools_gets_fenced_blocks_and_that_is_remembered(status: int, sentence: str) -> None:
    def script(request: Request) -> HttpError | str:
        return HttpError(status, {"error": {"message": sentence}}) if "tools" in request.body else "```python\n1\n```"

    with ModelServer(script) as server:
        model = model_of(server, "compatible")
        assert [ask(model, ACTED).text, ask(model, ACTED).text] == ["```python\n1\n```"] * 2
        assert ["tools" in request.body for request in server.requests] == [True, False, False]
        messages = server.requests[-1].body["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "user"]
    assert messages[2]["content"] == "I look.\n\n```python\nprint(1)\n```"
    assert "```python" in messages[0]["content"]
    assert all("tool_calls" not in message and "tool_call_id" not in message for message in messages)


def test_a_model_configured_without_tools_is_never_offered_any() -> None:
    with ModelServer(["ok"]) as server:
        ask(model_of(server, "compatible", known={"local": KnownModel(tools=False)}))
        assert "tools" not in server.requests[0].body


def test_a_compatible_server_gets_its_own_key_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    with ModelServer(["a", "b"]) as server:
        environ = server.environ
        ask(make_model(server.compatible, environ=environ))
        ask(make_model(server.compatible, environ={**environ, "CODEPILOT_MODEL_KEY": "local-key-123456"}))
        without, with_one = (
            {name.lower(): value for name, value in request.headers.items()} for request in server.requests
        )
    assert "authorization" not in without
    assert with_one["authorization"] == "Bearer local-key-123456"
    assert KEY not in f"{without} {with_one}"
    assert "org-mine" not in f"{without} {with_one}"
    assert server.requests[0].body["max_tokens"] == 100


def test_a_server_that_does_not_count_gets_the_estimate() -> None:
    with ModelServer([TextReply("a reply of some length", tokens=None)]) as server:
        used = ask(model_of(server, "compatible")).usage
    assert used.input_tokens > 10
    assert 0 < used.output_tokens < 20


@pytest.mark.parametrize("spec", BOTH)
def test_arguments_that_are_no_object_are_asked_for_again(spec: str) -> None:
    with ModelServer(
        [Call("python", '["code"]'), Call("python", '{"code": '), Call("python", {"code": "1"})]
    ) as server:
        assert ask(model_of(server, spec)).tool_calls[0].arguments == {"code": "1"}
        assert len(server.requests) == 3


@pytest.mark.parametrize("spec", EVERY)
@pytest.mark.parametrize("data", ["{not json", '"text"', '{"type": "content_block_delta", "index": 7}', "[1]"])
def test_a_stream_of_garbage_is_a_bad_reply(spec: str, data: str) -> None:
    with ModelServer([Garbage(data)] * 3) as server, pytest.raises(CodePilotError) as caught:
        ask(model_of(server, spec))
    assert caught.value.kind is FailureKind.MODEL_BAD_REPLY
    assert caught.value.failure.details["tries"] == 3


@pytest.mark.parametrize("spec", EVERY)
def test_an_error_within_the_stream_is_what_it_says(spec: str) -> None:
    with ModelServer([StreamError(), "ok", StreamError("authentication_error", "no")]) as server:
        model = model_of(server, spec)
        assert ask(model).text == "ok"
        with pytest.raises(CodePilotError) as caught:
            ask(model)
    assert caught.value.kind is FailureKind.MODEL_AUTH


@pytest.mark.parametrize("spec", EVERY)
@pytest.mark.parametrize("pause", [0.05, 30.0])
def test_a_slow_or_stalled_stream_is_stopped_within_a_second(spec: str, pause: float) -> None:
    stopped_at: list[float] = []

    with ModelServer([TextReply("word " * 500, pause_sec=pause)]) as server:

        def stopped() -> bool:
            """True 0.4 s after the request arrived: importing the SDK takes long on a busy machine."""
            if not server.requests:
                return False
            stopped_at.append(time.monotonic())
            return stopped_at[-1] - stopped_at[0] > 0.4

        model = model_of(server, spec)
        model.estimate(ASKED, 10)
        with pytest.raises(CodePilotError) as caught:
            ask(model, stopped=stopped)
        took = time.monotonic() - stopped_at[0]
        while server.hung_up == 0 and time.monotonic() - stopped_at[0] < 10:
            time.sleep(0.01)
    assert caught.value.kind is FailureKind.CANCELLED
    assert took < 5
    assert server.hung_up == 1


def test_a_stop_is_noticed_while_the_provider_is_silent() -> None:
    stop = threading.Event()
    stopped_at: list[float] = []

    def set_it() -> None:
        stopped_at.append(time.monotonic())
        stop.set()

    with ModelServer(["warm", TextReply("x" * 70, pause_sec=30.0)]) as server:
        model = model_of(server, BOTH[1])
        ask(model)
        threading.Timer(0.3, set_it).start()
        with pytest.raises(CodePilotError, match="stopped"):
            ask(model, stopped=stop.is_set)
        took = time.monotonic() - stopped_at[0]
    assert took < 15


def test_a_model_that_says_nothing_for_too_long_is_given_up() -> None:
    with ModelServer([TextReply("x" * 70, pause_sec=30.0)]) as server:
        with pytest.raises(CodePilotError, match=r"sent nothing for 0\.3 s") as caught:
            ask(model_of(server, BOTH[0], timeout_sec=0.3))
        assert len(server.requests) == 1
    assert caught.value.kind is FailureKind.MODEL_TIMEOUT


def test_several_threads_can_ask_one_model_at_once() -> None:
    with ModelServer(lambda request: TextReply(request.last, pause_sec=0.01)) as server:
        model = model_of(server, BOTH[0])
        replies: dict[int, str] = {}

        def one(number: int) -> None:
            replies[number] = ask(model, (Message(role="user", content=f"this is number {number}"),)).text

        threads = [threading.Thread(target=one, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == {number: f"this is number {number}" for number in range(5)}


@pytest.mark.parametrize("spec", EVERY)
def test_what_the_listener_raises_reaches_the_caller(spec: str) -> None:
    def on_text(piece: str) -> None:
        raise RuntimeError("no room on the screen")

    with ModelServer([TextReply("word " * 50, pause_sec=0.02)]) as server, pytest.raises(RuntimeError, match="no room"):
        ask(model_of(server, spec), on_text=on_text)


@pytest.mark.parametrize("spec", EVERY)
def test_a_request_of_200_000_tokens_is_estimated_and_sent(spec: str) -> None:
    long = (*ASKED, Message(role="user", content="x = 1\n" * 120_000))
    with ModelServer(["ok"]) as server:
        model = model_of(server, spec)
        estimate = model.estimate(long, 4000, (PYTHON,))
        assert ask(model, long).text == "ok"
        assert len(server.requests[0].text) > 700_000
    assert 200_000 < estimate.input_tokens < 250_000
    assert (estimate.output_tokens, estimate.tokens) == (4000, estimate.input_tokens + 4000)
    assert (estimate.cost_usd > 0.2) == (spec != "compatible")
