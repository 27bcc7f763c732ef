"""Whole sweeps by the command line: real engine, real sandbox, killed in the middle and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bench_kit import HOPELESS, LARGEST, TWICE, write_quixbugs, write_tasks

import ready
from codepilot.bench.results import Results, engine_version
from ready import without_plugins

pytestmark = pytest.mark.timeout(600)


def _command(out: Path, data: Path, *more: str, kind: str = "humanevalfix") -> list[str]:
    where = ["--set", kind, "--data", str(data), "--out", str(out)]
    return [sys.executable, "-m", "codepilot", "bench", "repair", *where, *more]


def _bench(out: Path, data: Path, *more: str, kind: str = "humanevalfix") -> dict[str, Any]:
    environ = {**os.environ, "XDG_CONFIG_HOME": str(without_plugins(out.parent / "config"))}
    code, message, err = ready.run(_command(out, data, "--json", *more, kind=kind)[3:], environ)
    assert code == 0, message + err
    document = json.loads(message)
    assert isinstance(document, dict)
    return document


@pytest.mark.variants
def test_a_set_goes_through_the_engine_and_is_reported(tmp_path: Path) -> None:
    data, out = write_tasks(tmp_path / "data", TWICE), tmp_path / "out"
    document = _bench(out, data, "--seconds", "6")
    assert document["complete"] and document["all"]["top1"] == document["all"]["plausible"] == 1
    assert document["by_kind"]["value misuse"]["bugs"] == 1
    (result,) = Results(out).read()
    assert result.verdict in ("confirmed", "plausible") and result.correct[0] and result.tried > 0
    assert result.peak_mib > 20 and result.first_plausible_sec is not None
    assert "+    return x + x" in result.patches[0] or "+    return x * 2" in result.patches[0]
    assert "| Python/1 | value misuse | correct |" in (out / "report.md").read_text()
    page = (out / "report.html").read_text()
    assert "Python/1" in page and "http" not in page and "<script" not in page
    assert not (out / "work").exists()


@pytest.mark.slow
def test_a_sweep_in_parallel_then_more_of_the_set_stopped_and_gone_on_with(tmp_path: Path) -> None:
    data, out = write_tasks(tmp_path / "data", TWICE, LARGEST, HOPELESS), tmp_path / "out"
    options = ("--search-only", "--seconds", "4", "--jobs", "2")
    first = _bench(out, data, *options, "--limit", "2")
    assert first["all"]["bugs"] == 2 and first["all"]["top1"] == 2
    before = [(one.bug, one.total_sec) for one in Results(out).read()]
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(_command(out, data, *options), start_new_session=True, stdout=subprocess.DEVNULL)
        _wait(lambda: (out / "work" / "Python-3" / "home").exists())
        process.send_signal(how)
        assert process.wait(20) == code
        _wait(lambda: not _at_work(out))
        assert "2 of 3 done" in (out / "report.md").read_text()
    with (out / "results.jsonl").open("ab") as file:
        file.write(b'{"set": "humanevalfix", "bug": "Pyth')
    second = _bench(out, data, *options)
    assert second["complete"] and second["all"]["bugs"] == 3 and second["all"]["plausible"] == 2
    assert [(one.bug, one.total_sec) for one in Results(out).read()][:2] == before
    assert len(Results(out).read()) == 3
    _bench(out, data, *options, "--only", "Python/1", "--fresh")
    assert [one.bug for one in Results(out).read()] == ["Python/1"]


@pytest.mark.variants
def test_quixbugs_by_the_search_alone(tmp_path: Path) -> None:
    right = "def inc(n):\n    if n > 3:\n        return n + 1\n    return n\n"
    data = write_quixbugs(
        tmp_path / "data", "inc", right, right.replace("n + 1", "n - 1"), [[[1], 1], [[5], 6], [[9], 10]]
    )
    assert _bench(tmp_path / "out", data, "--search-only", "--seconds", "10", kind="quixbugs")["all"]["top1"] == 1


def _wait(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def _at_work(out: Path) -> list[str]:
    """Processes that still have the sweep's directory in their command line or as their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(out).encode() in (entry / "cmdline").read_bytes() or str(out) in str((entry / "cwd").readlink()):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_another_engine_is_measured_anew() -> None:
    assert engine_version("fix") != engine_version("search")


def test_mistakes_are_usage_errors_with_a_next_step(tmp_path: Path) -> None:
    data = write_tasks(tmp_path / "data", TWICE)
    for arguments, message in (
        (_command(tmp_path / "o", data, "--only", "Python/9"), "has no bug called 'Python/9'"),
        (_command(tmp_path / "o", tmp_path / "none"), "does not exist"),
        (_command(tmp_path / "o", data, kind="other"), "no set called 'other'"),
    ):
        code, _, err = ready.run(arguments[3:], os.environ)
        assert code == 2 and message in " ".join(err.split())
