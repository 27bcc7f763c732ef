"""The dashboard's pages: what needs what, and that nothing of others becomes markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_kit import DIFF, VOID, Page, Recorded, blocked, reported

from codepilot.core.approval import ApprovalRequested
from codepilot.core.events import (
    EventType,
    PatchApplied,
    RunBlocked,
    RunFinished,
    RunPaused,
    State,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.landing import LandingEntry
from codepilot.core.review import HunkDecision
from codepilot.store import Activity
from codepilot.telemetry import AgentLine, Costs, RunCost, redact
from codepilot.views.board import Card, board, card_of, need_of
from codepilot.views.budget import budget_bars, next_for
from codepilot.views.charts import Bar, bar_rows, columns
from codepilot.views.dashboard import Asked, Cell, Frame, Line, Table, message_page, render, render_table
from codepilot.views.diff import directories, file_diffs
from codepilot.views.run import outcome_of, run_page
from codepilot.views.text import ago, fenced

NOW = 1_790_000_100_000_000
HOSTILE = "\"><img src=x onerror='alert(1)'>{{ 7*7 }}\x1b[31m\u202e"
VOID |= {"input", "link", "hr"}


def asks() -> Recorded:
    run = reported(until=State.INIT)
    run.begin(State.IMPLEMENT)
    run.add(ApprovalRequested(approval_id="a-1", operation="network", details="pypi.org", expires_at=NOW))
    waits = Failure(kind=FailureKind.DENIED, message="A person has to approve.", details={"approval_id": "a-1"})
    run.add(RunBlocked(failure=waits, until=NOW))
    return run


def paused() -> Recorded:
    run = reported(until=State.INIT)
    run.add(RunPaused(reason="asked to pause"))
    return run


def parked() -> Recorded:
    run = reported(until=State.INIT)
    run.begin(State.IMPLEMENT)
    run.add(RunBlocked(failure=Failure(kind=FailureKind.MODEL_QUOTA, message="Quota."), until=NOW))
    return run


def broken() -> Recorded:
    """An interactive run whose checkpoints cannot be made: a person decides how it goes on."""
    run = Recorded(execution_mode="interactive")
    run.begin(State.IMPLEMENT)
    run.add(RunBlocked(failure=Failure(kind=FailureKind.INTERACTIVE_MODE_FAILURE, message="No checkpoint.")))
    return run


def applied() -> Recorded:
    run = reported()
    run.add(PatchApplied(checkout="/c", files=("a.py",)))
    return run


def without_change() -> Recorded:
    run = reported(until=State.INIT)
    run.add(RunFinished(state=State.DONE))
    return run


NEEDS = {
    "an approval": (asks(), "you", "approve network"),
    "a fix by hand": (blocked(), "you", "needs you"),
    "paused": (paused(), "you", "paused"),
    "parked": (parked(), "working", "parked until 14:15 UTC"),
    "at work": (reported(until=State.INIT), "working", "init"),
    "proved": (reported(), "review", "confirmed 0.79"),
    "applied": (applied(), "done", "confirmed 0.79"),
    "no change": (without_change(), "done", "done"),
    "failed": (reported(None), "failed", "failed"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_card_stands_where_its_run_needs_something(name: str) -> None:
    example, need, word = NEEDS[name]
    card = card_of(example.run, Activity.WORKING, NOW)
    assert (card.need, card.word) == (need, word)
    found = {column.need: len(column.cards) for column in board([card])}
    assert found == {one: int(one == need) for one in ("you", "review", "working", "done", "failed")}


def test_silence_is_no_status() -> None:
    run = reported(until=State.INIT).run
    assert card_of(run, Activity.INTERRUPTED, NOW).word == "interrupted"
    assert card_of(run, Activity.QUEUED, NOW).word == "queued"
    assert "last event" in card_of(run, Activity.WORKING, run.updated_at + 180_000_000).note
    assert card_of(run, Activity.WORKING, run.updated_at).note == ""
    assert "codepilot worker" in next_for(run, Activity.INTERRUPTED)


def test_a_column_says_how_many_it_leaves_out() -> None:
    cards = [card_of(reported().run, None, NOW)] * 7
    review = next(one for one in board(cards, most=5) if one.need == "review")
    assert (len(review.cards), review.more) == (5, 2)


def test_every_state_has_a_next_sentence() -> None:
    for example, need, _ in NEEDS.values():
        ended = example.run.terminal
        assert bool(next_for(example.run, Activity.WORKING)) is not ended, need
        assert all(0 <= bar.share <= 1000 for bar in budget_bars(example.run))


def page_of(
    story: Recorded,
    frame: Frame,
    text: str = "",
    asks: Sequence[Asked] = (),
    lines: Sequence[Line] = (),
    cards: Sequence[Card] = (),
    *costs: RunCost,
) -> str:
    """The page of a run."""
    run, cost = story.run, costs
    return render(
        "run",
        frame,
        page=run_page(run, story.events, redact, answer=text),
        run=run,
        clean=redact,
        asks=asks,
        bars=budget_bars(run),
        following=text,
        lines=lines,
        artifacts=[{"name": text, "of": text, "id": text, "read": "/x", "link": "/x", "size": "1 kB"}],
        at_work=True,
        last_event="now",
        others=cards,
        alike=f"/new?goal={text}",
        review=True,
        notice=text,
        events="run_finished",
        dashboard=True,
        output=text,
        program=True,
        landable=True,
        tree=Costs(
            run_id=run.run_id,
            runs=cost * 2,
            turns=2,
            tokens=2,
            unpriced_tokens=0,
            cost_usd=0.5,
            limit_tokens=9,
            limit_cost_usd=1.0,
        ),
    )


def pages(text: str) -> dict[str, str]:
    """Every page with `text` wherever others may write."""
    frame = Frame(f"ana{text}", "admin", "token", "Runs", 2)
    story = reported("plausible", text=text, model="m")
    run = story.run
    cards = [card_of(one.run, Activity.WORKING, NOW) for one in (story, reported(None, text=text), asks())]
    asked = Asked(
        "r-1", "a-1", f"Install{text}", "install", text, "medium", (text,), text, "9:41", link=text, until=NOW
    )
    lines = [Line(NOW, f"TEST{text}", text)]
    files = file_diffs(DIFF.replace("span.end", f"span.end {text}".replace("\n", "")))
    listing = {"query": text, "problem": text, "following": "/runs?before=1", "now": NOW}
    bars = [Bar(text, 1.0, text), Bar("b", 0.0, "0")]
    values = dict.fromkeys(
        ("goal", "repo", "ref", "tests", "accept", "constraints", "diff", "changed", "language", "agent", "model"), text
    )
    values |= dict.fromkeys(("interaction", "execution_mode", "cost_usd", "wall_sec", "ecosystem", "name"), text)
    cost = RunCost(
        run_id="r-1",
        node=text,
        agent=text,
        model=text,
        status=text,
        iterations=1,
        turns=1,
        tokens=1,
        unpriced_tokens=0,
        cost_usd=0.25,
    )
    entry = LandingEntry("r-1", text, text, text, "queued", NOW, by=text, judged_by="r-2", reason=text)
    point = {
        **dict.fromkeys(("trigger", "severity", "action", "answer"), text),
        "at": NOW,
        "id": "ckpt-1",
        "tone": "bad",
        "status": "invalid",
        "changed": 1,
        "total": 2,
        "files": [text],
        "violations": [{"file": text, "constraint": text, "message": text, "suggestion": text}],
        "violations_left_out": 0,
        "promoted": True,
        "rolled_back": 1,
        "sampled": 2,
        "frozen": "3 ms",
    }
    side = {"run": run, "title": text, "card": cards[0], "files": files}
    chart = {"title": text, "note": text, "drawing": bar_rows(bars) + columns(bars, text), "titles": [text]}
    return {
        "board": render("runs", frame, columns=board(cards), cards=cards, listed=False, **listing),
        "list": render("runs", frame, columns=(), cards=cards, listed=True, **listing),
        "empty": render("runs", frame, columns=board([]), cards=[], listed=False, **listing),
        "run": page_of(story, frame, text, [asked], lines, cards, cost),
        "diff": render(
            "diff",
            frame,
            run=run,
            title=text,
            files=files,
            directories=directories(files),
            split=False,
            reviewable=True,
            appliable=True,
            teachable=True,
            reviews=[
                {
                    "by": text,
                    "accepted": 1,
                    "rejected": [HunkDecision(hunk=text, decision="rejected", reason=text)],
                    "judged_by": text,
                    "again": text,
                }
            ],
            notice=text,
        ),
        "split": render(
            "diff",
            frame,
            run=run,
            title=text,
            files=files,
            directories=directories(files),
            split=True,
            reviewable=False,
            appliable=False,
            reviews=(),
            notice="",
        ),
        "new": render(
            "new",
            frame,
            kinds=[("change", "Change")],
            once="a1b2",
            kind="change",
            about=text,
            problem=text,
            errors={"goal": text},
            values=values,
            goal_label=text,
            goal_help=text,
            languages=[(text, text)],
            ecosystems=[(text, text)],
            agents=[(text, text)],
            interactions=[("x", text)],
            modes=[("x", text)],
            repositories=[text],
        ),
        "approvals": render("approvals", frame, asks=[asked], decided=[], now=NOW),
        "analytics": render(
            "analytics", frame, summary=text, figures=[(text, text, text)], charts=[{**chart, "rows": [[text]]}]
        ),
        "table": render_table(frame, Table(text, text, [text], [[Cell(text, code=True)]], (text, text))),
        "compare": render("compare", frame, sides=[side, side], rows=[(text, text, text)]),
        "log": render("log", frame, run=run, title=text, lines=lines, events="run_finished"),
        "live": render(
            "live",
            frame,
            run=asks().run,
            title=text,
            lines=[AgentLine("text", text, NOW), AgentLine("result", text, NOW)],
            most=4000,
            interactive=True,
            notice=text,
            events="turn_started",
        ),
        "landing": render(
            "landing",
            frame,
            waiting=[entry],
            ended=[replace(entry, status="refused")],
            ready=cards,
            may_land=True,
            chosen="r-1",
            notice=text,
            now=NOW,
        ),
        "checkpoints": render(
            "checkpoints", frame, run=asks().run, title=text, rows=[point], mode="interactive", notice=text, events="x"
        ),
        "checkpoint": render("checkpoint", frame, run=run, title=text, files=files, row=point, total=False),
        "message": message_page(text, text, sign_in=True, place=text),
        "problem": message_page(text, text, text, code="404", request_id=text),
        "link": message_page(text, text, link=f"x{text}" if text.isprintable() else "x<img>"),
        "asked": message_page(text, asked=asked, address="/approve/x"),
        "asked change": message_page(text, asked=replace(asked, files=files), address="/approve/x"),
    }


@pytest.mark.parametrize("name", pages(""))
def test_nothing_of_others_becomes_markup(name: str) -> None:
    plain, hostile = Page(pages("")[name]), Page(pages(HOSTILE)[name])
    assert not hostile.unclosed
    tags = {tag for tag, _ in hostile.elements}
    assert tags <= {tag for tag, _ in plain.elements} | set(
        re.findall(r"\w+", "p h3 ul li b span pre code time dl dt dd")
    )
    assert "img" not in tags and "49" not in hostile.text
    names = {one for _, attributes in hostile.elements for one in attributes}
    assert not [one for one in names if one.startswith("on") or one == "style"]
    assert {char for char in hostile.source if not char.isprintable()} <= {"\n", "\t"}
    scripts = [attributes for tag, attributes in hostile.elements if tag == "script"]
    assert all(attributes.get("src", "").startswith("/static/") for attributes in scripts)


@pytest.mark.parametrize("name", ["run", "diff", "new", "approvals", "live", "landing", "checkpoints"])
def test_every_form_carries_the_token(name: str) -> None:
    page = Page(pages("")[name])
    forms = sum(tag == "form" and attributes.get("method") == "post" for tag, attributes in page.elements)
    tokens = [attributes["value"] for attributes in page.named("input") if attributes.get("name") == "csrf"]
    assert forms and tokens == ["token"] * forms


def test_a_run_that_a_person_must_mend_can_be_resumed() -> None:
    shown = page_of(broken(), Frame("eve", "operator", "token", "Runs"))
    assert ">Resume<" in shown and ">Resume in deterministic mode<" in shown and ">Checkpoints<" in shown
    assert ">Pause<" not in shown


def test_a_viewer_gets_no_buttons_that_change_something() -> None:
    frame = Frame("eve", "viewer", "token", "Runs")
    shown = render("approvals", frame, asks=[Asked("r-1", "a-1", "x", "install", "y", "low")], decided=[], now=NOW)
    assert "Allow once" not in shown and "New task" not in shown


def test_the_badge_is_there_before_a_request_is() -> None:
    """A live page replaces what is in it, so a count that appears later must find the same element."""
    for waiting, shown in ((0, ""), (2, '<span class="sr">, waiting: </span>2')):
        page = render("approvals", Frame("eve", "viewer", "token", "Runs", waiting), asks=[], decided=[], now=NOW)
        assert f'<span class="badge" data-live="waiting">{shown}</span>' in page


hunk_lines = st.lists(st.tuples(st.sampled_from(" +-"), st.text("ab<&", max_size=5)), min_size=1, max_size=12)


@given(hunk_lines)
def test_side_by_side_shows_each_line_once_and_in_order(lines: list[tuple[str, str]]) -> None:
    old, new = sum(mark != "+" for mark, _ in lines), sum(mark != "-" for mark, _ in lines)
    body = "".join(f"{mark}{text}\n" for mark, text in lines)
    (file,) = file_diffs(f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,{old} +1,{new} @@\n{body}")
    pairs = [pair for pair in file.pairs if pair[0] is not None]
    assert [left.old for left, _ in pairs if left and left.old] == list(range(1, old + 1))
    assert [right.new for _, right in pairs if right.new] == list(range(1, new + 1))


def test_hunks_have_keys_that_a_review_can_name() -> None:
    (file,) = file_diffs(DIFF)
    assert [hunk.key for hunk in file.hunks] == ["agenda/spans.py:1"]
    (new,) = file_diffs("diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n")
    assert [(hunk.key, hunk.title) for hunk in new.hunks] == [("e", "the whole file")]


def test_times_are_written_for_people() -> None:
    spans = (0, 5, 70, 7200, 90_000, 10**6)
    assert [ago(NOW - span * 1_000_000, NOW) for span in spans] == [
        "now",
        "5 s ago",
        "1 min ago",
        "2 h ago",
        "1 d ago",
        "2026-09-10",
    ]


def test_applying_is_part_of_a_run() -> None:
    assert need_of(reported().run) == "review"
    assert applied().run.applied is not None
    assert EventType.PATCH_APPLIED in {event.type for event in applied().events}


def test_code_of_a_model_stands_apart_from_its_words() -> None:
    text = "I read it.\n```python\nx = 1\n\ny = 2\n```\nThen:\n```\nz\n```"
    assert fenced(text) == [("I read it.", False), ("x = 1\n\ny = 2", True), ("Then:", False), ("z", True)]
    assert fenced("```not closed") == [("not closed", True)] and fenced("") == []


def test_a_run_that_nobody_works_on_is_not_shown_as_working() -> None:
    run = reported(until=State.INIT).run
    words = {activity: outcome_of(run, activity).word for activity in Activity}
    assert words == {
        Activity.QUEUED: "Queued",
        Activity.WORKING: "Working",
        Activity.INTERRUPTED: "Interrupted",
    }
