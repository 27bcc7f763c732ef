"""Programs inside the sandbox reach their model through the run's gateway: without a key, on the run's budget."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from cli_agent_kit import FIX, Scripts, data_of, scripts, settings, worked
from engine_kit import commit

from codepilot.core.approval import ApprovalDecided
from codepilot.core.events import EventType, State
from codepilot.core.failures import FailureKind
from codepilot.core.task import InteractionMode
from codepilot.engine import Runtime, Worker
from codepilot.engine.control import decide_approval
from configured import configured
from model_server import KEY, HttpError, ModelServer, TextReply, Tokens

__all__ = ["scripts", "settings"]

ASK = """
import json, os, urllib.error, urllib.request

body = {"model": "claude-sonnet-4-6", "max_tokens": 1000, "messages": [{"role": "user", "content": "Say hello."}]}
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
asked = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
try:
    print(urllib.request.urlopen(asked).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
ENVIRONMENT = "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' > seen.txt; env >> seen.txt"
USED = Tokens(input=300, output=20)


@pytest.fixture
def asking(scripts: Scripts) -> Callable[..., str]:
    """An agent that asks its model so many times, with its other steps around that."""

    def made(times: int = 1, *more: list[str]) -> str:
        (scripts.checkout / "ask.py").write_text(ASK)
        commit(scripts.checkout, "ask")
        return scripts.add(*[["run", "python3 ask.py"]] * times, *more)

    return made


def test_a_call_is_charged_what_it_used_and_no_key_is_inside(
    settings: dict[str, str], scripts: Scripts, asking: Callable[..., str]
) -> None:
    agent = asking(2, ["run", ENVIRONMENT], FIX)
    with ModelServer([TextReply("Hello.", tokens=USED), HttpError(400)]) as server:
        run, events = worked({**settings, **server.environ}, scripts.checkout, agent)
    assert run.state is State.DONE, run.failure
    assert [request.headers["x-api-key"] for request in server.requests] == [KEY, KEY]
    answered = data_of(events, EventType.MODEL_ANSWERED)
    assert [(one.model, one.usage.tokens) for one in answered] == [("claude-sonnet-4-6", 320), ("claude-sonnet-4-6", 0)]
    assert run.spent.tokens == 320
    assert run.calls == {}
    diff = run.proposal.patch.diff if run.proposal else ""
    assert "ANTHROPIC_API_KEY=cpk-" in diff
    assert KEY not in diff


def test_the_call_that_would_pass_the_budget_is_refused_and_ends_the_run(
    settings: dict[str, str], scripts: Scripts, asking: Callable[..., str]
) -> None:
    agent = asking(2, ["sleep", 30])
    with ModelServer([TextReply("Hello.", tokens=USED)] * 3) as server:
        run, events = worked({**settings, **server.environ}, scripts.checkout, agent, budget={"tokens": 1200})
    assert len(server.requests) == 1
    assert run.state is State.ABORTED
    assert run.failure is not None
    assert (run.failure.kind, run.failure.details["budget"]) == (FailureKind.BUDGET_EXCEEDED, "tokens")
    assert run.spent.tokens == 320
    assert [one.budget for one in data_of(events, EventType.BUDGET_WARNED)] == ["tokens"]


def test_a_used_up_quota_waits_for_the_reset_that_the_gateway_saw(
    settings: dict[str, str], scripts: Scripts, asking: Callable[..., str]
) -> None:
    """Claude Code, Codex and Gemini CLI do not repeat the provider's header."""
    agent = asking(1, ["raw", json.dumps({"type": "failed", "kind": "quota", "message": "429"})])
    with ModelServer([HttpError(429, headers={"retry-after": "3600"})]) as server:
        began = time.time()
        run, _ = worked({**settings, **server.environ}, scripts.checkout, agent)
    assert run.state is State.BLOCKED
    assert run.parked_until is not None
    assert began + 3600 <= run.parked_until / 1e6 <= time.time() + 3600
    assert run.waiting_for is not None and run.waiting_for.kind == "quota"


def test_near_the_budgets_end_a_person_is_asked_and_the_run_goes_on_with_more(
    settings: dict[str, str], scripts: Scripts, asking: Callable[..., str]
) -> None:
    agent = asking(1, FIX)
    interaction = InteractionMode.ASK_BEFORE_RISKY
    with ModelServer([TextReply("Hello.", tokens=USED)] * 3) as server:
        settings = {**settings, **server.environ}
        run, _ = worked(settings, scripts.checkout, agent, budget={"tokens": 1200}, interaction=interaction)
        assert run.state is State.BLOCKED
        assert server.requests == []
        assert run.open_request is not None
        assert (run.open_request.operation, run.open_request.details) == ("spend", "more than 1,200 tokens")
        with Runtime.open(configured(settings)) as runtime:
            decide_approval(
                runtime, run.run_id, ApprovalDecided(approval_id=run.open_request.approval_id, decision="once")
            )
            run = Worker(runtime).drive(run.run_id)
    assert run.state is State.DONE, run.failure
    assert len(server.requests) == 1
