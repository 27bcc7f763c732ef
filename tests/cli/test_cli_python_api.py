"""The Python API as its page shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import getmembers
from pathlib import Path

from cli_kit import Command, git

import codepilot as package
from codepilot import CodePilot

PAGE = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_repairs_and_applies(codepilot: Command, shop: Path) -> None:
    shop.rename(shop.parent / "shop")
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=shop.parent,
        env=codepilot.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "task_spec_recorded" in done.stdout or "step_started" in done.stdout
    assert "run_finished" in done.stdout and "+    if amount >= limit:" in done.stdout
    assert done.stdout.endswith("('shop.py',)\n")
    assert git(shop.parent / "shop", "status", "--porcelain") == " M shop.py\n"


def test_the_page_lists_every_method() -> None:
    listed = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"^\| [a-z ]+ \| `([a-z_ ]+)` \|$", PAGE, re.MULTILINE))))
    methods = {name for name, value in getmembers(CodePilot) if callable(value) and not name.startswith("_")}
    assert methods - {"model_named"} == listed


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, codepilot; print([name for name in sys.modules if name.startswith('codepilot.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert set(package.__all__) == {"CodePilot", "Request", "Settings", "__version__"}
