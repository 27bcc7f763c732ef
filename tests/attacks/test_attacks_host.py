"""Patches and texts that attack anyone who applies or shows them."""

from __future__ import annotations

import io

import pytest
from attack_kit import Attack, Targets, expected, settle, view
from corpus import of
from rich.console import Console

from codepilot.cli.output import plain, plain_lines
from codepilot.cli.screens import failure, printable
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Kernel, Sandbox
from codepilot.skills import inside_prelude

HARMLESS = {"\n", "\t"}


@pytest.mark.parametrize("attack", of("patch"), ids=lambda attack: attack.name)
def test_a_patch_that_leads_out_is_refused(attack: Attack, sandbox: Sandbox, targets: Targets) -> None:
    (targets.tree / "pkg").mkdir()
    (targets.tree / "out").symlink_to(targets.outside)
    kernel = Kernel(sandbox, view(targets), attack.limits, prelude=inside_prelude())
    try:
        for part in attack.program.split("--- /dev/null\n")[1:]:
            result = kernel.run(f"apply_patch({'--- /dev/null' + chr(10) + part!r})", timeout_sec=10)
            assert result.error is not None, part
            assert result.error.type in expected(attack, sandbox.level), result.error
    finally:
        kernel.stop()
    settle(targets)
    assert sorted(path.name for path in targets.tree.iterdir()) == ["out", "pkg"]
    assert targets.harm() == []


@pytest.mark.parametrize("attack", of("text"), ids=lambda attack: attack.name)
def test_a_text_cannot_drive_the_terminal(attack: Attack) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=False, width=200)
    failure(console, CodePilotError(FailureKind.INTERNAL, attack.program, attack.program).failure)
    console.print(printable(f"--- a/{attack.program}\n+{attack.program}\n".encode("utf-8", "surrogateescape")))
    texts = (plain(attack.program), plain_lines(attack.program), shown.getvalue())
    assert not [char for text in texts for char in text if not char.isprintable() and char not in HARMLESS]
