"""The page of a run: what it shows, that it holds no markup of others, and that it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_kit import Page, Recorded, blocked, reported

from codepilot.core.events import RunFinished, RunPaused, State, StepFailed
from codepilot.core.suspect import RefutedRepair, SuspectTest, suspect_failure
from codepilot.repair.mutation.score import MutationScore
from codepilot.verify import grade
from codepilot.views.run import _MUTANTS
from codepilot.views.text import visible

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}</style>",
    "</title></textarea><svg/onload=alert(1)>",
    "{{ 7*7 }}{% raw %}{#",
    "javascript:alert(1)&lt;b&gt;&#60;i&#62;",
    "\x1b]0;owned\x07\x9b31m\x7f\x00",
    "user\u202egnp.exe\u2066\u200b\ufeff\udc80",
)
KNOWN_TAGS = set(
    re.findall(
        r"\w+",
        "html head meta title style body a header span svg rect path circle nav main article section div p b h1 h2 h3"
        " code dl dt dd ul ol li table caption thead tbody tr th td details summary pre footer br",
    )
)
ENDS = {
    "confirmed": (reported("confirmed"), "Confirmed"),
    "plausible": (reported("plausible"), "Plausible"),
    "failed": (reported(None), "Failed"),
    "waits": (blocked(), "Waits for you"),
    "working": (reported(until=State.INIT), "Working"),
    "with a model": (reported(model="anthropic:claude-sonnet-4-6"), "Confirmed"),
}


def checked(source: str) -> Page:
    """The page, after what holds for every page."""
    page = Page(source)
    assert not page.unclosed
    assert {tag for tag, _ in page.elements} <= KNOWN_TAGS
    names = {name for _, attributes in page.elements for name in attributes}
    assert not names & {"style", "src", "srcset", "action", "ping"}
    assert not [name for name in names if name.startswith("on")]
    assert all(link.startswith("#") for link in page.attributes("href"))
    assert {char for char in source if not char.isprintable()} <= {"\n", "\t"}
    assert not re.search(r"url\(|@import|@font-face|https?:", page.style)
    return page


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_a_page(name: str) -> None:
    run, word = ENDS[name]
    page = checked(run.page())
    assert page.title.startswith(word)
    assert word in page.text


def test_the_policy_allows_nothing_but_the_pages_own_style() -> None:
    page = checked(reported().page())
    policies = [a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policies == [f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"]


def test_the_page_tells_the_whole_run() -> None:
    text = checked(reported(model="anthropic:claude-sonnet-4-6").page()).text
    for words in (
        "Free slots must not overlap",
        "cursor = max(cursor, span.end)",
        "The cursor must not move back.",
        "failed before, passes after · named",
        "33 of 40",
        "1 fail→then1 pass",
        "Tests are strong",
        "anthropic:claude-sonnet-4-6",
        "1,000 in, 200 out",
        "$0.0123",
        "bubblewrap",
        "4f2c1e900000",
        "codepilot verify r-1",
        "a" * 64,
        "Implement",
        "3.0 s",
    ):
        assert words in text, words


def test_a_failed_run_tells_why_and_what_to_do() -> None:
    text = checked(reported(None).page()).text
    assert "The same failure came three times." in text
    assert "Read the diagnosis; give a hint with --prompt or choose another agent." in text
    assert "The last change, not proved" in text
    assert "codepilot verify" not in text, "there is no bundle to verify"


def test_the_evidence_against_a_test_is_shown() -> None:
    run = reported(until=State.INIT)
    run.begin(State.IMPLEMENT)
    repair = RefutedRepair(change="spans.py:3 <b>bent</b>", breaks=("tests/test_a.py::other",))
    failure = suspect_failure(SuspectTest(test="t", reason="it contradicts its siblings", repairs=(repair,)))
    run.add(StepFailed(state=State.IMPLEMENT, failure=failure))
    run.add(RunFinished(state=State.FAILED, failure=failure))
    text = checked(run.page()).text
    assert "The test may be wrong" in text
    assert "spans.py:3 <b>bent</b>breaks tests/test_a.py::other" in text


def test_no_sandbox_is_reported_loudly() -> None:
    assert "The project's code ran without a sandbox." in checked(reported(level="none").page()).text


@pytest.mark.parametrize("evil", HOSTILE)
@pytest.mark.parametrize("verdict", ["confirmed", "plausible", None])
def test_nothing_that_a_run_brings_becomes_markup(evil: str, verdict: str | None) -> None:
    calm = Page(reported(verdict, text="x", model="m").page())  # type: ignore[arg-type]
    page = checked(reported(verdict, text=evil, model="m").page())  # type: ignore[arg-type]
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in calm.elements]
    assert visible(evil) in page.text


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_is_harmless(text: str) -> None:
    page = checked(reported("plausible", text=text).page())
    assert visible(text).strip() in page.text


@pytest.mark.parametrize("evil", HOSTILE)
def test_a_hostile_diff_is_text(evil: str) -> None:
    line = evil.replace("\n", " ")
    diff = (
        f"diff --git a/{line}.py b/{line}.py\nnew file mode 100755\n--- /dev/null\n+++ b/{line}.py\n"
        f"@@ -0,0 +1,2 @@ {line}\n+x = '{line}'\n+{line}\n"
    )
    page = checked(reported(diff=diff).page())
    assert page.text.count(visible(line)) >= 3


def test_secrets_are_removed_from_prose() -> None:
    run = reported(text=" password=hunter2hunter2hunter2")
    page = run.page(lambda text: text.replace("hunter2hunter2hunter2", "[redacted]"))
    assert "hunter2" not in page
    assert "[redacted]" in page


def test_a_reader_finds_its_way() -> None:
    """One heading of the first level, no level left out, names for every section, and links that lead somewhere."""
    page = checked(reported(model="m").page())
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip([0, *levels], levels, strict=False))
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in page.attributes("href")} <= set(ids)
    assert all(section.get("aria-labelledby") in ids for section in page.named("section"))
    assert all("aria-label" in nav for nav in page.named("nav"))
    assert all(svg.get("aria-hidden") or svg.get("aria-label") for svg in page.named("svg"))
    assert sum(1 for _ in page.named("main")) == sum(1 for _ in page.named("header") if True) - _panels(page) == 1


def _panels(page: Page) -> int:
    return sum(1 for section in page.named("section") if "panel" in section.get("class", ""))


def test_paused_runs_say_how_to_go_on() -> None:
    run = reported(until=State.INIT)
    run.add(RunPaused())
    assert "codepilot resume r-1" in checked(run.page()).text


def test_a_run_that_only_was_submitted_has_a_page() -> None:
    assert "No step was started." in checked(Recorded().page()).text


def test_the_number_of_mutants_is_read_as_the_proof_writes_it() -> None:
    strength = MutationScore(mutants=40, killed=33, score=0.825, near=4, near_killed=4)
    found = _MUTANTS.search(grade(strength, "full", ("t",), (), 0.8).reason)
    assert found is not None
    assert found.groups() == ("33", "40")


# Colours --------------------------------------------------------------------------------------------

GROUNDS = ("bg", "panel", "sunk")
PAIRS = (
    *((ink, ground) for ink in ("ink", "soft", "faint", "accent") for ground in GROUNDS),
    *((tone, ground) for tone in ("good", "warn", "bad", "wait") for ground in ("panel", "bg", f"{tone}-soft")),
    *((ink, ground) for ink in ("hk", "hs", "hn", "hc", "hf", "hb", "ink") for ground in ("panel", "add", "del")),
    ("ink", "add-mark"),
    ("ink", "del-mark"),
)


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(char * 2 for char in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for every colour of text on every ground that it has."""
    light, dark = Page(reported().page()).style.split("@media (prefers-color-scheme: dark)")[:2]
    values = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})\b", light))
    if scheme == "dark":
        values |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})\b", dark.partition("} }")[0]))
    weak = {}
    for ink, ground in PAIRS:
        lighter, darker = sorted((luminance(values[ink]), luminance(values[ground])), reverse=True)
        ratio = (lighter + 0.05) / (darker + 0.05)
        if ratio < 4.5:
            weak[ink, ground] = round(ratio, 2)
    assert weak == {}
