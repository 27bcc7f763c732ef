from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from codepilot.core.events import Event, EventType, TurnStarted
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import ModelSettings
from codepilot.models import Message, Retry, fingerprint, make_model, settled, usual_model
from codepilot.models.choose import configured_models
from codepilot.models.prices import Prices
from model_server import KEY, ModelServer

KEYS = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
HELLO = (Message(role="user", content="hello"),)


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ("antropic:claude-sonnet-4-6", "did you mean anthropic:…"),
        ("claude-sonnet-4-6", "did you mean anthropic:claude-sonnet-4-6"),
        ("gpt-5", "did you mean openai:gpt-5"),
        ("anthropic:", "names no model of anthropic"),
        ("anthropic", "names no model of anthropic"),
        ("", "There is no model ''"),
        ("openai-compatible:http://127.0.0.1:1/v1", "is not openai-compatible:URL#NAME"),
        ("openai-compatible:127.0.0.1:1#x", "is not the address of a model"),
        ("openai-compatible:file:///etc/passwd#x", "is not the address of a model"),
        ("openai-compatible:http://[::1#x", "is not the address of a model"),
        ("openai-compatible:http://models.example/v1#x", "unencrypted"),
        ("openai-compatible:https://me@models.example/v1#x", "contains a user name or a password"),
        ("openai-compatible:https://me:pass-word1@models.example/v1#x", "seems to contain a key or a password"),
        (
            "openai-compatible:https://h.example/v1?api_key=pass-word1-0123456789#x",
            "seems to contain a key or a password",
        ),
        ("openai:sk-pass-word1-0123456789", "seems to contain a key or a password"),
        ("sk-pass-word1-0123456789", "seems to contain a key or a password"),
        ("replay:/no/such/file", "is not a file that can be read"),
        ("scripted:/no/such/file", "is not a file that can be read"),
    ],
)
def test_a_name_that_cannot_be_a_model_is_explained(spec: str, reported: str) -> None:
    with pytest.raises(CodePilotError) as caught:
        make_model(spec, environ=KEYS)
    assert reported in caught.value.failure.message
    assert caught.value.failure.next_action
    assert "pass-word1" not in caught.value.failure.model_dump_json()


def test_plain_http_to_another_machine_can_be_allowed() -> None:
    spec = "openai-compatible:http://models.example/v1#x"
    assert make_model(spec, environ={}, settings=ModelSettings(plain_http=True)).name == spec


@pytest.mark.parametrize(("spec", "variable"), [("anthropic:x", "ANTHROPIC_API_KEY"), ("openai:x", "OPENAI_API_KEY")])
def test_a_missing_key_is_reported_before_anything_is_asked(spec: str, variable: str) -> None:
    with pytest.raises(CodePilotError, match=f"{variable} is not set") as caught:
        make_model(spec, environ={variable: "  "})
    assert caught.value.kind is FailureKind.MODEL_AUTH
    assert make_model(spec, environ={}, here=False).name == spec


@pytest.mark.parametrize("key", ["sk-two words-0123456789", "sk-line\nbreak-0123456789", "sk-…-0123456789abcdef"])
def test_what_cannot_be_a_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(CodePilotError, match="contains characters that no key has") as caught:
        make_model("anthropic:x", environ={"ANTHROPIC_API_KEY": key})
    assert "0123456789" not in caught.value.failure.model_dump_json()


def test_the_usual_model_is_the_configured_one_else_the_first_with_a_key() -> None:
    settings = ModelSettings(default="openai:gpt-5")
    assert usual_model(KEYS, settings) == "openai:gpt-5"
    assert usual_model(KEYS, ModelSettings()) == "anthropic:claude-sonnet-4-6"
    assert usual_model({"OPENAI_API_KEY": KEY}, ModelSettings()).startswith("openai:")
    with pytest.raises(CodePilotError, match="No model is chosen"):
        usual_model({}, ModelSettings())


def test_the_usual_models_have_a_price_and_a_context() -> None:
    for spec in (usual_model(KEYS, ModelSettings()), usual_model({"OPENAI_API_KEY": KEY}, ModelSettings())):
        model = make_model(spec, environ=KEYS)
        assert model.context_tokens
        assert model.estimate(HELLO, 1000).cost_usd > 0


def test_an_estimate_covers_what_goes_into_the_providers_cache() -> None:
    spec = "anthropic:claude-sonnet-4-6"
    reported = make_model(spec, environ=KEYS).estimate([Message(role="user", content="x" * 350_000)], 1)
    used = Prices("claude-sonnet-4-6", provider="anthropic").priced(reported, written=reported.input_tokens)
    assert reported.cost_usd >= used.cost_usd > 0


def test_the_address_comes_from_the_environment_before_the_settings() -> None:
    with ModelServer(["here"]) as server:
        settings = ModelSettings(anthropic_url="http://127.0.0.1:9")
        model = make_model("anthropic:x", environ=server.environ, settings=settings)
        assert model.reply(HELLO, temperature=0.0, max_tokens=9).text == "here"
    with ModelServer(["there"]) as server:
        settings = ModelSettings(anthropic_url=server.url)
        model = make_model("anthropic:x", environ={"ANTHROPIC_API_KEY": KEY}, settings=settings, retry=Retry(tries=1))
        assert model.reply(HELLO, temperature=0.0, max_tokens=9).text == "there"


