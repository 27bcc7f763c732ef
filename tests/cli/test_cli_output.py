"""Commands print on every terminal; where nothing can be printed, that is what is reported."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cli_kit import Command

from codepilot.cli.team import WorkerLines
from codepilot.core.decide import start
from codepilot.core.events import Event, EventType, RunFinished, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.task import Goal, TaskSpec
from ready import Started

RUN, GOAL = "r-01", "Prüfe → 😀"


def run(codepilot: Command, *asked: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """A process of its own from its first moment: by then its encoding is settled."""
    return subprocess.run(
        codepilot.argv(*asked), env={**codepilot.environ, **environ}, capture_output=True, timeout=300, check=False
    )


@pytest.fixture
def reported(codepilot: Command) -> Command:
    """A home with a run whose task has letters of all kinds."""
    with codepilot.runtime() as runtime:
        runtime.store.create_run(RUN, start(TaskSpec(task_id="t-01", goal=Goal(natural=GOAL), repo="/nowhere"), RUN))
    return codepilot


@pytest.mark.variants
@pytest.mark.parametrize(
    ("encoding", "commands"),
    [
        ("latin-1", [["show", RUN]]),
        ("ascii", [["history"], ["show", RUN], ["show", RUN, "--events"], ["-q", "doctor", "--no-tests"]]),
    ],
)
def test_no_encoding_is_a_reason_to_fail(reported: Command, encoding: str, commands: list[list[str]]) -> None:
    for asked in commands:
        ended = run(reported, *asked, PYTHONIOENCODING=encoding)
        assert (ended.returncode, ended.stderr) == (0, b""), asked
        shown = ended.stdout.decode(encoding)
        assert shown, asked
        if asked == ["show", RUN]:
            assert ("Prüfe" if encoding == "latin-1" else "Pr\\xfcfe") in shown and "\\u2192 \\U0001f600" in shown


@pytest.mark.variants
def test_json_is_utf8_everywhere(reported: Command) -> None:
    logs = run(reported, "logs", RUN, "--json", PYTHONIOENCODING="ascii")
    lines = [json.loads(line) for line in logs.stdout.decode().splitlines()]
    assert lines[0]["data"]["task"]["goal"]["natural"] == GOAL
    replayed = run(reported, "show", RUN, "--events", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(replayed.stdout.decode())["run"]["task"]["goal"]["natural"] == GOAL
    refused = run(reported, "show", GOAL, "--json", PYTHONIOENCODING="ascii")
    assert GOAL in json.loads(refused.stdout.decode())["failure"]["message"]


@pytest.mark.variants
def test_a_repair_is_shown_to_its_end_on_a_terminal_that_has_ascii_alone(codepilot: Command, shop: Path) -> None:
    ended = run(codepilot, "fix", str(shop), PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert b"\\u2713 FINALIZE" in ended.stderr and b"verdict" in ended.stdout


@pytest.mark.parametrize(
    "asked",
    [
        ("show", RUN, "--json"),
        ("show", RUN),
        ("logs", RUN),
        ("history",),
        ("-q", "doctor", "--no-tests", "--json"),
        ("--version",),
    ],
)
def test_an_output_that_cannot_be_written_is_reported_in_two_lines(reported: Command, asked: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = Started(asked, reported.environ, stdout=full)
        _, err = ended.communicate(60)
    assert ended.returncode == 4, err
    first, second = err.splitlines()
    assert "could not be written: No space left on device" in first and second.startswith("→")


def test_a_refusal_is_reported_and_counts_where_its_document_cannot_be_written(reported: Command) -> None:
    with Path("/dev/full").open("wb") as full:
        asked = ("show", "r-nothing", "--json")
        ended = Started(asked, reported.environ, stdout=full)
        _, err = ended.communicate(60)
        assert (ended.returncode, "r-nothing" in err) == (2, True)
        assert "Traceback" not in err
        assert Started(asked, reported.environ, stdout=full, stderr=full).wait(60) == 2


@pytest.mark.parametrize("asked", [("logs", RUN), ("show", RUN, "--json"), ("history",)])
def test_a_reader_that_has_read_enough_is_no_failure(reported: Command, asked: tuple[str, ...]) -> None:
    process = reported.start(*asked)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == ("", 1)
    process.stderr.close()


@pytest.mark.variants
def test_without_any_output_commands_do_their_work(reported: Command) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *reported.argv("show", RUN)]
        ended = subprocess.run(shell, env=reported.environ, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (0, ""), closed


class _Broken:
    """A stream that fails in a way nobody thought of."""

    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file.")


def test_whatever_is_wrong_with_its_output_a_hand_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", _Broken())
    failure = Failure(kind=FailureKind.STUCK, message="x")
    WorkerLines(str, list).on_event(
        Event(
            type=EventType.RUN_FINISHED,
            data=RunFinished(state=State.FAILED, failure=failure),
            event_id="e-1",
            seq=1,
            run_id=RUN,
            at=1,
        )
    )
