"""What a kernel says: whatever it is, the host reads it in a short time and little memory, and takes what fits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from codepilot.sandbox import Kernel, Limits, Mount, ProtocolError, SandboxSpec
from codepilot.sandbox.json_lines import parse_object
from codepilot.sandbox.kernel.replies import longest_line
from levels import level

SAY = """
import os
def say(line):
    for fd in range(100, 110):
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(fd, rest):]
        except OSError:
            pass
"""
READ = """
import resource, sys, time
from codepilot.sandbox.json_lines import ProtocolError, parse_object
line = eval(sys.argv[1])
before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    parse_object(line)
except ProtocolError:
    pass
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(time.process_time() - started, used * 1024 / len(line))
"""


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for the module: an action after the end of a kernel starts the next one."""
    tree = tmp_path_factory.mktemp("place").resolve() / "tree"
    tree.mkdir()
    kernel = Kernel(level(request.param), SandboxSpec(Mount(tree, tree, True)), Limits(memory_bytes=300 << 20))
    yield kernel
    kernel.stop()


@pytest.mark.parametrize(
    "line",
    [
        "b'\"' + b'\\\\\"' * 2_000_000",
        "b'{\"stdout\": \"' + b'a' * 4_000_000 + b'\"}'",
        "b'{\"stdout\": \"' + b'\\\\n' * 2_000_000 + b'\"}'",
        "b'{\"stdout\": \"' + b'\\\\ud83d\\\\ude00' * 400_000 + b'\"}'",
        "b'[' + b'\"\",' * 1_500_000 + b'0]'",
        "b'[' * 4_000_000",
        "b'\"' * 4_000_000",
        "b'1' * 4_000_000",
    ],
)
def test_a_line_costs_no_more_than_its_length(line):
    reported = subprocess.run([sys.executable, "-c", READ, line], capture_output=True, check=True, timeout=300)
    seconds, times = map(float, reported.stdout.split())
    assert seconds < 3, seconds
    assert times < 8, times


def test_quotes_that_are_escaped_end_no_string():
    line = json.dumps({"stdout": '\\"' * 400_000 + "\\"}).encode()
    assert len(line) > 1 << 20
    assert parse_object(line) == json.loads(line)
    with pytest.raises(ProtocolError):
        parse_object(b'{"a": "\\\\", "b": [' + b"1," * (1 << 20) + b"1]}")


def test_an_endless_line_costs_the_kernel_and_no_time(kernel):
    started = time.monotonic()
    lost = kernel.run(f"{SAY}\nsay(b'{{\"id\": 1, \"stdout\": \"' + b'\\\\\"' * 600_000 + b'\\n')\n", timeout_sec=20)
    assert (lost.status, lost.kernel_restarted) == ("error", True)
    assert time.monotonic() - started < 10
    flood = kernel.run(f"{SAY}\nfor _ in range(40): say(b'x' * 1_000_000)", timeout_sec=20)
    assert (flood.status, flood.kernel_restarted) == ("error", True)
    assert "a line of more than" in flood.error.message
    assert kernel.run("2 + 2").value == "4"


@pytest.mark.parametrize("output", [b"\0", b"\xff", "😀".encode(), b"a", b'"\\'])
def test_as_much_as_may_be_printed_arrives_of_any_character(sandbox, view, output):
    """The protocol spells some bytes with six; no printing may cost the kernel."""
    kernel = Kernel(sandbox, view, Limits(output_bytes=3_000_000))
    try:
        code = (
            f"import os\nfor fd in (1, 2):\n    for _ in range(30): os.write(fd, {output!r} * {100_000 // len(output)})"
        )
        result = kernel.run(code)
    finally:
        kernel.stop()
    assert result.status == "ok", result.error
    shown = output.decode("utf-8", "replace")
    for text in (result.stdout, result.stderr):
        assert text.startswith(shown) and text.endswith(shown)
        assert len(text.encode()) > 1_400_000
    assert longest_line(3_000_000) < 20_000_000


def test_a_name_without_end_is_cut(kernel):
    result = kernel.run("raise type('E' * 10_000_000, (Exception,), {})('x')")
    assert result.error is not None and len(result.error.type) < 300
    forged = {"ok": False, "error": {"type": "T" * 10_000_000, "message": "m" * 1_000_000, "line": 10**300}}
    result = kernel.run(_forged(forged))
    assert result.error is not None
    assert (len(result.error.type), len(result.error.message), result.error.line) == (200, 20_100, None)


def test_numbers_and_halves_of_characters_are_taken_for_what_they_are(kernel):
    calls = [["a", "success", 10**400, ""], ["b\ud800", "error", 1, "\ud800"], ["c", "success", float("nan"), ""]]
    forged = {"ok": True, "exit_code": 10**40, "calls": calls, "error": {"type": "\ud800", "message": "\udfff"}}
    result = kernel.run(_forged(forged))
    assert result.exit_code is None
    assert [(call.skill, call.duration_ms) for call in result.calls] == [("a", 1e10), ("b\\ud800", 1.0)]
    assert result.error is not None and (result.error.type, result.error.message) == ("\\ud800", "\\udfff")
    assert kernel.run(_forged({"ok": True, "exit_code": 10**4000})).exit_code is None


def test_a_refused_call_is_reported_though_the_kernel_does_not_live_to_reply(kernel):
    refused = (
        "import codepilot_kernel, os, time\ncodepilot_kernel.note('touch', 'policy_violation', 0.1, '[rule] touch')\n"
    )
    lost = kernel.run(refused + "os._exit(0)")
    assert (lost.status, [call.violation for call in lost.calls]) == ("error", ["[rule] touch"])
    reported = kernel.run(refused + "codepilot_kernel.note('look', 'success', 0.1)")
    assert [(call.skill, call.status) for call in reported.calls] == [
        ("touch", "policy_violation"),
        ("look", "success"),
    ]
    stopped = kernel.run(
        refused + "while True:\n    try: time.sleep(60)\n    except BaseException: pass", timeout_sec=0.3
    )
    assert (stopped.status, len(stopped.calls)) == ("timeout", 1)
    assert kernel.run("1").calls == ()


def test_refusals_without_end_are_reported_while_interrupts_come(kernel):
    noisy = "from codepilot_kernel import note\nfor n in range(300): note('touch', 'policy_violation', 0, 'x' * 600)\n"
    result = kernel.run(noisy + "while True: note('touch', 'policy_violation', 0, '')", timeout_sec=0.5)
    assert (result.status, result.kernel_restarted) == ("timeout", False)
    assert 100 <= len(result.calls) <= 1_100


def _forged(reply: dict[str, object]) -> str:
    """An action that finds out how it was asked, and answers itself."""
    reported = json.dumps(reply)
    return (
        f"{SAY}\nimport sys\nnumber = next(frame for frame in iter(_frames()) if 'request' in frame.f_locals)"
        f".f_locals['request']['id']\nsay(('{{\"id\": %d, ' % number + {reported[1:]!r}).encode() + b'\\n')\n"
    ).replace(
        "import sys\n", "import sys\ndef _frames():\n    at = sys._getframe()\n    while at: yield at; at = at.f_back\n"
    )