def test_models_come_from_files(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["one", {"text": "two", "stop_reason": "length"}]))
    model = make_model(f"scripted:{script}", environ={})
    replies = [model.reply(HELLO, temperature=0.0, max_tokens=9) for _ in range(2)]
    assert [(reply.text, reply.stop_reason) for reply in replies] == [("one", "end"), ("two", "length")]
    action = {"reply": "as then", "request": list(fingerprint(HELLO))}
    turn = TurnStarted(turn=1, action=action)
    event = Event(type=EventType.TURN_STARTED, data=turn, event_id="e", seq=1, run_id="r-1", at=0)
    recording = tmp_path / "transcript.jsonl"
    recording.write_text(f"{event.model_dump_json()}\n")
    model = make_model(f"replay:{recording}", environ={})
    assert model.reply(HELLO, temperature=0.0, max_tokens=9).text == "as then"
    script.write_text('{"not": "a list"}')
    with pytest.raises(CodePilotError, match="is not a JSON array of replies"):
        make_model(f"scripted:{script}", environ={})


def test_a_file_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settled("replay:run.jsonl") == f"replay:{tmp_path}/run.jsonl"
    assert settled("anthropic:x") == "anthropic:x"


def test_another_package_can_bring_a_kind_of_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "their_models-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-models\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[codepilot.models]\ntheirs = their_models:make\nbroken = their_models:nothing\n"
    )
    (tmp_path / "their_models.py").write_text(
        "from codepilot.models import ScriptedModel\n"
        "def make(name, environ, settings):\n    return ScriptedModel([name.upper()], name='theirs:' + name)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = make_model("theirs:small", environ={})
    assert (model.name, model.reply(HELLO, temperature=0.0, max_tokens=9).text) == ("theirs:small", "SMALL")
    with pytest.raises(CodePilotError, match="cannot be made: AttributeError"):
        make_model("broken:x", environ={})
    with pytest.raises(CodePilotError, match="did you mean theirs"):
        make_model("their:x", environ={})


def test_what_is_configured_tells_of_keys_and_never_the_keys() -> None:
    reported = configured_models(
        {"ANTHROPIC_API_KEY": KEY, "OPENAI_BASE_URL": "https://proxy.example/v1"}, ModelSettings()
    )
    assert [(one.name, one.key_present, one.url) for one in reported] == [
        ("anthropic", True, None),
        ("openai", False, "https://proxy.example/v1"),
        ("openai-compatible", False, None),
    ]
    assert KEY not in repr(reported)


def test_a_password_in_an_address_is_not_reported() -> None:
    reported = configured_models({"ANTHROPIC_BASE_URL": "https://me:pass-word1@proxy.example"}, ModelSettings())
    assert reported[0].url == "https://me:[redacted]@proxy.example"


NO_SDK = """
import sys
before = set(sys.modules)
{statement}
loaded = {{name.partition(".")[0] for name in sys.modules}}
assert not loaded & {{"anthropic", "openai", "genai_prices", "httpx", "httpx2"}}, loaded
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import codepilot, codepilot.models, codepilot.agents",
        "from typer.testing import CliRunner\nfrom codepilot.cli.app import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
        "from codepilot.models import make_model\n"
        "make_model('anthropic:x', 'openai:y', environ={'ANTHROPIC_API_KEY': 'k' * 9, 'OPENAI_API_KEY': 'k' * 9})",
    ],
)
def test_no_sdk_is_imported_before_a_model_is_asked(statement: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_SDK.format(statement=statement)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


MISSING = """
import sys
from importlib.machinery import PathFinder
real = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name in ("anthropic", "genai_prices") else real(name, *more)
from codepilot.core.failures import CodePilotError
from codepilot.models import Message, make_model
try:
    make_model("anthropic:x", environ={"ANTHROPIC_API_KEY": "k" * 9})
except CodePilotError as error:
    print(error.failure.message, error.failure.next_action)
used = make_model("openai:gpt-5", environ={"OPENAI_API_KEY": "k" * 9}).estimate([Message(role="user", content="x")], 10)
assert used.cost_usd == 0 and used.unpriced_tokens == used.tokens > 10
"""


def test_a_missing_sdk_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    assert "pip install anthropic genai-prices" in done.stdout
    assert "codepilot[" not in done.stdout


OFFLINE = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        raise SystemExit(f"called out: {event} {arguments}")
sys.addaudithook(watch)
from codepilot.models import Message, make_model
model = make_model("anthropic:claude-sonnet-4-6", environ={"ANTHROPIC_API_KEY": "k" * 9})
assert model.estimate([Message(role="user", content="x")], 10).cost_usd > 0
assert model.context_tokens
"""


def test_prices_are_reported_without_calling_out() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
