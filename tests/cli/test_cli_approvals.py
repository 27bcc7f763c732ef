"""A person is asked: at the terminal, elsewhere, and across a kill. A server outside sees what really happened."""

from __future__ import annotations

import getpass
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli_kit import Command
from cli_terminal import Terminal
from test_cli_thinking import APPROVE, CODEACT, DONE, MAP, PLAN, patch

from codepilot.core.events import EventType
from levels import level
from model_server import Answer, Call, ModelServer

RIGHT = patch("amount > limit", "amount >= limit")


@dataclass
class Outside:
    """A server on the host, where it sees whether anything risky was done."""

    port: int = 0
    asked: list[str] = field(default_factory=list)

    @property
    def fetch(self) -> Call:
        url = f"http://localhost:{self.port}/rates"
        return Call("python", {"code": f"import urllib.request\nprint(urllib.request.urlopen({url!r}).read())"})


@pytest.fixture
def outside() -> Iterator[Outside]:
    seen = Outside()

    class Rates(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"the limit is included")

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Rates)
    seen.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield seen
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def confined() -> None:
    level("bubblewrap")


def script(*actions: Answer) -> list[Answer]:
    return [MAP, PLAN, *actions, RIGHT, DONE, APPROVE]


def last_request(server: ModelServer) -> str:
    return json.dumps([request.body for request in server.requests])


def test_yes_after_an_explanation_and_nothing_happens_before(codepilot: Command, shop: Path, outside: Outside) -> None:
    with ModelServer(script(outside.fetch)) as server:
        terminal = Terminal(codepilot, "fix", str(shop), *CODEACT, **server.environ)
        terminal.until("Approval required")
        terminal.until("Allow it?")
        terminal.press("explain\n")
        terminal.until("could then send data to this host")
        terminal.until("Allow it?")
        assert outside.asked == []
        terminal.press("y\n")
        terminal.until("confirmed")
        assert terminal.ended() == 0
        assert "the limit is included" in last_request(server)
    assert outside.asked == ["/rates"]
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text)
    for words in (f"localhost:{outside.port}", "reach a host on the network", "urllib.request.urlopen"):
        assert words in shown


@pytest.mark.slow
def test_no_leads_to_another_way_and_the_reason_is_told(codepilot: Command, shop: Path, outside: Outside) -> None:
    with ModelServer(script(outside.fetch)) as server:
        terminal = Terminal(codepilot, "fix", str(shop), *CODEACT, **server.environ)
        terminal.until("Allow it?")
        terminal.press("no read the tests instead\n")
        terminal.until("confirmed")
        assert terminal.ended() == 0
        assert "read the tests instead" in last_request(server)
    assert outside.asked == []


@pytest.mark.slow
def test_always_is_asked_once(codepilot: Command, shop: Path, outside: Outside) -> None:
    command = Call("python", {"code": "print(run_command(['uname', '-s']))"})
    with ModelServer(script(command, command)) as server:
        terminal = Terminal(codepilot, "fix", str(shop), *CODEACT, **server.environ)
        terminal.until("Allow it?")
        terminal.press("always\n")
        terminal.until("confirmed")
        assert terminal.ended() == 0
        assert last_request(server).count("Linux") >= 2
    assert terminal.text.count("Approval required") == 1


@pytest.mark.variants
def test_headless_it_blocks_at_once_and_goes_on_with_the_answer_of_another_command(
    codepilot: Command, shop: Path, outside: Outside
) -> None:
    with ModelServer(script(outside.fetch)) as server:
        blocked = codepilot("fix", str(shop), *CODEACT, **server.environ)
        assert blocked.code == 3, blocked.err
        assert "codepilot approve" in blocked.out and "denied" not in blocked.out
        (asked,) = codepilot("approvals", "--json").json["approvals"]
        assert asked["request"]["expires_at"].endswith("Z"), "a time is RFC 3339"
        assert (asked["status"], asked["request"]["details"]) == ("open", f"localhost:{outside.port}")
        denied = codepilot("deny", "--reason", "no data leaves", "--json")
        assert (denied.code, denied.json["status"]) == (0, "denied")
        assert "codepilot resume" in denied.json["next"]
        ended = codepilot("resume", "--json", **server.environ)
        assert (ended.code, ended.json["verdict"]) == (0, "confirmed")
    assert outside.asked == []
    audit = codepilot("audit", "last", "--json").json["entries"]
    answers = [(one["decision"], one["by"], one["reason"]) for one in audit if one["what"] == "answered"]
    assert [(decision, reason) for decision, _, reason in answers] == [("denied", "no data leaves")]
    assert answers[0][1] == getpass.getuser()


def test_a_kill_between_request_and_answer_loses_neither(codepilot: Command, shop: Path, outside: Outside) -> None:
    with ModelServer(script(outside.fetch)) as server:
        terminal = Terminal(codepilot, "fix", str(shop), *CODEACT, **server.environ)
        terminal.until("Allow it?")
        terminal.kill()
        again = codepilot("resume", "--json", **server.environ)
        assert (again.code, again.json["approval"]["operation"]) == (3, "network")
        assert outside.asked == []
        ended = codepilot("approve", "--work", "--json", **server.environ)
        assert (ended.code, ended.json["verdict"]) == (0, "confirmed"), ended.err
        assert "the limit is included" in last_request(server)
    assert outside.asked == ["/rates"]
    with codepilot.runtime() as runtime:
        events = [event.type for event in runtime.store.events(ended.json["run_id"])]
    assert events.count(EventType.APPROVAL_REQUESTED) == events.count(EventType.APPROVAL_DECIDED) == 1
