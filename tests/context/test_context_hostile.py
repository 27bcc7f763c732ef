"""Sources that were written to hurt anyone who reads them: each costs its bound at most, and nobody else anything."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codepilot.context import Evidence, Files, RepositoryMap, Survey, map_repository, parsing
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind

GOOD = b"def good():\n    return 1\n"


def mapped(sources: dict[str, bytes], **more: float) -> RepositoryMap:
    hashes = {path: hashlib.sha256(path.encode() + data).hexdigest() for path, data in sources.items()}
    return map_repository(hashes, sources.get, **more)


def noise(size: int) -> bytes:
    return random.Random(7).randbytes(size).replace(b"\0", b"\1")


SHAPES: dict[str, bytes] = {
    "open": b"(\n" * 8_000,
    "braces": b"{\n" * 8_000,
    "nested": b"(\n" * 4_000 + b")\n" * 4_000,
    "sums": b"x = " + b"a +\n" * 4_000 + b"a",
    "calls": b"f(\n" * 4_000,
    "templates": b"`${\n" * 4_000,
    "arrows": b"x=>\n" * 4_000,
    "types": b"a<b<\n" * 4_000,
    "elements": b"<a>\n" * 4_000,
    "indents": b"".join(b" " * deep + b"if x:\n" for deep in range(300)),
    "noise": b"\n".join(noise(200) for _ in range(200)),
}


@pytest.mark.parametrize("language", ["py", "java", "js", "tsx"])
def test_no_shape_of_source_takes_longer_than_its_bound(language: str) -> None:
    sources = {f"{name}.{language}": data for name, data in SHAPES.items()} | {"good.py": GOOD}
    before = os.times()
    found = mapped(sources)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 0.4 * len(SHAPES) + 2
    assert set(found.files) == set(sources)
    assert [symbol.name for symbol in found.files["good.py"].symbols] == ["good"]
    assert not [note for note in found.figures.notes if note not in ("minified", "unparsable", "cut")]


def test_what_costs_too_much_is_noted_and_its_parser_replaced() -> None:
    sources = {"a.py": GOOD, "b.py": b"(\n" * 60_000, "c.py": GOOD}
    before = os.times()
    found = mapped(sources)
    after = os.times()
    assert after.children_user - before.children_user < 3.0, "it would take more than ten times its bound"
    assert found.files["b.py"].note == "unparsable"
    assert found.files["c.py"].symbols and found.files["a.py"].symbols


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"x = 1\n" * 100_000, "too large"),
        (b"\x7fELF\0\0\1", "binary"),
        (b"function a(){return 1};" * 2_000, "minified"),
        (b"x\n" * 100 + b"y" * 30_000, "minified"),
    ],
)
def test_what_is_no_source_is_not_parsed(data: bytes, note: str) -> None:
    assert mapped({"x.js": data}).files["x.js"].note == note


def test_bytes_that_are_no_text_are_read_as_far_as_they_go() -> None:
    found = mapped({"x.py": b"def na\xffme(): pass\ndef fine(): pass\n# \xc3\x28 \xf0\x9f\n"})
    assert "fine" in {symbol.name for symbol in found.files["x.py"].symbols}


def test_very_many_symbols_and_names_are_cut() -> None:
    source = b"".join(b"def f%d(): g%d()\n" % (n, n) for n in range(5_000))
    file = mapped({"x.py": source}).files["x.py"]
    assert file.note == "cut"
    assert len(file.symbols) == 2_000
    assert len(file.references) <= 4_000


def test_long_names_and_signatures_are_cut() -> None:
    source = b"def " + b"n" * 3_000 + b"(" + b"a, " * 500 + b"b):\n" + b"    pass\n" * 50
    (symbol,) = mapped({"x.py": source}).files["x.py"].symbols
    assert len(symbol.name) <= 120
    assert len(symbol.signature) <= 200


def test_time_runs_out_for_the_rest_of_a_tree() -> None:
    found = mapped({f"{n}.py": GOOD for n in range(5)}, seconds=-1.0)
    assert found.figures.notes == {"late": 5}


def test_a_reader_that_has_nothing_is_noted() -> None:
    assert map_repository({"x.py": "0" * 64}, lambda _: None).files["x.py"].note == "unreadable"


def test_a_failing_reader_is_noticed_at_once() -> None:
    def read(path: str) -> bytes:
        raise ConnectionError(path)

    with pytest.raises(ConnectionError):
        map_repository({f"{n}.py": str(n) for n in range(200)}, read)


@pytest.mark.parametrize(
    "text",
    ["(" * 100_000, 'File "' * 20_000, "a/" * 50_000, "at a.b" * 30_000, "x.js:1" * 20_000, "`" * 50_000, "::" * 9_999],
)
def test_hostile_evidence_is_read_quickly(text: str) -> None:
    sources = {"tests/test_a.py": GOOD, "README.md": b"`" * 5_000}
    files = Files({path: hashlib.sha256(data).hexdigest() for path, data in sources.items()}, sources.get)
    survey = Survey.of(files)
    evidence = Evidence(failing_tests=(text,), traces=(text,), touched=(text,), task=text)
    start = time.process_time()
    survey.gather(TaskKind.BUGFIX, evidence, 1_000)
    survey.outline(evidence, 1_000)
    assert time.process_time() - start < 2.0


ESCAPES = """
import importlib.util, json, os, socket, subprocess, sys
spec = importlib.util.spec_from_file_location("parsing", sys.argv[1])
parsing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(parsing)
tries = {
    "open": lambda: os.open("/etc/hostname", os.O_RDONLY),
    "reopen": lambda: (os.close(0), os.open("/etc/hostname", os.O_RDONLY)),
    "socket": socket.socket,
    "fork": os.fork,
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "kill": lambda: os.kill(os.getppid(), 0),
    "list": lambda: os.listdir("/"),
    "remove": lambda: os.unlink("/nowhere"),
}
parsing.confine()
for name, attempt in tries.items():
    try:
        attempt()
        outcome = "done"
    except OSError as error:
        outcome = type(error).__name__
    print(name, outcome, flush=True)
