"""No door prints a control character that CodePilot did not write, whatever paths, names and bundles contain."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_kit import SHOP, SHOP_TESTS, Command, Ended, git
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ready import Started

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\x7f"
"""A window title, a cleared screen, a C1 colour, reversed text and DEL."""
FILE = f"shop{EVIL}.py"
PROMPT = f"Ship it free{EVIL}\x1b[1A"
_OWN = re.compile("[\n\t]")


def bad(text: str) -> set[str]:
    return {char for char in _OWN.sub("", text) if not char.isprintable()}


def on_terminal(codepilot: Command, *arguments: str, cwd: Path | None = None, **environ: str) -> Ended:
    """The command with a terminal that knows no escapes: all that arrives is text."""
    ours, theirs = os.openpty()
    seen: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                seen.append(piece)

    reader = threading.Thread(target=read)
    with os.fdopen(theirs, "wb", buffering=0) as terminal:
        command = Started(arguments, {**codepilot.environ, "TERM": "dumb", **environ}, cwd, terminal, terminal)
    reader.start()
    code = command.wait(timeout=200)
    reader.join()
    os.close(ours)
    return Ended(code, b"".join(seen).decode().replace("\r\n", "\n"), "")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Command, Path, str]]:
    """A home with one finished run of a hostile checkout: its path, a file's name and the prompt hold escapes."""
    root = tmp_path_factory.mktemp("hostile")
    checkout = root / f"project{EVIL}"
    checkout.mkdir()
    (checkout / FILE).write_text(SHOP, encoding="utf-8")
    loaded = f"shop = __import__('importlib').import_module({FILE[:-3]!r})"
    taken = "bill, discount, shipping, subtotal = shop.bill, shop.discount, shop.shipping, shop.subtotal"
    tests = SHOP_TESTS.replace("from shop import bill, discount, shipping, subtotal", f"{loaded}\n{taken}")
    (checkout / "test_shop.py").write_text(tests, encoding="utf-8")
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "first")
    codepilot = Command(root / f"home{EVIL}")
    done = on_terminal(codepilot, "fix", "--apply", "--accept-plausible", "--prompt", PROMPT, cwd=checkout)
    assert not bad(done.out), done.out
    assert done.code == 0 and "Applied to" in done.out, done.out
    run_id = codepilot.newest()
    assert run_id is not None
    yield codepilot, checkout, run_id


def test_a_bundle_from_elsewhere_can_say_anything(runtime: tuple[Command, Path, str], tmp_path: Path) -> None:
    """Targets of a bundle are checked by nobody before `verify` reports on them."""
    codepilot, checkout, run_id = runtime
    bundle = tmp_path / f"bundle{EVIL}"
    shutil.copytree(codepilot.home / "bundles" / run_id, bundle)
    provenance = json.loads((bundle / "provenance.json").read_text())
    provenance["targets"] = [f"test_shop.ShopTest.test_{EVIL}"]
    _rewrite(bundle, provenance)
    done = on_terminal(codepilot, "verify", str(bundle), "--repo", str(checkout))
    assert not bad(done.out), done.out
    assert done.code == 1 and "owned" in done.out
    assert done.out.count("hold") == 1, done.out


