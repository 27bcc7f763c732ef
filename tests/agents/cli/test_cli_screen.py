"""What a terminal shows of a program's bytes, and which permission prompts are answered on it."""

from __future__ import annotations

import time
from io import BytesIO
from types import SimpleNamespace
from typing import cast

import pytest

from codepilot.agents.cli.permission_prompts import PromptWatch
from codepilot.agents.cli.pty import MOST_TIMES, PtyAgent, Watching
from codepilot.agents.cli.screen import Screen
from codepilot.core.attempt import MarkerWatch, Profile
from codepilot.sandbox import Process

MARKER = "TASK_COMPLETE:t-1"
PROMPT = f"Repair it. When complete, print exactly: {MARKER}"


def shown(*chunks: bytes, columns: int = 40, rows: int = 6) -> Screen:
    screen = Screen(rows, columns)
    for chunk in chunks:
        screen.feed(chunk)
    return screen


def test_redraws_colours_and_cursor_movement_give_what_a_person_sees() -> None:
    screen = shown(b"10%\r20%\r\x1b[31mdone\x1b[0m\x1b[K\n\r", b"\x1b[3;5Hthere\x1b[2A\r", b"top\x1b[K")
    assert screen.rows[:3] == ["top", "", "    there"]


def test_a_marker_survives_wrapping_colours_and_chunks_of_one_byte() -> None:
    bytes_ = f"\x1b[1m{'x' * 33}\x1b[0m {MARKER[:10]}\x1b[32m{MARKER[10:]}\x1b[0m\r\n".encode()
    for screen in (shown(bytes_), shown(*(bytes([one]) for one in bytes_))):
        assert MARKER in screen.text() and MarkerWatch(MARKER, PROMPT).look(screen.text())


def test_a_line_that_just_fills_its_row_ends_there() -> None:
    for rows in (6, 2):
        screen = shown(f"{'x' * 80}\r\n{MARKER}\r\nbye\r\n".encode(), rows=rows)
        assert screen.text().split("\n")[:2] == ["x" * 80, MARKER]
        assert MarkerWatch(MARKER, PROMPT).look(screen.text())


def test_a_wrapped_and_framed_echo_of_the_prompt_is_no_completion() -> None:
    screen = shown(f"> {PROMPT}\r\n".encode(), "╭───╮\r\n│ print exactly: TASK_COMPLETE:t-1 │\r\n".encode())
    assert not MarkerWatch(MARKER, PROMPT).look(screen.text())


def test_lines_that_scrolled_away_stay_readable_in_order() -> None:
    screen = shown(*(f"line {number}\r\n".encode() for number in range(50)))
    assert [line for line in screen.take_rest() if line] == [f"line {number}" for number in range(50)]
    assert screen.text(lines=2).split("\n")[0] == "line 43"


