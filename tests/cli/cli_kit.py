"""The command as users run it: a process of its own, a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.decide import start
from codepilot.core.events import EventType
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Runtime
from configured import configured
from ready import Started, run


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Command:
    """`codepilot` with its own home."""

    home: Path
    python: str = sys.executable

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
        # unittest starts in a third of pytest's time; a regression test is a third of a repair, the scanner a tenth.
        cheap = {"PROJECT_RUNNER": "unittest", "POLICY_REGRESSION_TEST": "false", "POLICY_GENERATED_CODE": "off"}
        mine = {f"CODEPILOT_{name}": value for name, value in cheap.items()}
        return {**kept, **mine, "CODEPILOT_HOME": str(self.home), "COLUMNS": "200"}

    def argv(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "codepilot", *arguments]

    def __call__(self, *arguments: str, cwd: Path | None = None, **environ: str) -> Ended:
        return Ended(*run(arguments, {**self.environ, **environ}, cwd))

    def runtime(self) -> Runtime:
        """The same home, opened here: quicker than a command where only reading is meant."""
        return Runtime.open(configured(self.environ))

    def newest(self) -> str | None:
        if not (self.home / "codepilot.db").exists():
            return None
        with self.runtime() as runtime:
            rows = runtime.store.history(1)
        return rows[0].run_id if rows else None

    def start(self, *arguments: str, **environ: str) -> Started:
        return Started(arguments, {**self.environ, **environ})


def kinds(codepilot: Command, run_id: str) -> list[EventType]:
    with codepilot.runtime() as runtime:
        runtime.store.check(run_id)
        return [event.type for event in runtime.store.events(run_id)]


def started(codepilot: Command, kind: EventType, *arguments: str, times: int = 1) -> tuple[Started, str]:
    """A command that was started, and its run, which has come as far as so many events of that kind."""
    process, deadline = codepilot.start(*arguments), time.monotonic() + 60
    while (run_id := codepilot.newest()) is None or kinds(codepilot, run_id).count(kind) < times:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    return process, run_id


@pytest.fixture
def codepilot(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


def git(checkout: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.invalid")
    done = subprocess.run(["git", *identity, *arguments], cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout


def committed(checkout: Path, files: dict[str, str]) -> Path:
    """A repository with one commit of the given files."""
    for path, text in files.items():
        target = checkout / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    git(checkout, "init", "-q", "-b", "main")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "first")
    return checkout


Repo = Callable[..., Path]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Make a committed repository of the given files."""

    def make(files: dict[str, str], name: str = "project") -> Path:
        return committed(tmp_path / name, files)

    return make


SHOP = '''"""Prices of a small shop."""


def subtotal(items):
    """The sum of price times quantity."""
    total = 0
    for price, quantity in items:
        total += price * quantity
    return total


def discount(amount, rate):
    """Ten percent off is a rate of 0.1; never below zero."""
    return max(0, amount - amount * rate)


def shipping(amount, limit=50):
    """Free from the limit on."""
    if amount > limit:
        return 0
    return 5


def bill(items, rate=0):
    amount = discount(subtotal(items), rate)
    return amount + shipping(amount)
'''

SHOP_TESTS = """import unittest

from shop import bill, discount, shipping, subtotal


class ShopTest(unittest.TestCase):
    def test_subtotal(self):
        self.assertEqual(subtotal([]), 0)
        self.assertEqual(subtotal([(3, 2), (4, 1)]), 10)

    def test_discount(self):
        self.assertEqual(discount(100, 0), 100)
        self.assertEqual(discount(100, 0.5), 50)
        self.assertEqual(discount(100, 2), 0)

    def test_shipping(self):
        self.assertEqual(shipping(49), 5)
        self.assertEqual(shipping(51), 0)
        self.assertEqual(shipping(10, limit=5), 0)
        self.assertEqual(shipping(10, limit=20), 5)

    def test_shipping_is_free_at_the_limit(self):
        self.assertEqual(shipping(50), 0)
        self.assertEqual(shipping(20, limit=20), 0)

    def test_bill(self):
        self.assertEqual(bill([(10, 2)]), 25)
        self.assertEqual(bill([(10, 6)]), 60)


if __name__ == "__main__":
    unittest.main()
"""


@pytest.fixture
def shop(repo: Repo) -> Path:
    """A little shop whose shipping is not free at the limit."""
    return repo({"shop.py": SHOP, "test_shop.py": SHOP_TESTS})


@pytest.fixture(scope="session")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A directory with a home and its checkout `project` after one confirmed repair, and the run's id."""
    root = tmp_path_factory.mktemp("repaired")
    codepilot = Command(root / "home")
    ended = codepilot("fix", str(committed(root / "project", {"shop.py": SHOP, "test_shop.py": SHOP_TESTS})), "--json")
    assert ended.code == 0, ended.out + ended.err
    return root, ended.json["run_id"]


@pytest.fixture
def finished(repaired: tuple[Path, str], codepilot: Command) -> str:
    """A finished run in this test's home, a copy of the one that it was made in."""
    root, run_id = repaired
    shutil.copytree(root / "home", codepilot.home, symlinks=True)
    for name in codepilot.home.glob("**/stores/*"):
        name.write_text(name.read_text().replace(str(root / "home"), str(codepilot.home)))
    return run_id


@pytest.fixture
def queued(codepilot: Command) -> str:
    """A queued run of a repository that nobody looks at."""
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural="Repair it"), repo="/nowhere")
        runtime.store.create_run("r-01", start(task, "r-01"))
    return "r-01"


@pytest.fixture
def interrupted(codepilot: Command, queued: str) -> str:
    """A run whose worker died in its first step."""
    with codepilot.runtime() as runtime:
        assert runtime.store.claim_next("w-dead", queued) is not None
    return queued
