"""The end of a run is posted to the webhook once, whatever the receiver does and whichever process dies."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from email.utils import formatdate
from pathlib import Path

import pytest

from codepilot import __version__
from codepilot.core.decide import Failed, decide, decide_cancel, decide_resume, start
from codepilot.core.events import Event, EventType
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Runtime, notify
from codepilot.engine import webhook as module
from codepilot.engine.close import open_log
from codepilot.engine.webhook import Unanswered, WebhookClient, WebhookSender
from codepilot.store import Store, new_id
from codepilot.telemetry import METRICS, now_us
from codepilot.verify import Notice
from configured import configured
from receiver import DRIP, DROP, HANG, Receiver, receiver

HERE = Path(__file__).parent
SECRET = "s3cr3t-of-the-receiver"


@pytest.fixture
def place() -> Iterator[Receiver]:
    with receiver(f"/hooks/{SECRET}?key={SECRET}") as found:
        yield found


@pytest.fixture
def quiet(tmp_path: Path, place: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A runtime whose redactor knows the receiver."""
    monkeypatch.setenv("CODEPILOT_NOTIFY_URL", place.url)
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "home")})) as opened:
        yield opened


def ended(runtime: Runtime, *, goal: str = "mend it", at: int | None = None) -> str:
    """A run that has ended, at a time that may be long ago."""
    store = (
        runtime.store if at is None else Store.open(runtime.home.database, clock=lambda: at, locks=runtime.home.locks)
    )
    run_id = new_id("r-")
    store.create_run(run_id, start(TaskSpec(task_id="t-1", goal=Goal(natural=goal), repo="/r", notify=True), run_id))
    store.control(run_id, decide_cancel)
    if store is not runtime.store:
        store.close()
    return run_id


def settled(runtime: Runtime, run_id: str) -> list[Event]:
    runtime.store.check(run_id)
    kinds = (EventType.NOTIFICATION_SENT, EventType.NOTIFICATION_FAILED)
    return [event for event in runtime.store.events(run_id) if event.type in kinds]


