"""The client for processes that answer in JSON lines: bounds on lines, totals and time, and the process's death."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pytest

from codepilot.sandbox import JsonLinesClient, ProcessEnded, ProtocolError


@dataclass
class Pipes:
    """A process's two pipes, with the process's ends of them."""

    stdin: BinaryIO
    stdout: BinaryIO
    asked: BinaryIO
    answers: BinaryIO


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    asked, stdin = os.pipe()
    stdout, answers = os.pipe()
    made = Pipes(os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), os.fdopen(asked, "rb"), os.fdopen(answers, "wb", 0))
    yield made
    for stream in (made.answers, made.asked, made.stdin):
        stream.close()


def client(pipes: Pipes, **bounds: int) -> JsonLinesClient:
    return JsonLinesClient(pipes, **{"max_line": 1000, "max_unread": 3000, **bounds})


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def test_a_request_is_one_line_and_so_is_each_answer(pipes):
    lines = client(pipes)
    lines.ask({"op": "x"}, soon())
    assert pipes.asked.readline() == b'{"op": "x"}\n'
    pipes.answers.write(b'{"a": 1}\n{"a"')
    assert lines.receive(soon()) == {"a": 1}
    pipes.answers.write(b": 2}\n")
    assert lines.receive(soon()) == {"a": 2}


@pytest.mark.parametrize("line", [b"x\n", b"[1]\n", b"\xff\n", b"[" * 900 + b"\n", b'{"a": 1}{"b": 2}\n', b"\n"])
def test_what_is_no_object_is_a_protocol_error(pipes, line):
    lines = client(pipes)
    pipes.answers.write(line)
    with pytest.raises(ProtocolError):
        lines.receive(soon())


def test_a_line_that_is_too_long_is_a_protocol_error_before_it_ends(pipes):
    lines = client(pipes)
    pipes.answers.write(b"x" * 1001)
    with pytest.raises(ProtocolError, match="a line of more than 1000 bytes"):
        lines.receive(soon())


def test_what_nobody_reads_is_bounded_and_ends_the_wait_for_more(pipes):
    lines = client(pipes, max_unread=100)
    lines.finished.clear()
    pipes.answers.write(b'{"a": 1}\n' * 20)
    assert lines.finished.wait(10)
    for _ in range(11):
        lines.receive(soon())
    with pytest.raises(ProtocolError, match="not read yet"):
        for _ in range(10):
            lines.receive(soon())


def test_what_answers_one_request_is_bounded(pipes):
    lines = client(pipes, max_total=20)
    for _ in range(2):
        lines.ask({}, soon())
        pipes.answers.write(b'{"a": 1}\n' * 2)
        assert [lines.receive(soon()), lines.receive(soon())] == [{"a": 1}] * 2
    pipes.answers.write(b'{"a": 1}\n')
    with pytest.raises(ProtocolError, match="more than 20 bytes"):
        lines.receive(soon())


def test_no_answer_is_a_timeout_and_the_caller_may_look_meanwhile(pipes):
    looked: list[float] = []
    with pytest.raises(TimeoutError):
        client(pipes).receive(soon(0.5), lambda: looked.append(time.monotonic()))
    assert len(looked) >= 2


def test_a_process_that_does_not_read_costs_no_more_than_the_deadline(pipes):
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        client(pipes).send(b"x" * (1 << 20), soon(0.3))
    assert time.monotonic() - started < 5


def test_an_answer_before_the_end_is_given_and_then_the_death_is_reported(pipes):
    lines = client(pipes)
    pipes.answers.write(b'{"a": 1}\n{"half')
    pipes.answers.close()
    assert lines.receive(soon()) == {"a": 1}
    with pytest.raises(ProcessEnded):
        lines.receive(soon())
    pipes.asked.close()
    with pytest.raises(ProcessEnded):
        lines.ask({}, soon())


def test_finished_is_set_by_the_final_line_and_cleared_by_the_next_request(pipes):
    lines = JsonLinesClient(pipes, 1000, 3000, final=b'{"done"')
    lines.ask({}, soon())
    assert not lines.finished.is_set()
    pipes.answers.write(b'{"a": 1}\n{"done": true}\n')
    assert lines.finished.wait(10)
    assert [lines.receive(soon()), lines.receive(soon())] == [{"a": 1}, {"done": True}]
    lines.ask({}, soon())
    assert not lines.finished.is_set()
    threading.Timer(0.1, pipes.answers.close).start()
    assert lines.finished.wait(10)
