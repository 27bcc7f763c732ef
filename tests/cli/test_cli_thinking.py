"""Thinking runs at the command line, through real SDKs: shown, paid for, killed, refused, replayed."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_kit import Command
from rich.console import Console

from codepilot.cli.live import make_view
from codepilot.core.events import Event, EventType, ModelAsked, State, TurnStarted
from codepilot.core.run import Run
from model_server import KEY, Answer, Call, HttpError, ModelServer, Request, Tokens
from ready import Started


def result(**fields: object) -> str:
    return f"<result>{json.dumps(fields)}</result>"


def patch(old: str, new: str) -> Call:
    code = f"write_file('shop.py', read_file('shop.py').replace({old!r}, {new!r}))"
    return Call("python", {"code": code}, tokens=Tokens(100, 10, cached=1100))


LOOK = Call("python", {"code": "print(read_file('shop.py'))"}, text="I read the code first.")
TRY = Call("python", {"code": "run_tests(['test_shop.py'])"})
MAP = result(build_system="python", test_cmd=["python", "-m", "unittest"])
PLAN = result(nodes=[{"id": "one", "title": "mend it"}], root_cause="the limit itself", approach="include it")
THOUGHT = result(root_cause="only the limit is free now", fix_hypothesis="include the limit")
DONE = result(rationale="include the limit", confidence=0.9)
APPROVE = result(verdict="APPROVE", patch_loc=2, notes="fine")
WRONG, RIGHT = patch("amount > limit", "amount == limit"), patch("amount > limit", "amount >= limit")
SELF_DEBUGGING = (MAP, PLAN, LOOK, WRONG, TRY, patch("amount == limit", "amount >= limit"), TRY, DONE, APPROVE)
CODEACT = ("--agent", "codeact", "--model", "anthropic:claude-sonnet-4-6")


def role_of(request: Request) -> str:
    return request.text.partition("You are the ")[2].partition(".")[0]


def reflecting(request: Request) -> Answer:
    """A model that is wrong until it has reflected; what it says depends on nothing but what it is asked."""
    if role_of(request) != "Implementer":
        return {"RepoMapper": MAP, "Planner": PLAN, "Reflector": THOUGHT, "Reviewer": APPROVE}[role_of(request)]
    if any(message["role"] == "assistant" for message in request.body["messages"]):
        return DONE
    return RIGHT if "only the limit is free now" in request.text else WRONG


def test_a_change_is_made_reported_counted_and_verified_and_the_key_is_nowhere(codepilot: Command, shop: Path) -> None:
    with ModelServer(SELF_DEBUGGING) as server:
        ended = codepilot("fix", str(shop), *CODEACT, **server.environ)
    reported = " ".join((ended.err + ended.out).split())
    assert ended.code == 0, ended.out + ended.err
    for words in (
        "python, tested by python -m unittest",
        "the limit itself; include it",
        "Implementer, turn 1: print(read_file('shop.py'))",
        "Implementer, turn 6: gives its result",
        "verdict confirmed",
    ):
        assert words in reported
    found = codepilot("show", "last", "--json").json
    assert (found["turns"], found["tokens"]) == (9, 9 * 110 + 2 * 1100)
    fresh, cached, output = 9 * 100 * 3e-6, 2 * 1100 * 0.3e-6, 9 * 10 * 15e-6
    assert found["cost_usd"] == pytest.approx(fresh + cached + output, rel=1e-6)
    shown = " ".join(codepilot("show", "last").out.split())
    assert "1 iteration, 9 turns" in shown
    assert "3,190 tokens, $0.0047" in shown
    assert "model anthropic:claude-sonnet-4-6" in shown
    assert "Reviewer, turn 1: gives its result" in codepilot("show", "last", "--events").out
    assert codepilot("verify", found["bundle"]).code == 0
    kept = [path for path in codepilot.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert (codepilot.home / "codepilot.db") in kept
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert KEY not in ended.out + ended.err


@pytest.mark.variants
def test_a_key_that_is_refused_waits_for_a_person_and_goes_on_with_the_right_one(
    codepilot: Command, shop: Path
) -> None:
    def script(request: Request) -> Answer:
        return reflecting(request) if KEY in " ".join(request.headers.values()) else HttpError(401)

    with ModelServer(script) as server:
        wrong = {**server.environ, "ANTHROPIC_API_KEY": "sk-wrong-0123456789abcdefgh"}
        refused = codepilot("fix", str(shop), *CODEACT, **wrong)
        assert refused.code == 3, refused.out + refused.err
        assert len(server.requests) == 1, "a key does not become right by asking again"
        reported = " ".join(refused.out.split())
        assert "does not accept the key" in reported
        assert "Set a valid key in the environment, then `codepilot resume`" in reported
        assert "sk-wrong" not in refused.out + refused.err
        ended = codepilot("resume", "last", "--json", **server.environ)
    assert ended.code == 0, ended.out
    assert ended.json["iterations"] == 2


IN_FLIGHT = {
    "RepoMapper": State.MAP_REPO,
    "Planner": State.PLAN,
    "Implementer": State.IMPLEMENT,
    "Reflector": State.REFLECT,
    "Reviewer": State.REVIEW,
}


@pytest.mark.slow
def test_a_run_killed_in_every_call_asks_the_provider_no_more_than_it_must(codepilot: Command, shop: Path) -> None:
    living: list[Started] = []
    died: set[State] = set()

    def deadly(request: Request) -> Answer:
        state = IN_FLIGHT[role_of(request)]
        if state not in died:
            died.add(state)
            living[-1].kill()
        return reflecting(request)

    with ModelServer(deadly) as server:
        command = ("fix", str(shop), "--agent", "codeact", "--model", server.compatible, "--json")
        for _ in range(len(State)):
            life = codepilot.start(*command, **server.environ)
            living.append(life)
            out, _ = life.communicate(timeout=300)
            if life.returncode != -signal.SIGKILL:
                break
            command = ("resume", "last", "--json")
        asked = len(server.requests)
    assert life.returncode == 0, out
    assert died == set(IN_FLIGHT.values())
    found = json.loads(out)
    assert (found["status"], found["iterations"], found["turns"]) == ("DONE", 2, 8)
    assert asked == found["turns"] + len(IN_FLIGHT)
    with codepilot.runtime() as runtime:
        events = runtime.store.events(found["run_id"])
        runtime.store.check(found["run_id"])
    lost = [
        event.data.estimate.tokens
        for event, after in itertools.pairwise(events)
        if isinstance(event.data, ModelAsked) and not isinstance(after.data, TurnStarted)
    ]
    used = sum(event.data.usage.tokens for event in events if isinstance(event.data, TurnStarted))
    assert len(lost) == len(IN_FLIGHT)
    assert found["tokens"] == used + sum(lost), "a call in flight is charged its estimate"


def normalised(events: Sequence[Event], run: Run) -> list[str]:
    """The events without times, identities, and the name of the model that the task asks for."""
    lines = []
    for event in events:
        text = event.model_dump_json(exclude={"event_id", "run_id", "at"})
        text = text.replace(run.run_id.removeprefix("r-"), "ID").replace(run.task.task_id, "TASK")
        text = text.replace(str(run.task.model), "MODEL") if event.type is EventType.TASK_SPEC_RECORDED else text
        text = re.sub(r'"worker":"[^"]*"', '"worker":"w"', text)
        text = re.sub(r'"(duration_ms|duration_sec)":[\d.e-]+', r'"\1":0', text)
        text = re.sub(r'"snapshot":"[0-9a-f]{64}"', '"snapshot":"with times"', text)
        text = re.sub(r"in \d+\.\d+s", "in 0s", text)
        text = re.sub(r'hash://[^"\\ ;]+|"(sha256|size_bytes)":("[0-9a-f]+"|\d+)', "HASH", text)
        lines.append(text)
    return lines


@pytest.mark.variants
def test_a_run_is_replayed_by_its_id_and_goes_on_at_the_right_turn_when_it_was_killed(
    codepilot: Command, shop: Path
) -> None:
    with ModelServer(reflecting) as server:
        asked = ("--agent", "codeact", "--model", server.compatible)
        assert codepilot("fix", str(shop), *asked, "--json", **server.environ).code == 0
    replay = ("fix", str(shop), "--agent", "codeact", "--model", "replay:last", "--json")
    again = codepilot(*replay)
    assert again.code == 0, again.out + again.err
    life = codepilot.start(*replay)
    with codepilot.runtime() as runtime:
        while (now := runtime.store.load(runtime.store.find("last"))).run_id == again.json["run_id"] or not _tested(
            now
        ):
            assert life.poll() is None, life.communicate()
            time.sleep(0.05)
        life.kill()
        life.communicate()
    resumed = codepilot("resume", "last", "--json")
    assert resumed.code == 0, resumed.out + resumed.err
    with codepilot.runtime() as runtime:
        third, second, first = (runtime.store.load(row.run_id) for row in runtime.store.history(3))
        reported = [normalised(runtime.store.events(run.run_id), run) for run in (first, second)]
        assert third.spent.turns == first.spent.turns
    assert reported[0] == reported[1]
    other = codepilot(*replay, "--prompt", "Something else")
    assert (other.code, "departs from the recording at turn 1" in other.out) == (2, True), other.out + other.err
    assert codepilot("fix", str(shop), "--agent", "codeact", "--model", "replay:r-none").code == 2


def _tested(run: Run) -> bool:
    """No action is under way, which the next process would report as interrupted: the recording was not."""
    return run.state is State.TEST and run.step_open_since is not None


@pytest.mark.variants
def test_a_screen_shows_the_models_words_its_deeds_and_the_money(codepilot: Command, shop: Path) -> None:
    with ModelServer([MAP, PLAN, LOOK, HttpError(401)]) as server:
        assert codepilot("fix", str(shop), *CODEACT, **server.environ).code == 3
    with codepilot.runtime() as runtime:
        run = runtime.store.load(runtime.store.find("last"))
        events = runtime.store.events(run.run_id)
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    cut = next(at for at, event in enumerate(events) if isinstance(event.data, TurnStarted) and at > 30)
    with make_view(screen, run, events[:cut]) as view:
        view.on_text("I have \x1b[31mread it, and now ")
        view.on_text("the limit\nis next.")
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "I have \\x1b[31mread it, and now the limit is next." in shown
    assert "2 turns · 220 of 2,000,000 tokens · $0.001 of $5" in shown
    with make_view(screen, run, events[: cut + 1]):
        pass
    assert "Implementer, turn 1: print(read_file('shop.py'))" in screen.file.getvalue()


def test_no_sdk_is_imported_before_a_model_is_asked(tmp_path: Path) -> None:
    """`import codepilot` is next to nothing, and neither the engine nor a chosen model brings a provider's SDK."""
    code = (
        "import sys, codepilot\n"
        "assert not [name for name in sys.modules if name.startswith(('pydantic', 'rich', 'typer', 'sqlalchemy'))]\n"
        "import codepilot.cli.app, codepilot.engine.worker, codepilot.agents, codepilot.models\n"
        "from codepilot.models import make_model\n"
        "for spec in ('anthropic:claude-sonnet-4-6', 'openai:gpt-5.1', 'openai-compatible:http://127.0.0.1:1#x'):\n"
        "    make_model(spec, environ={'ANTHROPIC_API_KEY': 'k' * 20, 'OPENAI_API_KEY': 'k' * 20})\n"
        "print([name for name in ('anthropic', 'openai', 'httpx', 'genai_prices') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
