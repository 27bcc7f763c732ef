"""The dashboard of a real service in Chromium. Run by `make browser-test`; `make test` runs the smoke test alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import private_environment
from codepilot.core.approval import ApprovalRequested
from codepilot.core.events import EventDraft, EventType, RunBlocked
from codepilot.core.failures import Failure, FailureKind
from codepilot.engine import CodePilot, Settings

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
AXE = "axe-core@4.14.0"
CODE = """def shipping(amount, limit=50):
    if amount > limit:
        return 0
    return 5


def label(amount):
    return f"{amount} EUR"
"""
TESTS = """from shop import label, shipping


def test_it_costs_below_the_limit():
    assert shipping(49) == 5
    assert shipping(51) == 0


def test_it_is_free_at_the_limit():
    assert shipping(50) == 0
    assert shipping(20, limit=20) == 0


def test_label():
    assert label(3) == "3 EUR"
"""
PATHS = ("/", "/runs", "/new", "/new?kind=change", "/approvals", "/analytics", "/workers", "/audit", "/v1/docs")
PATHS += ("/landing", "/locks", "/login")


@dataclass
class Served:
    """`codepilot serve`, with the repository that its owner works on."""

    root: Path
    process: subprocess.Popen[str]
    url: str
    link: str

    @property
    def repo(self) -> Path:
        return self.root / "shop"


def start(root: Path, port: int = 0, *options: str) -> Served:
    command = [sys.executable, "-m", "codepilot", "serve", "--port", str(port), *options]
    environ = {**os.environ, "CODEPILOT_HOME": str(root / "home"), "XDG_CONFIG_HOME": str(root / "config")}
    log = (root / "serve.log").open("a")
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    printed = ""
    while line := process.stdout.readline():
        printed += line
        if found := re.search(r"(http://[\w.:]+)/login\?link=\S+", printed):
            return Served(root, process, found[1], found[0])
    raise AssertionError(printed + (root / "serve.log").read_text())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    repo = tmp_path / "shop"
    repo.mkdir()
    (repo / "shop.py").write_text(CODE)
    (repo / "test_shop.py").write_text(TESTS)
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *identity, *arguments], cwd=repo, check=True)
    service = start(tmp_path)
    yield service
    if service.process.poll() is None:
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(30)


def needs_chromium() -> None:
    if CHROMIUM is None:
        reason = "install Debian's chromium, or name one with CHROMIUM=/path"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def visit(served: Served, scenario: str, **given: object) -> dict[str, Any]:
    found = begin(served, scenario, **given)
    out, err = found.communicate(timeout=600 if scenario == "pages" else 330)
    assert found.returncode == 0, err[-3000:]
    seen: dict[str, Any] = json.loads(out)
    return seen


def begin(served: Served, scenario: str, **given: object) -> subprocess.Popen[str]:
    python = private_environment.interpreter(Path(__file__).with_name("playwright.txt"))
    everything = {"chromium": CHROMIUM, "url": served.url, "link": served.link, "repo": str(served.repo), **given}
    process = subprocess.Popen(
        [str(python), str(Path(__file__).with_name("visit.py")), scenario],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(everything, default=str))
    process.stdin.close()
    process.stdin = None
    return process


def new_link(served: Served) -> None:
    """A link logs in once: the next visit needs another one."""
    environ = {**os.environ, "CODEPILOT_HOME": str(served.root / "home")}
    command = [sys.executable, "-m", "codepilot", "serve", "--login", "--port", served.url.rpartition(":")[2]]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    served.link = re.search(r"http\S+/login\S+", done.stdout)[0]  # type: ignore[index]


@pytest.mark.timeout(390)
def test_a_task_is_submitted_and_watched_until_it_is_proved(served: Served) -> None:
    needs_chromium()
    seen = visit(served, "smoke")
    assert seen["live"], "the page was loaded again"
    assert "amount >= limit" in seen["diff"]
    assert seen["notified"] == ["CodePilot: a run has ended"]
    assert seen["console"] == []


def ask(pilot: CodePilot, run_id: str) -> None:
    """Let a run that no worker has wait for an answer."""
    store = pilot._runtime.store
    expires = store.now() + 600_000_000
    request = ApprovalRequested(approval_id="a-1", operation="network", details="pypi.org", expires_at=expires)
    failure = Failure(kind=FailureKind.DENIED, message="A person has to approve.", details={"approval_id": "a-1"})
    run = store.load(run_id)
    found = ((EventType.APPROVAL_REQUESTED, request), (EventType.RUN_BLOCKED, RunBlocked(failure=failure)))
    drafts = [EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt) for kind, data in found]
    store.control(run_id, lambda run: drafts)


def codepilot(served: Served, *arguments: str) -> str:
    environ = {
        **os.environ,
        "CODEPILOT_HOME": str(served.root / "home"),
        "XDG_CONFIG_HOME": str(served.root / "config"),
    }
    command = [sys.executable, "-m", "codepilot", *arguments]
    done = subprocess.run(command, env=environ, cwd=served.repo, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3, 5), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", "--silent", AXE], cwd=place, check=True, capture_output=True)
    subprocess.run(["tar", "xzf", next(place.glob("*.tgz"))], cwd=place, check=True)
    return place / "package" / "axe.min.js"


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_every_page_fits_and_is_accessible(served: Served, axe: Path, tmp_path: Path) -> None:
    """Pictures are kept in CODEPILOT_PICTURES, for a person to look at."""
    run = json.loads(codepilot(served, "fix", "--json"))["run_id"]
    pictures = Path(os.environ.get("CODEPILOT_PICTURES", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)
    own = (f"/runs/{run}", f"/runs/{run}/diff", f"/runs/{run}/diff?view=split", f"/runs/{run}/log")
    own += (f"/runs/{run}/live", f"/runs/{run}/checkpoints")
    seen = visit(served, "pages", paths=[*PATHS, *own, f"/compare?a={run}&b={run}"], axe=axe, pictures=pictures)
    assert {name: found for name, found in seen["pages"].items() if found["overflow"] or found["axe"]} == {}
    assert seen["console"] == []
    token = json.loads(codepilot(served, "token", "create", "eve", "--scope", "viewer", "--json"))["token"]
    seen = visit(served, "viewer", run=run, token=token)
    assert seen["widths"]["c"] > 5 * seen["widths"]["n"] and seen["buttons"] == 0
    assert seen["console"] == []


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_a_hunk_is_rejected_and_the_rest_is_proved(served: Served) -> None:
    run = json.loads(codepilot(served, "fix", "--json"))["run_id"]
    seen = visit(served, "reject", run=run, hunk="test_shop.py:1")
    assert seen["word"] in ("Confirmed", "Plausible")
    assert seen["tally"] == "1 of 2 rejected" and seen["console"] == []
    assert "Reviewed by owner" in seen["review"] and re.search(r"line \d+: too much", seen["review"])


@pytest.mark.browser
@pytest.mark.timeout(300)
def test_a_request_is_answered_by_keyboard(served: Served) -> None:
    """No worker takes the run, which waits for the answer."""
    served.process.terminate()
    served.process.wait(30)
    service = start(served.root, 0, "--no-workers")
    try:
        run = codepilot(served, "submit", ".").split()[-1]
        token = json.loads(codepilot(served, "token", "create", "olga", "--json"))["token"]
        with CodePilot(Settings.load(flags={"home": served.root / "home"})) as pilot:
            ask(pilot, run)
            seen = visit(service, "answer", run=run, token=token)
            (asked,) = pilot.approvals(run)
    finally:
        service.process.terminate()
        service.process.wait(30)
    assert (seen["kept"], seen["console"]) == ("not from here", [])
    assert (asked.status, asked.by, asked.reason) == ("denied", "olga", "not from here")


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_two_browsers_survive_a_restart_of_the_server(served: Served) -> None:
    codepilot(served, "fix")
    port = int(served.url.rpartition(":")[2])
    first = begin(served, "outage", ready=served.root / "ready1", seen=served.root / "seen1", cards=1)
    new_link(served)
    second = begin(served, "outage", ready=served.root / "ready2", seen=served.root / "seen2", cards=1)
    wait_for(served.root / "ready1", served.root / "ready2")
    served.process.kill()
    served.process.wait(10)
    wait_for(served.root / "seen1", served.root / "seen2")
    again = start(served.root, port)
    try:
        for browser in (first, second):
            out, err = browser.communicate(timeout=120)
            assert browser.returncode == 0, err[-3000:]
            assert json.loads(out) == {"cards": 1}
    finally:
        again.process.terminate()
        again.process.wait(30)


@pytest.mark.browser
@pytest.mark.timeout(300)
def test_a_task_is_submitted_without_javascript(served: Served) -> None:
    seen = visit(served, "without_script")
    assert "CodePilot" in seen["title"]
    assert "Cancel" in seen["buttons"] or "Fork" in seen["buttons"]


def wait_for(*files: Path, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, f"{files} did not appear"
        time.sleep(0.1)