def until(seen: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, "not seen in time"
        time.sleep(0.02)


def test_the_notification_of_an_end(quiet: Runtime, place: Receiver) -> None:
    key = "sk-" + "a1b2" * 8
    run_id = ended(quiet, goal=f"mend it with {key}")
    counted = METRICS.value("codepilot_notifications_total", result="sent")
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    (received,) = place.received
    run = quiet.store.load(run_id)
    (row,) = quiet.store.outbox.of(run_id)
    assert received.key == f"{run_id}:{row.seq}"
    assert received.path == f"/hooks/{SECRET}?key={SECRET}"
    assert received.headers["User-Agent"] == f"codepilot/{__version__}"
    assert received.headers["Content-Type"] == "application/json"
    output = Notice.model_validate_json(received.body)
    assert (output.run_id, output.task_id, output.status, output.verdict) == (run_id, "t-1", "ABORTED", None)
    assert (output.goal, output.repo, output.iterations) == ("mend it with [redacted]", "/r", 0)
    assert output.failure is not None and run.failure is not None
    assert (output.failure.kind, output.failure.next_action) == ("cancelled", run.failure.advice)
    assert datetime.fromisoformat(output.at).timestamp() == pytest.approx(row.at / 1e6, abs=0.001)
    (event,) = settled(quiet, run_id)
    assert event.data.status == 200 and row.state == "sent"  # type: ignore[attr-defined]
    assert METRICS.value("codepilot_notifications_total", result="sent") == counted + 1
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert len(place.received) == 1, "and nobody says it again"


def test_failed_attempts_are_repeated_with_backoff(quiet: Runtime, place: Receiver) -> None:
    place.answers[:] = [DROP, 302, 200]
    run_id = ended(quiet)
    other = WebhookSender(quiet, WebhookClient(place.url))
    began = time.monotonic()
    with WebhookSender(quiet, WebhookClient(place.url)) as sender:
        sender.wake()
        until(lambda: settled(quiet, run_id))
    assert time.monotonic() - began > 0.5 + 1
    assert len(place.received) == 3 and len(set(place.keys)) == 1
    assert len({received.body for received in place.received}) == 1, "the same under the same key"
    assert not any(received.path == "/elsewhere" for received in place.received), "where it points to is not gone to"
    other.send_due()
    assert len(place.received) == 3


@pytest.mark.variants
def test_senders_of_one_store_share_the_backoff(quiet: Runtime, place: Receiver) -> None:
    """Each has a connection of its own to the store, as workers have."""
    place.answers[:] = [500]
    run_id = ended(quiet)
    opened = [Runtime.open(configured({"CODEPILOT_HOME": str(quiet.home.path)})) for _ in range(3)]
    for number in range(1, 3):
        asked = time.time()
        for runtime in opened:
            WebhookSender(runtime, WebhookClient(place.url)).send_due()
        (row,) = quiet.store.outbox.of(run_id)
        assert len(place.received) == row.tries == number
        assert row.not_before is not None
        assert 2 ** (number - 1) / 2 - 0.01 < row.not_before / 1e6 - asked
        assert row.not_before / 1e6 - time.time() < 2 ** (number - 1)
        until(quiet.store.outbox.pending)
    for runtime in opened:
        runtime.close()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date", "years"])
def test_retry_after_is_respected(quiet: Runtime, place: Receiver, status: int, form: str) -> None:
    output = {"seconds": "40", "date": formatdate(time.time() + 40, usegmt=True), "years": "99999999"}[form]
    wanted = 3600.0 if form == "years" else 40.0
    place.answers[:], place.retry_after = [status], output
    run_id = ended(quiet)
    began = time.time()
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    (row,) = quiet.store.outbox.of(run_id)
    assert row.not_before is not None and (row.state, row.tries) == ("pending", 1)
    assert began + wanted - 2 < row.not_before / 1e6 < time.time() + wanted + 2
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert len(place.received) == 1 and quiet.store.outbox.pending() == []


@pytest.mark.variants
def test_retry_after_of_other_answers_and_nonsense_are_ignored(quiet: Runtime, place: Receiver) -> None:
    place.answers[:], place.retry_after = [500, 429], "40"
    run_id = ended(quiet)
    sender = WebhookSender(quiet, WebhookClient(place.url))
    sender.send_due()
    until(quiet.store.outbox.pending, 20)
    place.retry_after = "soon"
    sender.send_due()
    until(quiet.store.outbox.pending, 20)
    assert quiet.store.outbox.of(run_id)[0].tries == 2


def test_a_refusal_is_final(quiet: Runtime, place: Receiver) -> None:
    place.answers[:] = [410]
    run_id = ended(quiet)
    sender = WebhookSender(quiet, WebhookClient(place.url))
    sender.send_due()
    sender.send_due()
    (event,) = settled(quiet, run_id)
    output = f"{place.url.partition('/hooks')[0]} answered 410, and it was refused."
    assert event.data.failure == Failure(kind=FailureKind.NOTIFY_FAILED, message=output)  # type: ignore[attr-defined]
    assert len(place.received) == 1
    assert quiet.store.outbox.of(run_id)[0].state == "failed"


def test_notifications_expire_after_a_day(quiet: Runtime, place: Receiver) -> None:
    day = 24 * 3600 * 1_000_000
    old, young = ended(quiet, at=now_us() - day), ended(quiet, at=now_us() - day + 600_000_000)
    place.answers[:] = [500]
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert [received.json["run_id"] for received in place.received] == [young]
    assert "24 hours ago" in settled(quiet, old)[0].data.failure.message  # type: ignore[attr-defined]
    assert settled(quiet, young) == []


@pytest.mark.variants
@pytest.mark.parametrize("answer", [HANG, DRIP])
def test_a_receiver_that_hangs_is_cut_off(
    quiet: Runtime, place: Receiver, answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TRY_SEC", 1.0)
    place.answers[:] = [answer]
    run_id = ended(quiet)
    began = time.monotonic()
    output = notify(quiet, run_id)
    assert 0.9 < time.monotonic() - began < 20
    assert output.endswith(
        "did not answer: not within 1 s. A worker tries again in 1 s, for example `codepilot worker --until-idle`."
    )
    assert settled(quiet, run_id) == []
    place.answers[:] = [200]
    assert notify(quiet, run_id) == ""
    assert len(settled(quiet, run_id)) == 1


def test_a_resolver_that_hangs_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(60))
    try:
        with pytest.raises(Unanswered, match=r"not within 0\.5 s"):
            WebhookClient("http://somewhere.example/x").post("k", b"{}", 0.5)
        assert not answered.is_set()
    finally:
        answered.set()


def test_messages_contain_no_secret_of_the_url(quiet: Runtime, place: Receiver) -> None:
    with receiver() as gone:
        url = gone.url
    with pytest.raises(Unanswered, match="refused"):
        WebhookClient(f"{url}/{SECRET}").post("k", b"{}", 10.0)
    assert WebhookClient(f"{url}/{SECRET}").place == url.removesuffix("/hook")
    assert WebhookClient("https://someone:secret@[::1]:8443/x").place == "https://[::1]:8443"


def test_a_password_in_the_url_is_sent_as_basic_auth(place: Receiver) -> None:
    assert WebhookClient(place.url.replace("//", "//some%20one:a:b@")).post("k", b"{}", 30.0).status == 200
    assert place.received[0].headers["Authorization"] == "Basic c29tZSBvbmU6YTpi"


def test_certificates_are_verified(tmp_path: Path, place: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", "key", "-out", "cert"]
    subprocess.run([*made, *named], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with receiver(tls=context) as secured:
        with pytest.raises(Unanswered, match="certificate verify failed"):
            WebhookClient(secured.url).post("k", b"{}", 30.0)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
        assert WebhookClient(secured.url).post("k", b"{}", 30.0).status == 200
        assert len(secured.received) == 1
    with pytest.raises(Unanswered):
        WebhookClient(place.url.replace("http:", "https:")).post("k", b"{}", 5.0)
    assert place.received == [], "one that speaks no TLS is sent nothing"


def test_two_senders_never_send_one_notification_at_the_same_time(quiet: Runtime, place: Receiver) -> None:
    """The second comes while the first waits for an answer."""
    place.answers[:] = [HANG, 200]
    run_id = ended(quiet)
    first = threading.Thread(target=WebhookSender(quiet, WebhookClient(place.url)).send_due)
    first.start()
    until(lambda: place.received)
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert len(place.received) == 1 and quiet.store.outbox.of(run_id)[0].state == "pending", "it left it to the first"
    place.over.set()
    first.join(60)
    until(quiet.store.outbox.pending)
    many = [threading.Thread(target=WebhookSender(quiet, WebhookClient(place.url)).send_due) for _ in range(4)]
    for one in many:
        one.start()
    for one in many:
        one.join(60)
    assert len(settled(quiet, run_id)) == 1
    assert place.keys == [place.keys[0]] * 2 and place.most_at_once == 1


def test_a_sender_that_dies_before_the_record_is_followed_by_another(
    quiet: Runtime, place: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = ended(quiet)
    command = [sys.executable, str(HERE / "dying_sender.py"), str(quiet.home.path), place.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(place.received) == 1 and settled(quiet, run_id) == []
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert len(place.received) == 1, "the dead one's time is not over"
    later = now_us() + int(module.LEASE_SEC * 1e6)
    with_time = Store.open(quiet.home.database, clock=lambda: later, locks=quiet.home.locks)
    WebhookSender(Runtime(quiet.settings, with_time, quiet.artifacts), WebhookClient(place.url)).send_due()
    with_time.close()
    assert [received.body for received in place.received] == [place.received[0].body] * 2
    assert len(place.keys) == 2 and len(set(place.keys)) == 1
    (event,) = settled(quiet, run_id)
    assert event.type is EventType.NOTIFICATION_SENT


def test_each_end_is_described_as_it_was(quiet: Runtime, place: Receiver) -> None:
    run_id = new_id("r-")
    task = TaskSpec(task_id="t-1", goal=Goal(natural="mend it"), repo="/r", notify=True)
    quiet.store.create_run(run_id, start(task, run_id))
    spent = Failed(Failure(kind=FailureKind.BUDGET_EXCEEDED, message="spent", details={"budget": "wall_sec"}))
    quiet.store.register_worker("w-one")
    for _ in range(2):
        begun = quiet.store.claim_next("w-one", run_id)
        assert begun is not None
        quiet.store.commit(begun.claim, lambda run: decide(run, spent, now=run.updated_at))
        quiet.store.control(run_id, decide_resume)
    quiet.store.control(run_id, decide_cancel)
    assert quiet.store.load(run_id).failure != spent.failure
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert [received.json["failure"]["kind"] for received in place.received] == [
        "budget_exceeded",
        "budget_exceeded",
        "cancelled",
    ]
    assert len(set(place.keys)) == 3 and len(settled(quiet, run_id)) == 3


def test_an_unreadable_run_does_not_hold_up_others(quiet: Runtime, place: Receiver) -> None:
    broken, fine = ended(quiet, at=now_us() - 1_000_000), ended(quiet)
    from sqlalchemy import create_engine

    engine = create_engine(f"sqlite:///{quiet.home.database}")
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER events_no_update")
        connection.exec_driver_sql("UPDATE events SET data = '{}' WHERE seq = 1 AND run_id = ?", (broken,))
    engine.dispose()
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert [received.json["run_id"] for received in place.received] == [fine]


def test_a_command_sends_the_notifications_of_its_own_run(quiet: Runtime, place: Receiver) -> None:
    """Another command's run may be nobody's business where this one's are shown."""
    place.answers[:] = [503, 200]
    first = ended(quiet)
    assert "answered 503" in notify(quiet, first)
    second = ended(quiet)
    assert notify(quiet, second) == ""
    assert (len(settled(quiet, first)), len(settled(quiet, second))) == (0, 1)
    until(quiet.store.outbox.pending)
    WebhookSender(quiet, WebhookClient(place.url)).send_due()
    assert len(settled(quiet, first)) == 1


def test_a_command_waits_for_the_lease_of_another_sender(
    quiet: Runtime, place: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = ended(quiet)
    assert quiet.store.outbox.lease(quiet.store.outbox.of(run_id)[0], 1.5)
    assert notify(quiet, run_id) == ""
    assert len(settled(quiet, run_id)) == 1
    monkeypatch.setattr(module, "LEASE_SEC", 0.5)
    other = ended(quiet)
    assert quiet.store.outbox.lease(quiet.store.outbox.of(other)[0], 300)
    assert notify(quiet, other).startswith("Another attempt is pending. A worker tries again in 300 s")


def test_an_unexpected_error_costs_a_command_only_a_line(
    quiet: Runtime, place: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(f"no idea of {place.url}")

    monkeypatch.setattr(module, "notice", broken)
    run_id = ended(quiet)
    assert notify(quiet, run_id) == "RuntimeError: no idea of [redacted]"
    assert settled(quiet, run_id) == []


def test_the_secret_of_the_url_is_written_nowhere(
    quiet: Runtime, place: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    place.answers[:] = [500, 410]
    run_id = ended(quiet)
    open_log(quiet, run_id).close()
    sender = WebhookSender(quiet, WebhookClient(place.url))
    sender.send_due()
    assert notify(quiet, run_id).endswith("It is not tried again.")
    assert run_id in caplog.text and SECRET not in caplog.text
    kept = [path.read_bytes() for path in quiet.home.path.rglob("*") if path.is_file()]
    assert kept and not any(SECRET.encode() in content for content in kept)
    assert any(b'"event":"notification_failed"' in content for content in kept), "the log file has its end"
    assert quiet.redact(f"see {place.url} and /hooks/{SECRET}?key={SECRET}") == "see [redacted] and [redacted]"
