"""What goes wrong at a provider: asked again, answered by the fallback, or reported as one failure without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import UNCHARGED
from codepilot.models import FallbackModel, Message, Model, Reply, Retry, make_model
from model_server import KEY, Cut, HttpError, ModelServer, Request, Script

NOW = 1_800_000_000.0
ASKED = (Message(role="system", content="be brief"), Message(role="user", content="fix it"))
TOO_LONG = "prompt is too long: 250000 tokens > 200000 maximum"
SMALL = "This model's maximum context length is 8192 tokens."
BOTH = ("anthropic:claude-sonnet-4-6", "openai:gpt-5.1")


@dataclass
class Clock:
    """Time that passes only by sleeping."""

    now: float = NOW
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)

    @property
    def waited(self) -> float:
        return round(sum(self.waits), 6)

    def retry(self, chance: float = 0.5) -> Retry:
        return Retry(now=lambda: self.now, sleep=self.sleep, chance=lambda: chance)


def ask(model: Model, **more: Any) -> Reply:
    return model.reply(ASKED, temperature=0.2, max_tokens=100, **more)


def failure(script: Script, spec: str, clock: Clock | None = None, fallback: str | None = None) -> CodePilotError:
    with ModelServer(script) as server:
        model = make_model(spec, fallback, environ=server.environ, retry=(clock or Clock()).retry())
        with pytest.raises(CodePilotError) as caught:
            ask(model)
    return caught.value


def error(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


@pytest.mark.parametrize("spec", BOTH)
@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_accepted_is_reported_at_once(spec: str, status: int) -> None:
    found = failure([HttpError(status)], spec)
    assert found.kind is FailureKind.MODEL_AUTH
    assert found.failure.details["tries"] == 1


@pytest.mark.parametrize("spec", BOTH)
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_what_may_pass_is_asked_again_later_and_later(spec: str, status: int) -> None:
    clock = Clock()
    with ModelServer([HttpError(status), HttpError(status), "at last"]) as server:
        assert ask(make_model(spec, environ=server.environ, retry=clock.retry())).text == "at last"
    assert clock.waited == 1.0 + 2.0
    assert max(clock.waits) <= 0.1


def test_waits_spread_by_chance() -> None:
    waits = []
    for chance in (0.0, 0.999):
        clock = Clock()
        with ModelServer([HttpError(529), "ok"]) as server:
            ask(make_model(BOTH[0], environ=server.environ, retry=clock.retry(chance)))
        waits.append(clock.waited)
    assert waits == [0.5, 1.499]


@pytest.mark.parametrize("spec", BOTH)
@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": format_datetime(datetime.fromtimestamp(NOW + 9, UTC), usegmt=True)}, 9.0),
        ({"retry-after-ms": "2500"}, 2.5),
        ({"Retry-After": "soon"}, 1.0),
        ({"Retry-After": "-5"}, 1.0),
        ({"Retry-After": "nan"}, 1.0),
        ({"Retry-After": "inf"}, 1.0),
    ],
)
def test_a_wish_to_wait_is_honoured(spec: str, headers: dict[str, str], waited: float) -> None:
    clock = Clock()
    with ModelServer([HttpError(429, headers=headers), "ok"]) as server:
        assert ask(make_model(spec, environ=server.environ, retry=clock.retry())).text == "ok"
    assert clock.waited == waited


def test_a_wait_that_is_too_long_is_left_to_the_worker_that_parks_the_run() -> None:
    clock = Clock()
    found = failure([HttpError(429, headers={"Retry-After": "3600"})], BOTH[0], clock)
    assert found.kind is FailureKind.MODEL_QUOTA
    assert found.failure.details["reset_at"] == round((NOW + 3600) * 1e6)
    assert clock.waited == 0


def test_waiting_ends_when_it_is_stopped() -> None:
    clock = Clock()
    with ModelServer([HttpError(429, headers={"Retry-After": "50"})]) as server:
        model = make_model(BOTH[0], environ=server.environ, retry=clock.retry())
        with pytest.raises(CodePilotError) as caught:
            ask(model, stopped=lambda: clock.now > NOW + 1)
    assert caught.value.kind is FailureKind.CANCELLED
    assert clock.waited < 1.3


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("spec", "answer", "reset"),
    [
        (
            BOTH[0],
            HttpError(
                429,
                headers={
                    "anthropic-ratelimit-requests-remaining": "12",
                    "anthropic-ratelimit-requests-reset": at(9000),
                    "anthropic-ratelimit-input-tokens-remaining": "0",
                    "anthropic-ratelimit-input-tokens-reset": at(900),
                },
            ),
            900,
        ),
        (BOTH[0], HttpError(429, headers={"anthropic-ratelimit-unified-reset": str(int(NOW) + 7200)}), 7200),
        (
            BOTH[0],
            HttpError(400, error("invalid_request_error", "Your credit balance is too low")),
            None,
        ),
        (BOTH[0], HttpError(402, error("billing_error", "Pay first")), None),
        (
            BOTH[1],
            HttpError(429, headers={"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0.5s"}),
            360.5,
        ),
        (BOTH[1], HttpError(429, error("insufficient_quota", "Check your plan", code="insufficient_quota")), None),
        (BOTH[1], HttpError(429, error("usage_limit_reached", "The usage limit", resets_in_seconds=3600)), 3600),
        (
            BOTH[1],
            HttpError(
                429,
                error("insufficient_quota", "Check your plan", code="insufficient_quota"),
                headers={"x-ratelimit-remaining-requests": "499", "x-ratelimit-reset-requests": "120ms"},
            ),
            None,
        ),
        (BOTH[1], HttpError(429, error("RESOURCE_EXHAUSTED", "Quota", details=[{}, {"retryDelay": "345.5s"}])), 345.5),
        (BOTH[1], HttpError(429, error("usage_limit_reached", "The usage limit", resets_at=NOW * 1000)), None),
        (BOTH[0], HttpError(429, headers={"Retry-After": "1e300"}), None),
    ],
)
def test_a_spent_quota_tells_when_it_is_there_again(spec: str, answer: HttpError, reset: float | None) -> None:
    found = failure([answer], spec)
    assert found.kind is FailureKind.MODEL_QUOTA
    assert found.failure.details["reset_at"] == (None if reset is None else round((NOW + reset) * 1e6))
    assert found.failure.details["tries"] == 1


@pytest.mark.parametrize("spec", BOTH)
def test_a_rate_limit_that_lasts_is_a_quota_failure(spec: str) -> None:
    found = failure([HttpError(429, headers={"Retry-After": "1"})] * 3, spec)
    assert (found.kind, found.failure.details["tries"]) == (FailureKind.MODEL_QUOTA, 3)
    assert found.failure.details["reset_at"] > NOW * 1e6


@pytest.mark.parametrize(
    ("spec", "answer", "kind"),
    [
        (BOTH[0], HttpError(400, error("invalid_request_error", TOO_LONG)), "context_exceeded"),
        (BOTH[0], HttpError(413, error("request_too_large", "Request exceeds the maximum size")), "context_exceeded"),
        (BOTH[1], HttpError(400, error("invalid_request_error", SMALL)), "context_exceeded"),
        (BOTH[0], HttpError(404, error("not_found_error", "model: claude-nope")), "invalid_spec"),
        (BOTH[1], HttpError(400, error("invalid_request_error", "Invalid value for 'messages'")), "model_refused"),
        (BOTH[1], HttpError(400, "<html>Bad gateway configuration</html>"), "model_refused"),
    ],
)
def test_other_refusals_are_reported_for_what_they_are_and_not_repeated(
    spec: str, answer: HttpError, kind: str
) -> None:
    found = failure([answer], spec)
    assert (found.kind, found.failure.details["tries"]) == (kind, 1)


@pytest.mark.parametrize("spec", BOTH)
@pytest.mark.parametrize("politely", [True, False])
def test_a_reply_that_is_cut_is_asked_for_again_as_a_whole(spec: str, politely: bool) -> None:
    received: list[str] = []
    with ModelServer([Cut("Half a re", politely), Cut("", politely), "A whole one"]) as server:
        reply = ask(make_model(spec, environ=server.environ, retry=Clock().retry()), on_text=received.append)
    assert reply.text == "A whole one"
    assert "".join(received) == "Half a reA whole one"
    found = failure([Cut("Half a re", politely)] * 3, spec)
    assert (found.kind, found.failure.details["tries"]) == (FailureKind.MODEL_BAD_REPLY, 3)


@pytest.mark.parametrize("spec", BOTH)
def test_nobody_there_is_asked_three_times(spec: str) -> None:
    with ModelServer([]) as server:
        environ = server.environ
    clock = Clock()
    with pytest.raises(CodePilotError, match=r"cannot be reached at http://127\.0\.0\.1") as caught:
        ask(make_model(spec, environ=environ, retry=clock.retry()))
    assert (caught.value.kind, clock.waited) == (FailureKind.MODEL_UNREACHABLE, 3.0)
    assert f"curl {server.url}/v1/models" in caught.value.failure.advice
    assert caught.value.failure.details[UNCHARGED] is True


def test_a_name_that_does_not_resolve_is_no_overload() -> None:
    model = make_model("openai-compatible:https://nowhere.invalid/v1#m", environ={}, retry=Clock().retry())
    with pytest.raises(CodePilotError, match=r"cannot be reached at https://nowhere\.invalid/v1") as caught:
        ask(model)
    assert caught.value.kind is FailureKind.MODEL_UNREACHABLE


LLAMA = {"code": 400, "message": "the request exceeds the available context size, try increasing it"}


@pytest.mark.parametrize(
    ("spec", "answer", "limit"),
    [
        (BOTH[0], error("invalid_request_error", TOO_LONG), 200_000),
        (
            BOTH[0],
            error("invalid_request_error", "input length and `max_tokens` exceed context limit: 1 + 2 > 20000"),
            20_000,
        ),
        (BOTH[1], error("invalid_request_error", SMALL), 8192),
        (BOTH[1], {"error": {**LLAMA, "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 4096}}, 4096),
        (BOTH[1], {"error": "Trying to keep the first 5000 tokens, but the context length is only 2,048 tokens"}, 2048),
        (BOTH[1], {"error": LLAMA}, None),
    ],
)
def test_a_refusal_teaches_the_size_of_context_and_costs_nothing(spec: str, answer: Any, limit: int | None) -> None:
    with ModelServer([HttpError(400, answer)]) as server:
        model = make_model(spec, environ=server.environ)
        estimate = model.estimate(ASKED, 100_000).tokens
        with pytest.raises(CodePilotError) as caught:
            model.reply(ASKED, temperature=0, max_tokens=100_000)
        known = model.context_tokens
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    assert (caught.value.failure.details["limit"], caught.value.failure.details[UNCHARGED]) == (limit, True)
    assert known == min(limit or estimate, int(estimate * 0.8))


@pytest.mark.parametrize(
    ("listed", "size"),
    [
        ([{"id": "other", "max_model_len": 1}, {"id": "local", "max_model_len": 8192}], 8192),
        ([{"id": "/models/qwen.gguf", "meta": {"n_ctx_train": 32768, "n_ctx": 4096}}], 4096),
        ([{"id": "local", "loaded_context_length": 4096, "max_context_length": 131072}], 4096),
        ([{"id": "local"}], None),
        (None, None),
    ],
)
def test_a_compatible_server_says_its_size_of_context(listed: list[dict[str, Any]] | None, size: int | None) -> None:
    with ModelServer([], models=listed) as server:
        model = make_model(server.compatible, environ=server.environ)
        assert (model.context_tokens, model.context_tokens) == (size, size)
        assert server.looked <= 1


def by_api(answers: dict[str, Callable[[], Any]]) -> Callable[[Request], Any]:
    return lambda request: answers[request.api]()


@pytest.mark.parametrize(("spec", "fallback"), [BOTH, BOTH[::-1]])
@pytest.mark.parametrize("trouble", [HttpError(529), HttpError(429), Cut("Half"), HttpError(402)])
def test_after_three_tries_the_fallback_replies_and_says_so(spec: str, fallback: str, trouble: Any) -> None:
    first = spec.partition(":")[0]
    with ModelServer(lambda request: trouble if request.api == first else "from the other") as server:
        model = make_model(spec, fallback, environ=server.environ, retry=Clock().retry())
        reply = ask(model)
        tries = [request.api for request in server.requests].count(first)
    assert reply.text == "from the other"
    assert reply.degraded is not None
    assert reply.degraded.consequence == f"{fallback} replies in place of {spec}"
    assert tries == (1 if trouble == HttpError(402) else 3)


def test_when_the_fallback_fails_too_both_failures_are_reported() -> None:
    found = failure(
        by_api({"anthropic": lambda: HttpError(529), "openai": lambda: HttpError(503)}), *BOTH[:1], fallback=BOTH[1]
    )
    assert found.kind is FailureKind.MODEL_OVERLOADED
    assert found.failure.message.startswith(BOTH[1])
    assert found.failure.details["in_place_of"].startswith("model_overloaded: " + BOTH[0])


def test_a_refused_key_is_not_hidden_by_the_fallback() -> None:
    found = failure(by_api({"anthropic": lambda: HttpError(401), "openai": lambda: "x"}), BOTH[0], fallback=BOTH[1])
    assert found.kind is FailureKind.MODEL_AUTH


def test_the_estimate_with_a_fallback_is_the_dearer_one() -> None:
    environ = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
    cheap, dear = (make_model(spec, environ=environ).estimate(ASKED, 100) for spec in ("openai:gpt-5-nano", BOTH[0]))
    assert cheap.cost_usd < dear.cost_usd
    assert make_model("openai:gpt-5-nano", BOTH[0], environ=environ).estimate(ASKED, 100) == dear


@pytest.mark.parametrize("spec", BOTH)
@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_key_that_a_provider_echoes_goes_nowhere(
    spec: str, status: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "my-unusual-key-without-any-shape"
    output = f"Incorrect API key provided: {key}. Headers: Authorization: Bearer {key}"
    with caplog.at_level(logging.DEBUG), ModelServer([HttpError(status, error("error", output))] * 3) as server:
        environ = {**server.environ, "ANTHROPIC_API_KEY": key, "OPENAI_API_KEY": key}
        model = make_model(spec, environ=environ, retry=Clock().retry())
        with pytest.raises(CodePilotError) as caught:
            ask(model)
        assert key in str(server.requests[0].headers)
    shown = [str(caught.value), caught.value.failure.model_dump_json(), repr(model), str(vars(model)), caplog.text]
    assert not [text for text in (*shown, *capfd.readouterr()) if key in text]
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_model_that_is_away_is_left_alone_for_a_minute() -> None:
    clock = Clock()
    answers = iter([*[HttpError(529)] * 3, "back"])
    with ModelServer(lambda request: next(answers) if request.api == "anthropic" else "from the other") as server:
        both = [make_model(spec, environ=server.environ, retry=clock.retry()) for spec in BOTH]
        model = FallbackModel(*both, clock=lambda: clock.now)
        first, second = ask(model), ask(model)
        assert [request.api for request in server.requests].count("anthropic") == 3
        assert second.degraded == first.degraded is not None
        clock.now += 60
        back = ask(model)
    assert (back.text, back.degraded) == ("back", None)


@pytest.mark.parametrize(
    ("second", "reset"),
    [
        (HttpError(529), 600),
        (HttpError(429, headers={"Retry-After": "300"}), 300),
        (HttpError(429, error("insufficient_quota", "Check your plan", code="insufficient_quota")), 600),
    ],
)
def test_a_quota_is_waited_for_when_the_fallback_cannot_be_had_either(second: HttpError, reset: int) -> None:
    answers = {"anthropic": HttpError(429, headers={"Retry-After": "600"}), "openai": second}
    found = failure(lambda request: answers[request.api], BOTH[0], fallback=BOTH[1])
    assert found.kind is FailureKind.MODEL_QUOTA
    parked = found.failure.details["reset_at"]
    assert isinstance(parked, int)
    assert abs(parked / 1e6 - NOW - reset) < 10


def test_a_fallback_with_a_refused_key_tells_of_the_quota_before_it() -> None:
    answers = {"anthropic": HttpError(429, headers={"Retry-After": "600"}), "openai": HttpError(401)}
    found = failure(lambda request: answers[request.api], BOTH[0], fallback=BOTH[1])
    assert found.kind is FailureKind.MODEL_AUTH
    assert "model_quota" in str(found.failure.details["in_place_of"])
