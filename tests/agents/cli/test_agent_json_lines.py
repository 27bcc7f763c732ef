"""A real program that speaks our JSON lines, in the sandbox: events, permissions, messages, and every kind of end."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agent_place import Place

from codepilot.agents.cli.adapters import adapter
from codepilot.agents.cli.claude import ClaudeConversation
from codepilot.agents.cli.failures import failure
from codepilot.agents.cli.json_lines import JsonLinesConversation
from codepilot.agents.cli.line_agent import Conversation, LineAgent, Read
from codepilot.agents.cli.protocol import (
    Acknowledged,
    AgentEvent,
    AgentMessage,
    Delivery,
    Failed,
    Finished,
    Permission,
    PlanShown,
    RunningAgent,
    SessionOpened,
    Text,
    ToolCall,
    ToolResult,
    TurnEnded,
    UsageSeen,
)
from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models.gateway import Dialect, ModelEndpoint
from codepilot.sandbox import Process

PROGRAM = Path(__file__).resolve().parents[2] / "json_lines_agent.py"
VIOLATION = AgentMessage(
    type="checkpoint_violation",
    severity="error",
    content="src/config.py is outside the allowed areas.",
    data={"checkpoint_id": "ckpt-1", "violations": [{"file": "src/config.py", "constraint": "allowed_areas"}]},
    requires_acknowledgment=True,
)


@contextmanager
def running(place: Place, *steps: list[Any], **fields: Any) -> Iterator[RunningAgent]:
    shutil.copy(PROGRAM, place.shown / "agent.py")
    (place.shown / "script.json").write_text(json.dumps(steps))
    command = f"stdio:python3 {place.shown}/agent.py {place.shown}/script.json"
    agent = adapter(command).start(place.start(**fields))
    try:
        yield agent
    finally:
        agent.close()


def play(agent: RunningAgent, on: Callable[[AgentEvent], None] = lambda event: None) -> list[AgentEvent]:
    """Everything it reports; `on` sees each event when it comes."""
    seen: list[AgentEvent] = []
    for event in agent.events(0.05):
        if event is not None:
            seen.append(event)
            on(event)
    return seen


def test_it_works_in_the_tree_and_reports_what_it_does(place: Place) -> None:
    usage = {"type": "usage", "input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5}
    plan = {"type": "plan", "entries": ["look", "repair"]}
    steps = [
        ["line", {"kind": "plan", "entries": plan["entries"]}],
        ["write", "src/a.py", "A = 1\n"],
        ["run", "exit 3"],
    ]
    with running(
        place, *steps, ["line", {"kind": "usage", **{k: v for k, v in usage.items() if k != "type"}}]
    ) as agent:
        seen = play(agent)
    assert seen[:4] == [
        SessionOpened("session-1"),
        PlanShown(("look", "repair")),
        ToolCall("write", "src/a.py", "c1"),
        ToolResult("c1", ok=True),
    ]
    assert seen[5] == ToolResult("c2", ok=False)
    assert isinstance(seen[6], UsageSeen) and seen[6].usage.tokens == 12
    assert seen[7:] == [Finished(f"Done in {place.directory}.")]
    assert place.text("src/a.py") == "A = 1\n"


def test_it_waits_for_the_answer_to_a_permission(place: Place) -> None:
    steps = [["ask", "path", ".env"], ["write", ".env", "KEY=1"], ["ask", "command", "true"], ["write", "ok", "1"]]

    def decide(event: AgentEvent) -> None:
        if isinstance(event, Permission):
            agent.answer(event.id, event.operation == "command", "That file is protected.")

    with running(place, *steps) as agent:
        seen = play(agent, decide)
    assert ToolResult("p0", ok=False, text="That file is protected.", denied=True) in seen
    assert [event.subject for event in seen if isinstance(event, ToolCall)] == ["ok"]


def test_messages_are_acknowledged_within_and_between_turns(place: Place) -> None:
    sent: list[Delivery] = []

    def react(event: AgentEvent) -> None:
        if event == Text("ready"):
            sent.append(agent.send(VIOLATION, 10.0))
        elif isinstance(event, TurnEnded) and len(sent) == 1:
            sent.append(agent.send(AgentMessage(type="user", content="Also add a test."), 10.0))

    with running(place, ["say", "ready"], ["receive"], ["turn"], ["turn"]) as agent:
        seen = play(agent, react)
    assert sent == [Delivery(True, True, "will move src/config.py"), Delivery(True)]
    assert Acknowledged("will move src/config.py") in seen
    words = [event.text for event in seen if isinstance(event, Text)]
    assert words == ["ready", f"I received: {VIOLATION.content}", "I received: Also add a test."]
    assert seen[-2:] == [TurnEnded(), Finished(words[-1])], "nothing followed the second turn"


def test_a_pause_is_acknowledged_and_is_no_work(place: Place) -> None:
    pause = AgentMessage(
        type="pause_request", content="", data={"checkpoint_id": "ckpt-2"}, requires_acknowledgment=True
    )
    answers: list[Delivery] = []

    def react(event: AgentEvent) -> None:
        if isinstance(event, TurnEnded):
            answers.append(agent.send(pause, 10.0))
            agent.send(AgentMessage(type="resume", content="", data={"checkpoint_id": "ckpt-2"}))

    with running(place, ["turn"]) as agent:
        seen = play(agent, react)
    assert answers == [Delivery(True, True, "paused")]
    assert isinstance(seen[-1], Finished)


def test_an_acknowledgement_is_awaited_only_so_long(place: Place) -> None:
    message = AgentMessage(type="warning", content="x", data={"checkpoint_id": "c"}, requires_acknowledgment=True)
    with running(place, ["raw", "not json"], ["exit", 0]) as agent:
        for _ in agent.events(0.05):
            pass
        started = time.monotonic()
        assert not agent.send(message, 60.0).acknowledged
    assert time.monotonic() - started < 30, "a program that is gone acknowledges nothing"


def test_it_is_interrupted_and_resumed_by_its_session(place: Place) -> None:
    with running(place, ["sleep", 60], resume="session-7") as agent:
        for event in agent.events(0.05):
            if event is None:
                agent.interrupt()
        assert agent.session_id == "session-7"


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        ([["exit", 0]], FailureKind.AGENT_CRASHED, "ended with code 0 before it had finished"),
        ([["run", "kill -9 $PPID"]], FailureKind.AGENT_CRASHED, "was killed"),
        ([["raw", "Traceback: garbage"], ["exit", 3]], FailureKind.AGENT_CRASHED, "garbage"),
        ([["line", {"kind": "finnished"}]], FailureKind.AGENT_CRASHED, "not valid: finnished"),
        ([["line", {"kind": "tool_call", "id": 7}]], FailureKind.AGENT_CRASHED, "not valid"),
        ([["line", {"kind": "failed", "message": "401 Unauthorized"}]], FailureKind.MODEL_AUTH, "401"),
    ],
)
def test_every_end_has_its_failure(place: Place, steps: list[Any], kind: FailureKind, words: str) -> None:
    with running(place, *steps) as agent:
        end = play(agent)[-1]
    assert isinstance(end, Failed)
    assert end.failure.kind is kind
    assert words in end.failure.message


def test_a_quota_has_its_reset(place: Place) -> None:
    shutil.copy(PROGRAM, place.shown / "agent.py")
    end = '{"type": "failed", "kind": "quota", "message": "used up", "reset_at": 4102444800}'
    with running(place, ["raw", end], ["sleep", 60]) as agent:
        failed = play(agent)[-1]
    assert isinstance(failed, Failed)
    assert failed.failure.kind is FailureKind.MODEL_QUOTA
    assert failed.failure.details["reset_at"] == 4102444800_000_000


def test_a_closed_agent_is_gone_and_ends_its_events(place: Place) -> None:
    with running(place, ["run", "sleep 600 & echo started"], ["sleep", 600]) as agent:
        threading.Timer(0.3, agent.close).start()
        assert isinstance(play(agent)[-1], Failed)


def test_it_finds_its_models_where_their_clients_look(place: Place) -> None:
    def endpoint(dialect: Dialect) -> ModelEndpoint:
        if dialect == "gemini":
            raise CodePilotError(FailureKind.MODEL_AUTH, "there is no key")
        return ModelEndpoint(dialect, f"http://127.0.0.1:9/{dialect}", "cpk-1", "m")

    with running(
        place, ["run", "echo $ANTHROPIC_BASE_URL $OPENAI_API_KEY [$GEMINI_API_KEY]"], endpoint=endpoint
    ) as agent:
        results = [event.text for event in play(agent) if isinstance(event, ToolResult)]
    assert results == ["http://127.0.0.1:9/anthropic cpk-1 []\n"]


def test_a_program_that_is_not_there_is_named(place: Place) -> None:
    missing = adapter("stdio:no-such-program --fast")
    assert "no-such-program" in missing.probe({"PATH": "/usr/bin"}).problem
    with pytest.raises(CodePilotError) as refused:
        missing.start(place.start())
    assert refused.value.kind is FailureKind.AGENT_MISSING


@pytest.mark.parametrize("name", ["nobody", "stdio:", "stdio:'", "telnet:x"])
def test_a_name_that_is_no_agent_is_refused(name: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        adapter(name)
    assert refused.value.kind is FailureKind.INVALID_SPEC


class Odd:
    """A conversation that does not expect what the program sends."""

    session_id, busy = None, True

    def open(self) -> list[JsonObject]:
        return []

    def read(self, line: JsonObject) -> list[Read]:
        raise KeyError("id")

    def explain(self, words: str) -> FailureKind | None:
        return None


def test_a_message_that_no_dialect_expects_ends_the_agent_with_a_reason() -> None:
    process = SimpleNamespace(
        stdout=BytesIO(b"{}\n"), stdin=BytesIO(), limit=None, wait=lambda seconds: None, stderr_tail=lambda: b""
    )
    agent = LineAgent("x", cast("Process", process), cast("Conversation", Odd()), frozenset())
    failed = next(event for event in agent.events(0.05) if event is not None)
    assert isinstance(failed, Failed) and "cannot be used: KeyError" in failed.failure.message


def test_figures_beyond_reason_are_none() -> None:
    claude = ClaudeConversation("Repair it.", "/w")
    [used, _] = claude.read({"type": "result", "total_cost_usd": 10**400})
    assert isinstance(used, UsageSeen) and used.usage.cost_usd == 0
    [used, _] = claude.read({"type": "result", "total_cost_usd": float("inf")})
    assert isinstance(used, UsageSeen) and used.usage.cost_usd == 0
    for reset_at in (1e15, 1e308, -1.0):
        assert failure("x", "quota", FailureKind.MODEL_QUOTA, reset_at=reset_at).details["reset_at"] is None


def test_a_message_of_any_length_is_judged_in_time() -> None:
    began = time.thread_time()
    assert failure("x", "0" * 1_000_000 + " quota").kind is FailureKind.MODEL_QUOTA
    assert failure("x", "overloaded " + "0" * 1_000_000).kind is FailureKind.MODEL_OVERLOADED
    assert time.thread_time() - began < 10


def test_half_of_a_character_is_no_part_of_a_message() -> None:
    line = rb'{"type": "finished", "text": "x\udfffy \ud83d\ude00"}' + b"\n"
    process = SimpleNamespace(stdout=BytesIO(line), stdin=BytesIO(), kill=lambda: None)
    agent = LineAgent("x", cast("Process", process), JsonLinesConversation("x", {}), frozenset())
    assert next(event for event in agent.events(0.05) if event is not None) == Finished("x\ufffdy \U0001f600")


def test_a_provider_that_a_shared_login_may_not_reach_is_unreachable() -> None:
    words = "API Error: Can't reach the API server — check your internet or DNS (EAI_AGAIN)"
    assert failure("claude", words).kind is FailureKind.MODEL_UNREACHABLE
