"""Redaction: keys go, the rest stays."""

from __future__ import annotations

import importlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.contract import JsonObject
from codepilot.telemetry import Redactor, redact, redact_json

MASK = "[redacted]"
ASSIGNED = importlib.import_module("codepilot.telemetry.redact")._ASSIGNED

SECRETS = [
    "sk-ant-" + "api03-" + "Ab1_" * 12,
    "sk-proj-" + "Zz9" * 12,
    "ghp_" + "a1" * 18,
    "github_pat_" + "11ABC_" * 6,
    "glpat-" + "x9" * 10,
    "xoxb-" + "123456789012-abcdef",
    "AKIA" + "ABCDEFGH12345678",
    "AIza" + "Sy_1-" * 8,
    "hf_" + "q" * 30,
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJlLWhlcmU",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\ncut off in the mid",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "key={}, next", '{{"k": "{}"}}', "see {} there"])
def test_what_looks_like_a_key_goes(secret: str, around: str) -> None:
    clean = redact(around.format(secret))
    assert secret[8:] not in clean
    assert "[redacted]" in clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdef0123456789abcdef", "Authorization: Bearer [redacted]"),
        ("postgresql://me:hunter2hunter2@db/x", "postgresql://me:[redacted]@db/x"),
        ("API_KEY=abcdefgh12345678ijkl", "API_KEY=[redacted]"),
        ('{"client_secret": "abcdefgh12345678ijkl"}', '{"client_secret": "[redacted]"}'),
    ],
)
def test_what_is_marked_as_secret_goes_and_the_rest_stays(text: str, clean: str) -> None:
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "def token(self): return self.tokens[0]",
        "password = get_password(user)",
        "tokens: 123456, cost 0.01",
        "hash://patch/" + "ab" * 32,
        "http://localhost:8080/path?x=1",
        "r-01k9x2m4qa7w3e5t8y0z",
        "task-oriented sk-learn",
        "a basic understanding of bearer authentication",
        "key_files=src/codepilot/store/database.py",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


@given(st.text(min_size=8, max_size=40), st.text(max_size=50), st.text(max_size=50))
def test_values_of_secret_variables_go_wherever_they_are(value: str, before: str, after: str) -> None:
    clean = Redactor({"SOME_API_KEY": value})(f"{before}{value}{after}")
    assert value not in clean.replace("[redacted]", "\0")


def test_only_variables_named_so_are_secret() -> None:
    redactor = Redactor({"EDITOR": "emacs-nox", "DB_PASSWORD": "longpass", "TOKEN": "short"})
    assert redactor("emacs-nox longpass short") == "emacs-nox [redacted] short"
    assert Redactor()("longpass") == "longpass"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "unit", ["token", "a://", "a.", "-----BEGIN ", "eyJ", "eyJaaaaaaaa-", "sk-", "x", "bearer ", "password= ", "://:"]
)
def test_hostile_text_does_not_take_for_ever(unit: str) -> None:
    """Quadratic work on this much text would take minutes."""
    assert redact(unit * (100_000 // len(unit)))


@given(
    st.lists(
        st.sampled_from(
            [
                "api_KEY",
                "Access-key",
                "sEcReT",
                "token",
                "PASSWD",
                "s",
                "=",
                ": ",
                '"',
                "\n",
                "a1B2" * 5,
                "é",
                "\u0130",
                "\u0131",
                "\u0390",
            ]
        )
    )
)
def test_what_is_assigned_goes_whatever_letters_its_name_has(parts: list[str]) -> None:
    text = "".join(parts)
    assert (MASK in redact(text)) == bool(ASSIGNED.search(text))


# JSON -----------------------------------------------------------------------------------------------

HEADER = "-----BEGIN PRIVATE KEY-----"


def test_every_string_of_a_document_is_redacted_by_itself() -> None:
    document: JsonObject = {
        "quoted": [f"it wrote {HEADER}\nMIIE", {"deep": f"x {SECRETS[2]} y"}, 7, None, True],
        SECRETS[2]: "a name",
        "after": "this stays",
    }
    assert redact_json(document) == {
        "quoted": [f"it wrote {MASK}", {"deep": f"x {MASK} y"}, 7, None, True],
        MASK: "a name",
        "after": "this stays",
    }


def test_a_secret_that_json_escapes_is_found() -> None:
    value = 'pa"ss\\word1'
    clean = redact_json({"text": f"with {value} in it"}, Redactor({"OPENAI_API_KEY": value}))
    assert clean == {"text": f"with {MASK} in it"}


def test_the_name_of_a_string_tells_that_it_is_secret() -> None:
    assert redact_json({"client_secret": "abcdefgh12345678ijkl", "Authorization": "Basic abcdefgh12345678"}) == {
        "client_secret": MASK,
        "Authorization": f"Basic {MASK}",
    }


def test_names_that_become_the_same_lose_no_value() -> None:
    document: JsonObject = {SECRETS[2]: 1, SECRETS[4]: 2, f"{MASK} 1": 3}
    clean = redact_json(document)
    assert sorted(clean.values(), key=str) == [1, 2, 3] and len(clean) == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([*SECRETS, HEADER]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(SECRETS), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_what_is_redacted_is_the_same_shape_and_has_no_secret(document: JsonObject) -> None:
    clean = redact_json(document)
    reported = json.dumps(clean, ensure_ascii=False)
    assert json.loads(reported) == clean and len(clean) == len(document)
    assert not any(secret.splitlines()[0] in reported for secret in SECRETS)
    assert redact_json(clean) == clean