def _rewrite(bundle: Path, provenance: dict[str, object]) -> None:
    from hashlib import sha256

    raw = json.dumps(provenance, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    (bundle / "provenance.json").write_bytes(raw)
    (bundle / "bundle.sha256").write_text(f"{sha256(raw).hexdigest()}  provenance.json\n")


COMMANDS = [
    ("show", "RUN"), ("history",), ("logs", "RUN"), ("diff", "RUN"), ("apply", "RUN", "--accept-plausible"),
    ("show", "RUN", "--events"), ("artifacts", "RUN"), ("artifacts", "RUN", "--link", "60"), ("pause", "RUN"),
    ("cancel", "RUN"), ("resume", "RUN"), ("verify", "RUN"), ("fsck",), ("doctor",),
    ("gc", "--artifacts", "9", "--dry-run"),
    ("submit", "--prompt", PROMPT, "--run", f"r-{EVIL}"), ("submit", "--prompt", PROMPT, "--run", "r-mine"),
    ("cancel", "r-mine"), ("worker", "--until-idle"), ("worker", "--listen", EVIL), ("fork", "RUN"),
    ("apply", "RUN", "--branch", f"x{EVIL}"), ("show", EVIL), ("verify", EVIL), ("fix", f"/nowhere{EVIL}"),
    ("fix", "--agent", EVIL), ("fix", "--agent", "codeact", "--model", EVIL), ("fix", "--python", f"/x/{EVIL}"),
    ("fix", "--budget", EVIL), ("fix", "--capability", EVIL), ("fix", "--allow-host", EVIL), ("fix", "--ref", EVIL),
    ("fix", "--test", EVIL), ("fix", "--branch", EVIL), ("executor", "--listen", EVIL), ("executor", "--level", EVIL),
    ("bench", "repair", "--set", EVIL, "--data", EVIL), (EVIL,), (f"--{EVIL}",),
    ("show", f"--{EVIL}"), ("show", "x", EVIL),
    ("gc", "--days", EVIL),
    ("watch", "RUN"), ("attach", "RUN"), ("attach", EVIL), ("checkpoints", "RUN"), ("rollback", "RUN", EVIL),
    ("message", "RUN", EVIL), ("approvals", "RUN"), ("approve", "RUN"), ("deny", EVIL), ("audit", "RUN"),
    ("audit", EVIL), ("policy", "show"), ("policy", "explain", f"rm {EVIL}"), ("memory", "list"),
    ("memory", "add", EVIL), ("memory", "export"), ("memory", "forget", EVIL), ("review", EVIL),
    ("review", "RUN", "--reject", EVIL),
    ("land", "RUN", "--onto", EVIL), ("land", EVIL, "--onto", "x"), ("rm", EVIL), ("prove", "--branch", EVIL),
    ("prove", "--diff", EVIL), ("prove", "--commit", EVIL), ("scaffold", EVIL), ("build", EVIL), ("build", EVIL * 3),
    ("change", EVIL, "--accept", EVIL), ("batch", EVIL), ("run", EVIL), ("spec", EVIL), ("token", "create", EVIL),
    ("token", "revoke", EVIL), ("serve", "--port", EVIL), ("serve", "--host", EVIL), ("init", "--agent", EVIL),
    ("prepare", EVIL), ("demo", EVIL),
]  # fmt: skip


def test_every_command_is_tried() -> None:
    import typer

    from codepilot.cli.app import app

    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert known == {one[0] for one in COMMANDS} - {EVIL, f"--{EVIL}"}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda one: ascii(" ".join(one))[1:40])
def test_no_command_prints_a_control_character(runtime: tuple[Command, Path, str], arguments: tuple[str, ...]) -> None:
    codepilot, checkout, run_id = runtime
    asked = [run_id if one == "RUN" else one for one in arguments]
    done = on_terminal(codepilot, *asked, cwd=checkout)
    assert not bad(done.out), done.out
    if "RUN" in arguments or len(arguments) == 1:  # a refusal is one document, whichever command prints it
        done = on_terminal(codepilot, *asked, "--json", cwd=checkout)
        assert not bad(done.out), done.out


def test_configuration_can_say_anything(runtime: tuple[Command, Path, str], tmp_path: Path) -> None:
    codepilot, checkout, _ = runtime
    (tmp_path / "codepilot").mkdir()
    (tmp_path / "codepilot" / "codepilot.toml").write_text(f'[models]\ndefault = {json.dumps(EVIL)}\n"x\\u009b" = 1\n')
    for command in (("doctor",), ("fix",), ("history",)):
        done = on_terminal(codepilot, *command, cwd=checkout, XDG_CONFIG_HOME=str(tmp_path))
        assert not bad(done.out), done.out


def test_the_console_sends_only_its_own_escapes() -> None:
    from codepilot.cli.safe_console import SafeConsole

    reported = io.StringIO()
    screen = SafeConsole(file=reported, force_terminal=True, width=200, color_system="standard")
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(Text(EVIL, "red"))
    table.add_row(escape(EVIL))
    screen.print(table)
    screen.print(EVIL, soft_wrap=True)
    screen.print(Text.assemble((EVIL, "bold")), soft_wrap=True)
    with Live(Text(EVIL), console=screen), screen.status(EVIL):
        screen.print(EVIL)
    shown = reported.getvalue()
    assert "\x1b[31m" in shown and "owned" in shown
    assert not bad(re.sub("\x1b\\[[0-9;?]*[A-Za-z]|\r", "", shown.replace("\x1b[2J", "CLEARED")))
    assert "CLEARED" not in shown and "\x1b[1A\x1b[1A" not in shown


def test_there_is_one_way_to_print() -> None:
    import codepilot.cli

    other = re.compile(r"\bprint\(|\.echo\(|(?<!Safe)Console\(|std(out|err)\.write\(|secho\(")
    for path in Path(codepilot.cli.__file__).parent.glob("*.py"):
        if path.name not in ("output.py", "safe_console.py"):
            found = [line for line in path.read_text().splitlines() if other.search(line.replace("console.print(", ""))]
            assert not [line for line in found if ".print(" not in line], path