"""


@pytest.mark.skipif(os.uname().machine not in parsing.CALLS, reason="no filter is known for this machine")
def test_a_parser_that_was_taken_over_can_reach_nothing() -> None:
    argv = [sys.executable, "-c", ESCAPES, parsing.__file__]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    tried = dict(line.split() for line in done.stdout.splitlines())
    assert len(tried) == 8, done.stderr
    assert set(tried.values()) == {"PermissionError"}


def test_a_parser_that_cannot_start_is_reported_and_blamed_on_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "parsing.py"
    broken.write_text("import no_such_grammar\n")
    monkeypatch.setattr(parsing, "__file__", str(broken))
    with pytest.raises(CodePilotError, match="no_such_grammar") as caught:
        mapped({"a.py": GOOD, "b.py": GOOD})
    assert caught.value.kind is FailureKind.TOOL_MISSING


LIAR = """
import struct, sys
sys.stdout.buffer.write(b"ready")
sys.stdout.buffer.flush()
while header := sys.stdin.buffer.read(24):
    sys.stdin.buffer.read(struct.unpack(">12sdI", header)[2])
    answer = {answer!r}
    sys.stdout.buffer.write(struct.pack(">I", {length}) + answer)
    sys.stdout.buffer.flush()
"""
ANSWER = '{"symbols":[%s],"references":{%s},"imports":[%s],"lines":%s,"note":""}'
LIES = [
    "",
    "null",
    "[" * 100_000,
    "\xff",
    '{"symbols":[]}',
    ANSWER % ('["virus","f",1,1,"","f"]', "", "", "1"),
    ANSWER % ('["class","f",-1,1,"","f"]', "", "", "1"),
    ANSWER % ('["class","f",1,1,"",null]', "", "", "1"),
    ANSWER % ('["class","f",1]', "", "", "1"),
    ANSWER % ("", '"name":[1]', "", "1"),
    ANSWER % ("", '"name":"1,x"', "", "1"),
    ANSWER % ("", "", "7", "1"),
    ANSWER % ("", "", "", "true"),
]


@pytest.mark.parametrize("lie", LIES)
def test_what_a_parser_says_is_held_to_its_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    answer = lie.encode("latin-1")
    liar = tmp_path / "parsing.py"
    liar.write_text(LIAR.format(answer=answer, length=len(answer)))
    monkeypatch.setattr(parsing, "__file__", str(liar))
    assert mapped({"a.py": GOOD}).figures.notes == {"unparsable": 1}


def test_a_parser_that_promises_too_much_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = tmp_path / "parsing.py"
    liar.write_text(LIAR.format(answer=b"x", length=(1 << 32) - 1))
    monkeypatch.setattr(parsing, "__file__", str(liar))
    assert mapped({"a.py": GOOD}).figures.notes == {"unparsable": 1}
