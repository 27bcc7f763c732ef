"""The real programs from npm in the sandbox, against a scripted model behind the gateway."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from agent_place import Place

from agent_clis import path_with
from agent_script import AgentScript, Bash, Write
from codepilot.agents.cli.adapters import adapter
from codepilot.agents.cli.protocol import (
    AgentEvent,
    AgentMessage,
    Delivery,
    Failed,
    Finished,
    Permission,
    RunningAgent,
    SessionOpened,
    ToolCall,
    ToolResult,
    TurnEnded,
)
from codepilot.core.failures import FailureKind
from model_answers import Answer, Garbage, Hang, refusals
from model_server import KEY, ModelServer

QUIET_SEC = 90.0
"""The longest silence of a program that works: a cold start on a busy machine."""
APIS = {"claude": "anthropic", "codex": "responses", "gemini": "gemini", "opencode": "anthropic"}
EVERY = [
    pytest.param("claude", marks=pytest.mark.agents),
    pytest.param("codex", marks=pytest.mark.agents),
    pytest.param("gemini", marks=pytest.mark.agents),
    pytest.param("opencode", marks=pytest.mark.agents),
]
FORGETFUL = ("gemini", "opencode")
"""They may no longer know a session whose first turn was cut off: Gemini itself empties the file that it looks into."""
DENIED = "That file is protected."


@contextmanager
def running(place: Place, name: str, script: Any, **fields: Any) -> Iterator[tuple[RunningAgent, ModelServer]]:
    with place.model(script) as (server, endpoint):
        agent = adapter(name).start(place.start(environ={"PATH": path_with(name)}, endpoint=endpoint, **fields))
        try:
            yield agent, server
        finally:
            agent.close()


def play(
    agent: RunningAgent,
    on: Callable[[AgentEvent], None] = lambda event: None,
    allow: Callable[[Permission], bool] = lambda asked: True,
    quiet_sec: float = QUIET_SEC,
) -> list[AgentEvent]:
    """Everything it reports. It is given up after a long silence."""
    seen: list[AgentEvent] = []
    last_event = time.monotonic()
    for event in agent.events(0.2):
        if event is None:
            if time.monotonic() - last_event > quiet_sec:
                return seen
            continue
        last_event = time.monotonic()
        seen.append(event)
        on(event)
        if isinstance(event, Permission):
            allowed = allow(event)
            agent.answer(event.id, allowed, "" if allowed else DENIED)
    return seen


def of(seen: list[AgentEvent], kind: type) -> list[Any]:
    return [event for event in seen if isinstance(event, kind)]


@pytest.mark.parametrize("name", [pytest.param("codex", id="smoke"), *EVERY])
def test_it_edits_a_file_and_runs_a_command_when_it_may(place: Place, name: str) -> None:
    script = AgentScript(Write("pkg/hello.txt", "hello\n"), Bash("echo again >> pkg/hello.txt"), "All done.")
    with running(place, name, script) as (agent, server):
        seen = play(agent)
    assert seen[-1] == Finished("All done.")
    assert [(asked.operation, asked.subject) for asked in of(seen, Permission)] == [
        ("path", "pkg/hello.txt"),
        ("command", "echo again >> pkg/hello.txt"),
    ]
    assert [call.subject for call in of(seen, ToolCall)] == ["pkg/hello.txt", "echo again >> pkg/hello.txt"]
    assert [result.ok for result in of(seen, ToolResult)] == [True, True]
    assert of(seen, SessionOpened)[0].session_id == agent.session_id
    assert place.text("pkg/hello.txt") == "hello\nagain\n"
    assert all(KEY in str(request.headers) for request in server.requests), "the gateway adds the key"


@pytest.mark.parametrize("name", EVERY)
def test_a_refused_tool_does_nothing_and_is_reported_as_refused(place: Place, name: str) -> None:
    script = AgentScript(Write("secret.txt", "x\n"), "I could not.", "I know the reason.")
    with running(place, name, script) as (agent, server):
        seen = play(agent, allow=lambda asked: False)
    assert isinstance(seen[-1], Finished), "the session itself ended well"
    assert [result.denied for result in of(seen, ToolResult)] == [True]
    assert place.text("README") == "hello\n"
    with pytest.raises(FileNotFoundError):
        (place.tree / "secret.txt").read_text()
    assert any(DENIED in request.text for request in server.requests), "the model got the reason"


@pytest.mark.parametrize("name", EVERY)
def test_messages_reach_it_within_and_between_turns(place: Place, name: str) -> None:
    sent: list[Delivery] = []
    warning = AgentMessage(
        type="checkpoint_violation",
        severity="error",
        content="src/a.py is outside the allowed areas.",
        data={"checkpoint_id": "ckpt-1", "violations": [{"file": "src/a.py"}]},
        requires_acknowledgment=True,
    )

    def react(event: AgentEvent) -> None:
        if isinstance(event, Permission):
            threading.Thread(target=lambda: sent.append(agent.send(warning, 60.0))).start()
        if isinstance(event, TurnEnded) and len(of(seen_by, TurnEnded)) == turns:
            sent.append(agent.send(AgentMessage(type="user", content="Add a test."), 0.0))
        seen_by.append(event)

    seen_by: list[AgentEvent] = []
    turns = 1 if name in ("gemini", "opencode") else 0
    with running(place, name, AgentScript(Bash("sleep 1; true"), "Done.")) as (agent, server):
        seen = play(agent, react)
    assert isinstance(seen[-1], Finished)
    assert Delivery(True, True) in sent
    assert Delivery(True) in sent
    texts = [request.text for request in server.requests]
    assert any("outside the allowed areas" in text and "Add a test." not in text for text in texts)
    assert any("Add a test." in text for text in texts)


@pytest.mark.parametrize("name", EVERY)
def test_it_is_interrupted_and_goes_on(place: Place, name: str) -> None:
    script = AgentScript(Bash("for i in $(seq 60); do sleep 1; done"), "Went on.", at=lambda it: "Go on." in it.text)

    def act(event: AgentEvent) -> None:
        if isinstance(event, Permission):
            threading.Timer(2.0, agent.interrupt).start()
        elif isinstance(event, TurnEnded) and not sent:
            sent.append(agent.send(AgentMessage(type="user", content="Go on.")))

    sent: list[Delivery] = []
    started = time.monotonic()
    with running(place, name, script) as (agent, _):
        seen = play(agent, act)
    assert seen[-1] == Finished("Went on.")
    assert time.monotonic() - started < 55


@pytest.mark.parametrize("name", EVERY)
def test_a_session_goes_on_after_its_program_was_killed(place: Place, name: str) -> None:
    def kill(event: AgentEvent) -> None:
        if isinstance(event, Permission):
            threading.Timer(1.0, agent.close).start()

    with running(place, name, AgentScript(Bash("for i in $(seq 60); do sleep 1; done"))) as (agent, _):
        seen = play(agent, kill)
        session = agent.session_id
    assert isinstance(seen[-1], Failed)
    assert seen[-1].failure.kind is FailureKind.AGENT_CRASHED
    script = AgentScript("Resumed.", at=lambda request: 0)
    with running(place, name, script, resume=session, prompt="Continue.") as (agent, server):
        seen = play(agent)
        known = agent.session_id == session
    if name in FORGETFUL and not known:
        assert isinstance(seen[-1], Failed) and seen[-1].failure.details["session"] == "unknown", seen
        return
    assert known and seen[-1] == Finished("Resumed."), seen
    assert any("Fix the bug." in request.text for request in server.requests), "it remembers the task"


@pytest.mark.parametrize("name", EVERY)
def test_a_session_that_is_gone_is_reported_as_such(place: Place, name: str) -> None:
    lost = "11111111-2222-4333-8444-555555555555"
    with running(place, name, AgentScript("Hello."), resume=lost) as (agent, _):
        end = play(agent)[-1]
    assert isinstance(end, Failed)
    assert end.failure.kind is FailureKind.AGENT_CRASHED
    assert end.failure.details["session"] == "unknown"


_PATIENT = {("opencode", "plan"), ("opencode", "overload")}
"""Opencode waits as long as the provider says, without a word: only its silence shows."""


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ("key", FailureKind.MODEL_AUTH),
        ("rate", FailureKind.MODEL_QUOTA),
        ("credit", FailureKind.MODEL_QUOTA),
        ("plan", FailureKind.MODEL_QUOTA),
        ("overload", FailureKind.MODEL_OVERLOADED),
    ],
)
def test_every_refusal_has_its_failure(place: Place, name: str, refusal: str, kind: FailureKind) -> None:
    patient = (name, refusal) in _PATIENT
    with running(place, name, AgentScript(refusals(refusal)[APIS[name]])) as (agent, _):
        seen = play(agent, quiet_sec=25.0 if patient else QUIET_SEC)
    if not patient:
        assert isinstance(seen[-1], Failed)
        assert seen[-1].failure.kind is kind
    assert not of(seen, Finished)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("answer", [Garbage(), Hang()], ids=["garbage", "hang"])
def test_a_model_that_talks_nonsense_or_nothing(place: Place, name: str, answer: Answer) -> None:
    with running(place, name, AgentScript(answer)) as (agent, _):
        seen = play(agent, quiet_sec=20.0 if isinstance(answer, Hang) else QUIET_SEC)
    if isinstance(answer, Hang):
        assert not of(seen, Finished) and not of(seen, Failed), "its silence is for a timer of ours"
    else:
        assert isinstance(seen[-1], Failed)
        assert seen[-1].failure.kind is FailureKind.MODEL_BAD_REPLY


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_a_program_that_is_there_is_probed(name: str) -> None:
    probe = adapter(name).probe({"PATH": path_with(name), "HOME": "/nonexistent"})
    assert probe.found and probe.version and not probe.logged_in and not probe.problem
    assert "interactive_mode" in probe.works
