"""Agents that think, from the command line: chosen, refused before a run exists, and at work through a real SDK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import Command, Ended

from codepilot.core.events import EventType
from model_server import KEY, Answer, Call, HttpError, ModelServer, Request


def result(**fields: object) -> str:
    return f"<result>{json.dumps(fields)}</result>"


PATCH = "write_file('shop.py', read_file('shop.py').replace('amount > limit', 'amount >= limit'))"
REPLIES = {
    "RepoMapper": result(build_system="python", test_cmd=["python", "-m", "unittest"]),
    "Planner": result(nodes=[{"id": "one", "title": "mend it"}], root_cause="the limit itself", approach="include it"),
    "Reviewer": result(verdict="APPROVE", patch_loc=2, notes="fine"),
    "Reflector": result(root_cause="unclear", fix_hypothesis="include the limit"),
}


def mender(request: Request) -> Answer:
    """What a model would say: each role once, the Implementer acting first."""
    for role, output in REPLIES.items():
        if f"You are the {role}" in request.text:
            return output
    acted = any(message["role"] == "assistant" for message in request.body["messages"])
    return result(rationale="include the limit", confidence=0.9) if acted else Call("python", {"code": PATCH})


@pytest.mark.variants
def test_a_thinking_agent_asks_as_the_reader_says_and_its_use_is_counted(
    codepilot: Command, shop: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config" / "codepilot"
    config.mkdir(parents=True)
    (config / "codepilot.toml").write_text("[models.roles.Planner]\ntemperature = 0.75\nmax_tokens = 333\n")
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    with ModelServer(mender) as server:
        ended = codepilot("fix", str(shop), "--agent", "codeact", "--json", **server.environ, **own)
        requests = server.requests
    assert ended.code == 0, ended.out + ended.err
    assert {request.api for request in requests} == {"anthropic"}
    assert ended.json["tokens"] == 110 * len(requests)
    assert ended.json["cost_usd"] > 0
    asked = [(request.body["temperature"], request.body["max_tokens"]) for request in requests]
    planned = ["You are the Planner" in request.text for request in requests]
    assert {pair == (0.75, 333) for pair, planner in zip(asked, planned, strict=True) if planner} == {True}
    assert (0.75, 333) not in [pair for pair, planner in zip(asked, planned, strict=True) if not planner]
    with codepilot.runtime() as runtime:
        assert runtime.store.load(ended.json["run_id"]).task.model == "anthropic:claude-sonnet-4-6"
    _the_key_is_nowhere(codepilot, ended)
    (config / "codepilot.toml").write_text("[models.roles.Plannr]\ntemperature = 0.75\n")
    ended = codepilot("fix", str(shop), "--agent", "codeact", **server.environ, **own)
    assert ended.code == 2
    assert "did you mean Planner" in ended.out + ended.err


def _the_key_is_nowhere(codepilot: Command, ended: Ended) -> None:
    with codepilot.runtime() as runtime:
        kept = "".join(event.model_dump_json() for event in runtime.store.events(ended.json["run_id"]))
    written = [
        path.read_text(errors="replace") for path in codepilot.home.rglob("*") if path.suffix in (".jsonl", ".json")
    ]
    assert not [text for text in (kept, ended.out, ended.err, *written) if KEY in text]


@pytest.mark.variants
def test_the_fallback_replies_where_the_model_is_overloaded(codepilot: Command, shop: Path) -> None:
    """The fallback is a server of one's own, which has no price."""

    def script(request: Request) -> Answer:
        return HttpError(529) if request.api == "anthropic" else mender(request)

    with ModelServer(script) as server:
        arguments = ("--agent", "codeact", "--fallback-model", server.compatible, "--json")
        ended = codepilot("-v", "fix", str(shop), *arguments, **server.environ)
        asked = [request.api for request in server.requests]
    assert ended.code == 0, ended.out + ended.err
    assert "INFO    codepilot.models" in ended.err, "-v logs to standard error"
    assert asked.count("anthropic") == 3, "a model that is away is left alone for a while"
    assert (ended.json["tokens"], ended.json["cost_usd"]) == (110 * asked.count("openai"), None)
    with codepilot.runtime() as runtime:
        types = [event.type for event in runtime.store.events(ended.json["run_id"])]
    assert EventType.DEPENDENCY_DEGRADED in types
    _the_key_is_nowhere(codepilot, ended)


@pytest.mark.parametrize(
    ("arguments", "environ", "code", "saying"),
    [
        ((), {}, 2, "No model is chosen and there is no key"),
        (("--model", "anthropic:x"), {}, 3, "ANTHROPIC_API_KEY is not set"),
        (("--model", "antropic:x"), {}, 2, "did you mean anthropic"),
        (
            ("--model", "openai-compatible:http://127.0.0.1:1#x", "--fallback-model", "openai:y"),
            {},
            3,
            "OPENAI_API_KEY",
        ),
        ((), {"CODEPILOT_MODELS_DEFAULT": "claude-x"}, 2, "did you mean anthropic:claude-x"),
        (
            ("--model", "openai:x"),
            {"OPENAI_API_KEY": KEY, "CODEPILOT_MODELS_TIMEOUT_SEC": "0"},
            2,
            "models.timeout_sec",
        ),
    ],
)
def test_what_cannot_think_is_refused_before_a_run_exists(
    codepilot: Command, shop: Path, arguments: tuple[str, ...], environ: dict[str, str], code: int, saying: str
) -> None:
    ended = codepilot("fix", str(shop), "--agent", "codeact", *arguments, **environ)
    reported = " ".join((ended.out + ended.err).split())
    assert saying in reported
    assert "→" in reported
    assert ended.code == code
    assert codepilot.newest() is None


def test_a_model_for_an_agent_that_asks_none_is_a_mistake(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--model", "anthropic:x", ANTHROPIC_API_KEY=KEY)
    assert ended.code == 2
    assert "uses no model" in ended.out + ended.err


@pytest.mark.variants
def test_a_task_can_be_queued_for_workers_that_have_the_key(codepilot: Command, shop: Path) -> None:
    queued = codepilot("submit", str(shop), "--agent", "codeact", "--model", "anthropic:claude-sonnet-4-6", "--json")
    assert queued.code == 0, queued.out + queued.err
    with ModelServer(mender) as server:
        worked = codepilot("worker", "--until-idle", "--json", "--listen", "127.0.0.1:0", **server.environ)
        assert server.requests
    assert worked.code == 0, worked.err
    assert KEY not in worked.out + worked.err
    assert codepilot("show", "last", "--json").json["status"] == "DONE"


def test_doctor_tells_which_models_could_be_asked(codepilot: Command, tmp_path: Path) -> None:
    def models(**environ: str) -> dict[str, tuple[bool, str]]:
        reported = codepilot("doctor", "--no-tests", "--json", cwd=tmp_path, **environ)
        assert (reported.code, KEY in reported.out) == (0, False)
        return {one["name"]: (one["ok"], one["detail"]) for one in reported.json["findings"] if "model" in one["name"]}

    without = models()
    assert without["model anthropic"] == (False, "ANTHROPIC_API_KEY is not set")
    assert without["model by default"] == (False, "none; the built-in agent needs no model")
    reported = models(ANTHROPIC_API_KEY=KEY, OPENAI_BASE_URL="https://proxy.example/v1")
    assert reported["model anthropic"] == (True, "ANTHROPIC_API_KEY is set")
    assert reported["model openai"] == (False, "OPENAI_API_KEY is not set; asked at https://proxy.example/v1")
    assert reported["model by default"] == (True, "anthropic:claude-sonnet-4-6")
