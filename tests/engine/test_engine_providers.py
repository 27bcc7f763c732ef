"""Thinking runs through the real SDKs and the engine, against a scripted provider: what goes wrong, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, result, states

from codepilot.core.events import Event, EventType, State
from codepilot.core.failures import FailureKind
from codepilot.core.run import Run
from codepilot.engine import (
    Checking,
    Runtime,
    Worker,
    WorkerPool,
    cancel,
    make_task,
    pause,
    resume,
    submit,
    verify_bundle,
)
from codepilot.engine import Request as Wanted
from codepilot.store import Claim, Requests
from codepilot.telemetry import now_us
from configured import configured, reconfigured
from model_server import Answer, Call, Cut, Garbage, HttpError, ModelServer, Request, StreamError, TextReply

ANTHROPIC = "anthropic:claude-sonnet-4-6"
THOUGHT = result(root_cause="it is no product", fix_hypothesis="multiply")


def run(code: str, text: str = "") -> Call:
    return Call("python", {"code": code}, text=text)


def replaced(old: str, new: str) -> Call:
    return run(f"write_file('shapes.py', read_file('shapes.py').replace({old!r}, {new!r}, 1))")


LOOK = run("print(read_file('shapes.py'))", "I read the code first.")
TRY = run("run_tests(['test_shapes.py'])")
WRONG, RIGHT = replaced("width + height", "width - height"), replaced("width + height", "width * height")
MEND = replaced("width - height", "width * height")


def without_tools(script: Sequence[Answer]) -> Callable[[Request], Answer]:
    """A server that knows no tools, and a model that writes fenced blocks therefore."""
    left = iter(script)

    def answer(request: Request) -> Answer:
        if "tools" in request.body:
            return HttpError(400, {"error": {"message": "this model does not support tools"}})
        output = next(left)
        if isinstance(output, Call) and not isinstance(output.arguments, str):
            return f"{output.text}\n```python\n{output.arguments['code']}\n```"
        return output

    return answer


class Place:
    """A runtime with a provider: `begin` records a run, `work` drives it as a worker would."""

    def __init__(self, runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtime, self.checkout, self._monkeypatch = runtime, checkout, monkeypatch
        self.received: list[str] = []

    def begin(self, server: ModelServer, model: str = ANTHROPIC, **asked: Any) -> Run:
        for name, value in server.environ.items():
            self._monkeypatch.setenv(name, value)
        wanted = Wanted(repo=str(self.checkout), agent="codeact", model=model, **asked)
        self.runtime = reconfigured(self.runtime)
        settings = configured({**server.environ, "CODEPILOT_POLICY_GENERATED_CODE": "off"})
        return submit(self.runtime, make_task(wanted, settings))

    def work(self, run_id: str) -> tuple[Run, list[Event]]:
        ended = Worker(self.runtime, on_text=self.received.append).drive(run_id)
        self.runtime.store.check(run_id)
        return ended, self.runtime.store.events(run_id)

    def drive(self, server: ModelServer, model: str = ANTHROPIC, **asked: Any) -> tuple[Run, list[Event]]:
        return self.work(self.begin(server, model, **asked).run_id)


@pytest.fixture
def place(runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(runtime, checkout, monkeypatch)


def of(events: Sequence[Event], kind: EventType) -> list[Any]:
    return [event.data for event in events if event.type is kind]


@pytest.mark.variants
@pytest.mark.parametrize("model", [pytest.param(ANTHROPIC, marks=pytest.mark.slow), "compatible"])
def test_a_model_reads_patches_wrongly_reads_the_error_and_patches_right(place: Place, model: str) -> None:
    script = [MAP, PLAN, LOOK, WRONG, TRY, MEND, TRY, DONE, APPROVE]
    with ModelServer(without_tools(script) if model == "compatible" else script) as server:
        ended, events = place.drive(server, server.compatible if model == "compatible" else model)
        requests = [request for request in server.requests if model != "compatible" or "tools" not in request.body]
    assert (ended.state, ended.verdict, ended.spent.iterations) == (State.DONE, "confirmed", 1)
    assert "I read the code first." in "".join(place.received)
    assert len(place.received) > len(requests), "words arrive one by one"
    assert "return width + height" in requests[3].last
    assert "AssertionError: -1 != 12" in requests[5].last
    assert "2 passed" in requests[7].last
    assert ended.spent.turns == len(requests) == len(of(events, EventType.TURN_STARTED))
    assert ended.spent.tokens == 110 * len(requests)
    assert (ended.spent.cost_usd > 0) == (model != "compatible")
    assert [done.node for done in of(events, EventType.NODE_SUCCEEDED)] == ["one"]
    assert ended.proposal is not None
    assert "+    return width * height" in ended.proposal.patch.diff
    assert ended.bundle is not None
    if model == ANTHROPIC:  # a bundle does not tell who was asked
        assert verify_bundle(place.runtime, Path(ended.bundle), Checking()).ok


@pytest.mark.variants
def test_two_red_cycles_lead_to_a_new_plan_and_it_holds(place: Place) -> None:
    other = replaced("width + height", "width // height")
    script = [MAP, PLAN, WRONG, DONE, THOUGHT, other, DONE, THOUGHT, PLAN, RIGHT, DONE, APPROVE]
    with ModelServer(script) as server:
        ended, events = place.drive(server)
        replanned = server.requests[8].text
    assert (ended.state, ended.verdict, ended.spent.iterations) == (State.DONE, "confirmed", 3)
    assert states(events).count(State.PLAN) == 2
    assert "+    return width - height" in replanned
    assert "+    return width // height" in replanned


@pytest.mark.variants
def test_a_change_is_refused_by_the_checks_then_by_the_reviewer_and_improves(place: Place) -> None:
    debug = replaced("return width + height", "print(width)\n    return width * height")
    refusal = result(verdict="REQUEST_CHANGES", reasons=["say which unit"])
    better = replaced("return width + height", "return width * height  # in square metres")
    with ModelServer([MAP, PLAN, debug, DONE, RIGHT, DONE, refusal, better, DONE, APPROVE]) as server:
        ended, events = place.drive(server)
        asked = [request.text for request in server.requests]
    assert (ended.state, ended.spent.iterations) == (State.DONE, 3)
    reviews = of(events, EventType.REVIEW_RECORDED)
    assert [review.verdict for review in reviews] == ["REQUEST_CHANGES", "REQUEST_CHANGES", "APPROVE"]
    assert "no_debug_left" in reviews[0].reasons[0]
    assert "no_debug_left" in asked[4]
    assert "say which unit" in asked[7]
    assert ended.proposal is not None
    assert "square metres" in ended.proposal.patch.diff


RED = [WRONG, DONE, THOUGHT]


@pytest.mark.parametrize(
    ("budget", "first", "second"),
    [
        ({"iterations": 1}, [MAP, PLAN, *RED], [RIGHT, DONE, APPROVE]),
        pytest.param({"turns": 4}, [MAP, PLAN, LOOK, TRY], [RIGHT, DONE, APPROVE], marks=pytest.mark.slow),
        ({"tokens": 5_500}, [MAP, PLAN], [RIGHT, DONE, APPROVE]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_spent_budget_stops_before_the_next_call_and_is_granted_once_more(
    place: Place, budget: dict[str, float], first: list[Answer], second: list[Answer]
) -> None:
    with ModelServer([*first, *second]) as server:
        ended, _ = place.drive(server, budget=budget)
        asked = len(server.requests)
        assert (ended.state, ended.failure and ended.failure.kind) == (State.ABORTED, FailureKind.BUDGET_EXCEEDED)
        assert ended.failure is not None
        assert ended.failure.details["budget"] == next(iter(budget))
        assert ended.spent.tokens == 110 * asked
        assert asked == len(first), "nothing was asked that the budget had no room for"
        assert resume(place.runtime, ended.run_id).grants == 2
        again, _ = place.work(ended.run_id)
    assert (again.state, again.verdict) == (State.DONE, "confirmed"), again.failure
    assert "iterations" not in budget or again.spent.iterations == 2


@pytest.mark.variants
def test_a_model_that_thinks_for_too_long_is_hung_up_on(place: Place) -> None:
    with ModelServer([TextReply(MAP, pause_sec=90.0)]) as server:
        ended, events = place.drive(server, budget={"step_wall_sec": 6.0})
        assert ended.failure is not None
        assert (ended.state, ended.failure.details["budget"]) == (State.ABORTED, "step_wall_sec")
        assert len(server.requests) == 1
        _until(lambda: server.hung_up == 1)
    assert ended.spent.wall_us < 60e6
    assert ended.spent.tokens == of(events, EventType.MODEL_ASKED)[0].estimate.tokens
    again = resume(place.runtime, ended.run_id)
    assert (again.state, again.grants) == (State.MAP_REPO, 2)


@pytest.mark.variants
def test_a_patch_that_is_too_long_goes_back_and_a_command_that_is_too_slow_is_reported(place: Place) -> None:
    padded = "return width * height\n" + "\n\n\ndef more(): return 1\n" * 9
    long = replaced("return width + height", padded)
    slow = run("import time\ntime.sleep(60)")
    budget = {"patch_lines": 10, "command_sec": 3}
    with ModelServer([MAP, PLAN, slow, long, DONE, RIGHT, DONE, APPROVE]) as server:
        ended, events = place.drive(server, budget=budget)
        reported, refused = server.requests[3].last, server.requests[5].text
    assert ended.state is State.DONE
    assert "timeout" in reported
    assert "patch_within_size_limit" in refused
    assert of(events, EventType.REVIEW_RECORDED)[0].verdict == "REQUEST_CHANGES"


def test_one_run_meets_what_providers_do_and_goes_on(place: Place) -> None:
    troubles = [
        HttpError(529),
        MAP,
        HttpError(429, headers={"Retry-After": "2"}),
        PLAN,
        Cut("half a th"),
        RIGHT,
        Garbage(),
        Call("python", "{not json"),
        DONE,
        StreamError(),
        APPROVE,
    ]
    with ModelServer(troubles) as server:
        ended, events = place.drive(server)
        assert len(server.requests) == len(troubles)
    assert (ended.state, ended.verdict) == (State.DONE, "confirmed")
    assert ended.spent.turns == 5
    asked = [event.at for event in events if event.type in (EventType.MODEL_ASKED, EventType.TURN_STARTED)]
    assert asked[3] - asked[2] >= 2_000_000, "the provider asked to be left alone for so long"


def test_a_refusal_ends_the_run_with_what_the_model_wrote(place: Place) -> None:
    with ModelServer([MAP, TextReply("I will not do that.", stop="refusal")]) as server:
        ended, _ = place.drive(server)
    assert ended.failure is not None
    assert (ended.state, ended.failure.kind) == (State.FAILED, FailureKind.MODEL_REFUSED)
    assert "I will not do that" in ended.failure.message


@pytest.mark.variants
def test_a_provider_for_whom_every_request_is_too_long_ends_the_run_and_a_resumed_one_begins_anew(place: Place) -> None:
    output = "prompt is too long: 250000 tokens > 200000 maximum"
    long = HttpError(400, {"type": "error", "error": {"type": "invalid_request_error", "message": output}})
    with ModelServer([MAP, PLAN, LOOK, TRY, *[long] * 3, RIGHT, DONE, APPROVE]) as server:
        ended, _ = place.drive(server)
        assert len(server.requests) == 7, "each one shorter than the one before"
        assert ended.failure is not None
        assert (ended.state, ended.failure.kind) == (State.FAILED, FailureKind.CONTEXT_EXCEEDED)
        assert output in ended.failure.message
        resume(place.runtime, ended.run_id)
        again, _ = place.work(ended.run_id)
        before, anew = (len(server.requests[number].body["messages"]) for number in (4, 7))
    assert (again.state, again.verdict) == (State.DONE, "confirmed")
    assert anew < before, "the conversation begins anew"


def test_a_quota_parks_the_run_and_a_worker_goes_on_by_itself(place: Place) -> None:
    resets: list[float] = []

    def spent(request: Request) -> Answer:
        if request.number != 1:
            return [MAP, "", PLAN, RIGHT, DONE, APPROVE][request.number]
        resets.append(time.time() + 2.5)
        error = {"type": "rate_limit_error", "message": "exceeded your current quota", "resets_at": resets[0]}
        return HttpError(429, {"error": error})

    with ModelServer(spent) as server:
        begun = place.begin(server)
        pool = WorkerPool(place.runtime, Worker(place.runtime), concurrency=1)
        working = threading.Thread(target=pool.run)
        working.start()
        try:
            _until(lambda: place.runtime.store.load(begun.run_id).terminal, 60)
        finally:
            pool.stop()
            working.join()
        asked = len(server.requests)
    ended, events = place.runtime.store.load(begun.run_id), place.runtime.store.events(begun.run_id)
    assert (ended.state, asked) == (State.DONE, 6)
    assert [blocked.until for blocked in of(events, EventType.RUN_BLOCKED)] == [round(resets[0] * 1e6)]
    assert next(event.at for event in events if event.type is EventType.RUN_RESUMED) >= resets[0] * 1e6


def test_cancelling_hangs_up_on_a_stalled_stream(place: Place) -> None:
    with ModelServer([TextReply(MAP, pause_sec=60.0)]) as server:
        begun = place.begin(server)
        working = threading.Thread(target=place.work, args=(begun.run_id,))
        working.start()
        _until(lambda: len(server.requests) == 1, 30)
        cancel(place.runtime, begun.run_id)
        working.join(30)
        assert not working.is_alive()
        _until(lambda: server.hung_up == 1)
    ended = place.runtime.store.load(begun.run_id)
    assert ended.failure is not None
    assert (ended.state, ended.failure.kind) == (State.ABORTED, FailureKind.CANCELLED)
    estimate = of(place.runtime.store.events(begun.run_id), EventType.MODEL_ASKED)[0].estimate
    assert ended.spent.tokens == estimate.tokens


def test_pausing_waits_for_the_reply_in_flight_and_asks_for_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    really = place.runtime.store.queue.held_claims

    def standing(worker: str) -> dict[Claim, Requests]:
        found = really(worker)
        seen.append(any(asked.pause for asked in found.values()))
        return found

    def takes_its_time(request: Request) -> Answer:
        """Until the watcher has seen the request, and had its time to act on it."""
        _until(lambda: seen.count(True) >= 3, 60)
        return MAP

    monkeypatch.setattr(place.runtime.store.queue, "held_claims", standing)
    with ModelServer(takes_its_time) as server:
        begun = place.begin(server)
        working = threading.Thread(target=place.work, args=(begun.run_id,))
        working.start()
        _until(lambda: len(server.requests) == 1, 60)
        pause(place.runtime, begun.run_id)
        working.join(90)
        assert not working.is_alive()
        assert (len(server.requests), server.hung_up) == (1, 0)
    paused, events = place.runtime.store.load(begun.run_id), place.runtime.store.events(begun.run_id)
    assert (paused.state, paused.spent.turns, paused.spent.tokens) == (State.PAUSED, 1, 110)
    assert len(of(events, EventType.TURN_STARTED)) == 1


def _until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = now_us() + int(seconds * 1e6)
    while not true() and now_us() < deadline:
        time.sleep(0.02)
    assert true()
