"""Redaction: keys go, the rest stays."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.telemetry import Redactor, redact

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
def test_what_is_said_to_be_secret_goes_and_the_rest_stays(text: str, clean: str) -> None:
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
