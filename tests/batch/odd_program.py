"""A program on a terminal that misbehaves in the way its prompt names: `WAY. When complete, print exactly: MARKER`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable

PROMPT = sys.argv[1]
MARKER = PROMPT.rpartition(" ")[2]


def echo() -> None:
    """Show the prompt as interactive programs do."""
    print(f"> {PROMPT}")


def works() -> None:
    echo()
    with open("made.txt", "w") as file:  # noqa: PTH123
        file.write("made\n")
    print(MARKER)


def only_echoes() -> None:
    echo()
    print("All done.")


def crashes() -> None:
    print(MARKER)
    sys.exit(3)


def fails() -> None:
    raise FileNotFoundError("plan.txt")


def hangs() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    print("thinking", flush=True)
    time.sleep(1000)


def goes_on() -> None:
    """Done, and stays at its prompt like an interactive agent."""
    print(MARKER, flush=True)
    hangs()


def floods() -> None:
    for number in range(60_000):
        print(f"line {number} " + "x" * 80)
    print(MARKER)


def floods_for_ever() -> None:
    while True:
        sys.stdout.write("y" * 4096 + "\n")


def one_long_line() -> None:
    sys.stdout.write("z" * 320_000)
    print("\n" + MARKER)


def redraws() -> None:
    """A screen that is drawn again and again; the marker comes in pieces, in colours and in a frame."""
    for number in range(40):
        sys.stdout.write(f"\x1b[2J\x1b[H\x1b[1;32m working {number} \x1b[0m\x1b[5;10Hspinner {'|/-'[number % 3]}")
        sys.stdout.flush()
        time.sleep(0.01)
    sys.stdout.write("\x1b[2J\x1b[H\x1b[10;3H│ ")
    for letter in MARKER:
        sys.stdout.write(f"\x1b[35m{letter}\x1b[0m")
        sys.stdout.flush()
    print(" │")


def wraps() -> None:
    """The marker begins at the right edge and goes on in the next line."""
    print("w" * 150 + " " + MARKER)


def breaks_its_lines() -> None:
    """It wraps what it shows itself, in a frame that is narrower than the terminal."""
    text = f"So all of it is done now {MARKER}"
    print("\n".join(f"│ {text[at : at + 32]:32} │" for at in range(0, len(text), 32)))


def hides_its_marker() -> None:
    """Nobody could see it: it is cleared at once, and a flood follows."""
    colours = "".join(f"\x1b[3{number % 8}m{letter}\x1b[0m" for number, letter in enumerate(MARKER))
    sys.stdout.write(f"\u2714\ufe0f done {colours}\r\x1b[K\x1b[H\x1b[J" + "more\n" * 20_000)


def spins_for_ever() -> None:
    """It draws without a pause and without a new line."""
    while True:
        sys.stdout.write("\r/ thinking\r- thinking")
        sys.stdout.flush()


def prints_another_slowly() -> None:
    """The marker of this task is only the beginning of what it prints."""
    for part in (MARKER, "-2\n"):
        sys.stdout.write(part)
        sys.stdout.flush()
        time.sleep(0.4)


def asks_the_terminal() -> None:
    """It waits for what terminals answer about themselves."""
    before = termios.tcgetattr(0)
    tty.setraw(0)
    for question in ("\x1b[6n", "\x1b[c", "\x1b[>c", "\x1b]11;?\x07", "\x1b[18t", "\x1b[?2026$p"):
        sys.stdout.write(question)
        sys.stdout.flush()
        os.read(0, 100)
    termios.tcsetattr(0, termios.TCSANOW, before)
    print(f"\n{MARKER}")


def asks() -> None:
    """A dialog in colours, drawn by moving the cursor, which wants exactly one answer."""
    sys.stdout.write("\x1b[2J\x1b[H\x1b[3;3H\x1b[33mPre\x1b[0mss\x1b[3;9H\x1b[1m1\x1b[0m to go on\x1b[5;1H")
    sys.stdout.flush()
    answer = input()
    print(f"got {answer!r}")
    print(MARKER if answer == "1" else "no")


def asks_both() -> None:
    for key in ("1", "p", "1"):
        print(f"Press {key} to allow it", flush=True)
        if input() != key:
            sys.exit("a wrong answer")
        print("thank you\n" * 3)
    print(MARKER)


def asks_for_ever() -> None:
    while True:
        print("Press 1 to go on", flush=True)
        input()


def logged_out() -> None:
    sys.exit("You are not logged in. Run /login first.")


def out_of_quota() -> None:
    print("Rate limit reached. Try again in 90 minutes.")


def echoes_at_the_end() -> None:
    """Its marker stands before the last echo of the prompt: it belongs to an earlier turn."""
    print(MARKER)
    time.sleep(0.3)
    echo()


def leaves_children() -> None:
    for _ in range(3):
        subprocess.Popen(["sleep", "987.5"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        time.sleep(987.5)
    print(MARKER)


def closes_its_terminal() -> None:
    print(MARKER, flush=True)
    for number in (0, 1, 2):
        os.close(number)
    time.sleep(1000)


def prints_garbage() -> None:
    sys.stdout.flush()
    os.write(1, bytes(range(256)) * 200 + b"\x1b[999;999H\x1b]0;" + b"t" * 5000 + b"\x07\x1b[0m\x1b[?1049h\r\n")
    print(MARKER)


def does_not_start_its_name() -> None:
    print(MARKER + "2")


WAYS: dict[str, Callable[[], None]] = {name: way for name, way in list(globals().items()) if callable(way)}

if __name__ == "__main__":
    WAYS[PROMPT.partition(".")[0]]()