@pytest.mark.parametrize("flood", [b"\x1bP", b"\x1b]0;t", b"\x1b_\x1b", b"\x1b[1;", b"\x1b[?1", b"\x1b[:1"])
def test_a_flood_of_sequences_without_an_end_is_read_in_time(flood: bytes) -> None:
    began = time.thread_time()
    screen = shown(flood * ((256 << 10) // len(flood)), b"\x1b\\\x07\r\ndone\r\n")
    assert time.thread_time() - began < 3.0 and "done" in screen.text()


def test_long_lines_that_scrolled_away_take_bounded_memory() -> None:
    screen = shown(b"\r\n" + (b"x" * 20_000 + b"end\r\n") * 420)
    assert len(screen.text()) < 4 << 20 and "xend" in screen.text()
    assert max(map(len, screen.take_lines())) > 20_000


def test_a_screen_that_is_cleared_again_and_again_is_kept_once() -> None:
    frames = (f"\x1b[2J\x1b[Hworking {'|/-'[number % 3]} {number}s".encode() for number in range(100))
    screen = shown(*frames, b"\x1b[2J\x1b[HDone.")
    kept = [line for line in screen.take_rest() if line]
    assert kept == ["working | 0s", "Done."]


@pytest.mark.parametrize(
    "odd",
    [
        b"\x1b[>4;2m\x1b[<u\x1b[?u\x1b[=5u",
        b"\x1bP+q544e\x1b\\\x1b_Gf=100\x1b\\",
        b"\x1b]0;a title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
        b"\x1b[38:2:1:2:3mcolour\x1b[?2026h\x1b[?2026l",
        bytes(range(128, 256)),
        b"\x1b[999999999999;1H\x1b[0;0r\x1b[5;2r",
        b"\x1b[?1;2r\x1b[?6n\x1b[?1049s",
        b"\x1b]0;a title that never ends\r\n\x1b]8;;http://x",
        "\u009d\u009b12".encode(),
        b"\x1b" * 50 + b"[" * 50,
    ],
)
def test_odd_sequences_do_not_hide_what_follows(odd: bytes) -> None:
    for screen in (shown(odd + b"\x1b[2J\x1b[1;1Hhello"), shown(*(bytes([one]) for one in odd), b"\x1b[2J\x1b[Hhello")):
        assert any("hello" in row for row in screen.rows)


def test_a_flood_of_plain_text_is_taken_quickly_and_its_marker_is_found() -> None:
    watch, screen = MarkerWatch(MARKER, PROMPT), Screen()
    flood = b"".join(b"a line of plain text number %d\r\n" % number for number in range(100_000))
    half = len(flood) // 2
    data = flood[:half] + b"\r\n" + MARKER.encode() + b"\r\n" + flood[half:]
    began = time.thread_time()
    for start in range(0, len(data), 65_536):
        screen.feed(data[start : start + 65_536])
        watch.look("\n".join(screen.take_lines()))
    assert watch.seen and time.thread_time() - began < 6
    assert screen.rows[-2] == "a line of plain text number 99999"


@pytest.mark.parametrize(
    "line",
    [b"\x1b[32mline\x1b[0m of text\r\n", b"\rprogress 10%", b"no end ", b"\x1b[5;1Hdrawn\x1b[K\x1b[1;1H", b"\x1b]"],
)
def test_no_flood_takes_long_and_its_end_is_shown(line: bytes) -> None:
    screen, began = Screen(), time.thread_time()
    for _ in range(20):
        screen.feed(line * (200_000 // len(line)))
        screen.text()
    screen.feed(b"\x1b[2J\x1b[Hthe end")
    assert time.thread_time() - began < 6 and screen.rows[0] == "the end"


def test_modes_count_that_were_set_within_a_flood() -> None:
    screen = shown(b"\x1b[1;1H\x1b[?2004h" + b"\x1b[2;1Hx" * 50_000)
    assert screen.takes_pastes


def test_characters_without_a_width_hide_nothing() -> None:
    text = "✔\ufe0f done \U0001f469\u200d\U0001f4bb a\u200bb " + MARKER
    assert MARKER in shown(f"{text}\r\n".encode(), columns=80).text()


def test_a_terminals_questions_are_answered() -> None:
    answers: list[bytes] = []
    screen = Screen(5, 20, answers.append)
    screen.feed(b"ab\x1b[6n\x1b[c\x1b[>c\x1b]11;?\x07\x1b]10;?\x1b\\\x1b[18t\x1b[?2026$p\x1b[?6n\x1b[>q")
    assert sorted(answers) == sorted(
        [
            b"\x1b[1;3R",
            b"\x1b[?6c",
            b"\x1b[>0;0;0c",
            b"\x1b]11;rgb:0000/0000/0000\x07",
            b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
            b"\x1b[8;5;20t",
            b"\x1b[?2026;0$y",
            b"\x1b[?1;1R",
            b"\x1bP>|codepilot\x1b\\",
        ]
    )


# Prompts --------------------------------------------------------------------------------------------

ASKS = Profile(permission_regex={"press_1": (r"press 1\b",), "press_p": (r"press p\b",)}, max_keys=3)


class Watched:
    """A watch that looks every tenth of a second at a screen."""

    def __init__(self, *answers: str, profile: Profile = ASKS) -> None:
        self.watch = PromptWatch(profile, frozenset(answers))
        self.screen, self.now = Screen(12, 60), 0.0
        self.pressed: list[str] = []

    def shows(self, text: str, seconds: float = 0.5, *, echo: str = "") -> None:
        self.screen.feed(text.replace("\n", "\r\n").encode())
        until = self.now + seconds
        while self.now < until and not self.watch.blocked:
            prompt = self.watch.look(self.screen.rows, self.screen.cursor_row, self.screen.scrolled, self.now)
            if prompt is not None:
                self.pressed.append(prompt.answer)
                self.screen.feed(echo.encode())
            self.now += 0.1


def test_a_prompt_is_answered_once() -> None:
    seen = Watched("press_1")
    seen.shows("Press 1 to continue: ", 5, echo="1\r\n")
    seen.shows("thank you\nworking\n", 5)
    assert seen.pressed == ["press_1"] and not seen.watch.blocked


@pytest.mark.parametrize("text", [f"{'x' * 55} Press 1 to go", f"{'x' * 50} Press\n1 to go"])
def test_a_prompt_that_goes_on_in_the_next_line_is_answered(text: str) -> None:
    seen = Watched("press_1")
    seen.shows(text, 2, echo="1\r\n")
    assert seen.pressed == ["press_1"]


def test_each_further_prompt_is_answered_also_where_lines_scroll() -> None:
    seen = Watched("press_1", "press_p", profile=ASKS.model_copy(update={"max_keys": 20}))
    for number in range(10):
        seen.shows(f"step {number}\nPress {'1p'[number % 2]} to continue: ", 2, echo="x\r\n")
    assert seen.pressed == ["press_1", "press_p"] * 5


def test_a_program_that_asks_for_ever_is_blocked_after_its_keys() -> None:
    seen = Watched("press_1")
    for _ in range(9):
        seen.shows("Press 1: ", 2, echo="1\r\n")
    assert seen.pressed == ["press_1"] * 3 and "asked again after 3" in seen.watch.blocked


def test_a_program_that_ignores_its_answer_is_blocked() -> None:
    seen = Watched("press_1")
    seen.shows("Press 1 to continue", 30)
    assert seen.pressed == ["press_1"] * 3 and seen.watch.blocked


def test_a_redrawn_prompt_is_one_prompt() -> None:
    seen = Watched("press_1")
    seen.shows("\x1b[2J\x1b[HRun `ls`?\n> 1. Yes, press 1", 1.5)
    for _ in range(10):
        seen.shows("\x1b[HRun `ls`?\n> 1. Yes, press 1", 0.1)
    assert seen.pressed == ["press_1"]
    seen.shows("\x1b[2J\x1b[HRun `rm x`?\n> 1. Yes, press 1", 3)
    assert seen.pressed == ["press_1"] * 2


def test_a_prompt_that_the_policy_forbids_blocks_without_a_key() -> None:
    seen = Watched("press_p")
    seen.shows("Press 1 to continue", 20)
    assert seen.pressed == [] and "allows no press_1" in seen.watch.blocked


def test_words_about_a_prompt_far_above_are_no_prompt() -> None:
    seen = Watched("press_1")
    seen.shows("the guide says press 1\n" + "text\n" * 40, 3)
    assert seen.pressed == []


def test_a_program_that_reads_no_answers_is_waited_for_once() -> None:
    typed: list[bytes] = []

    class Deaf(PtyAgent):
        def _type(self, data: bytes, seconds: float = 0.0) -> bool:
            typed.append(data)
            return False

    process = SimpleNamespace(stdout=BytesIO())
    agent = Deaf("pty:x", cast("Process", process), Profile(), PROMPT, Watching(MARKER))
    agent._screen.feed(b"\x1b[c" * 1000)
    assert 0 < len(typed) < 100


def test_a_prompt_that_a_starting_program_lost_is_typed_again() -> None:
    typed: list[bytes] = []

    class Typed(PtyAgent):
        def _type(self, data: bytes, seconds: float = 0.0) -> bool:
            typed.append(data)
            return True

    process = SimpleNamespace(stdout=BytesIO())
    agent = Typed("pty:x", cast("Process", process), Profile(), PROMPT, Watching(MARKER))
    pasted, began = b"\x1b[200~%b\x1b[201~" % PROMPT.encode(), agent._began
    agent._show(b"\x1b[?2004h\x1b[2J")
    agent._look(began + 60)
    assert not typed, "its screen is still empty"
    agent._show(b"\x1b[HAsk anything")
    for second in range(61, 70):
        agent._look(began + second)
    assert typed == [pasted, b"\r"]
    for second in range(70, 80):
        agent._look(began + second)
    assert typed == [pasted, b"\r"] * 2
    agent._show(b"\x1b[H" + PROMPT.encode())
    agent._look(began + 200)
    assert len(typed) == 4 and agent._times < MOST_TIMES


@pytest.mark.parametrize("answers", [(), ("press_1",)])
def test_words_about_a_prompt_of_a_program_that_works_on_are_no_prompt(answers: tuple[str, ...]) -> None:
    seen = Watched(*answers)
    for second in range(60):
        seen.shows(f"\x1b[2J\x1b[HPress 1 to go on\n* Thinking ({second}s, esc to interrupt)\n> ", 1)
    assert seen.pressed == [] and not seen.watch.blocked


def test_a_sentence_with_the_words_of_a_prompt_blocks_only_a_program_that_stays_silent() -> None:
    seen = Watched()
    seen.shows("The guide says that you press 1 to go on.\n", 30)
    assert not seen.watch.blocked and seen.watch.waiting
    seen.shows("", 40)
    assert "allows no press_1" in seen.watch.blocked
    seen = Watched("press_1")
    seen.shows("To go on you have to press 1 now.\n", 5, echo="1\r\n")
    assert seen.pressed == ["press_1"]


@pytest.mark.parametrize(
    "dialog",
    [
        "Please press 1 to go on: ",
        "You may press 1\n\n  \u276f 1. Yes\n    2. No\n\n",
        "│ Will you press 1? │\n╰───╯\n",
        "See the guide, or press 1\n\n> ",
    ],
)
def test_the_shapes_of_prompts_block_soon(dialog: str) -> None:
    seen = Watched()
    seen.shows(dialog, 7)
    assert "allows no press_1" in seen.watch.blocked
