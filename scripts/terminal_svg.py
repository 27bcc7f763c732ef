"""Draw docs/demo.svg: the terminal after a real `codepilot demo`. Nothing in the picture is loaded from elsewhere."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
COLUMNS, ROWS = 100, 60
USUAL_HOME = "~/.local/share/codepilot"

_RED, _GREEN, _YELLOW, _BLUE = (255, 143, 134), (95, 211, 154), (240, 179, 90), (147, 164, 255)
_MAGENTA, _CYAN = (189, 166, 255), (127, 208, 230)
_COLOURS = (_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN)
THEME = TerminalTheme(
    (22, 27, 36),
    (223, 228, 236),
    [(70, 79, 95), *_COLOURS, (223, 228, 236)],
    [(146, 157, 176), *_COLOURS, (255, 255, 255)],
)
_CONTROL = re.compile(r"\x1b\[(\?25[lh]|2K|(\d*)A|[\d;]*m)|\r|\n")


def recorded(command: list[str], home: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "CODEPILOT_HOME": home, "PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 65536):
                pieces.append(piece)
        except OSError:  # the other end is closed
            pass
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return b"".join(pieces).decode()


def screen(output: str) -> str:
    """The lines that are left on the terminal, with their colours: live lines are drawn over."""
    rows, row, at = [""], 0, 0
    for found in _CONTROL.finditer(output):
        rows[row] += output[at : found.start()]
        at = found.end()
        match found[0][-1]:
            case "\n":
                row += 1
                rows += [""] * (row + 1 - len(rows))
            case "K":
                rows[row] = ""
            case "A":
                row = max(0, row - int(found[2] or 1))
            case "m":
                rows[row] += found[0]
    rows[row] += output[at:]
    return "\n".join(line.rstrip() for line in rows).strip("\n")


def drawn(text: str) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi("\x1b[1m$ codepilot demo\x1b[0m\n" + text), soft_wrap=False)
    svg = console.export_svg(title="codepilot demo", theme=THEME, unique_id="codepilot-demo")
    svg = re.sub(r"@font-face\s*\{[^}]*\}|<!--.*?-->", "", svg)
    return re.sub(r"[ \t]+\n", "\n", re.sub(r"\n{2,}", "\n", svg))


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        text = screen(recorded(["codepilot", "demo"], home)).replace(home, USUAL_HOME)
    PICTURE.write_text(drawn(text), encoding="utf-8")


if __name__ == "__main__":
    main()
