"""All or nothing: whatever dies in the middle, the log is gapless and every view is what it tells."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from other_process import python
from sample_runs import new_run, succeed, take, turn
from sqlalchemy import event

from codepilot.core.decide import start
from codepilot.core.events import EventDraft, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.store import Home, Store
from codepilot.store.database import Database
from servers import free_ports


def test_a_decision_that_raises_leaves_no_trace(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    before, view = store.events(run_id), store.load(run_id)

    def breaks(run: Run) -> list[EventDraft]:
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        store.commit(claim, breaks)
    with pytest.raises(RuntimeError, match="in the middle"):
        store.control(run_id, breaks)
    assert store.events(run_id) == before
    assert store.load(run_id) == view
    store.commit(claim, succeed)
    assert store.load(run_id).state is State.MAP_REPO


def test_a_bad_event_among_good_ones_takes_them_all_back(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    ended = store.load(run_id)
    drafts = [*turn(claim, 1), *succeed(ended), succeed(ended)[0]]
    with pytest.raises(CodePilotError):
        store.commit(claim, lambda _: drafts)
    assert len(store.events(run_id)) == 3
    store.check(run_id)


def test_creating_a_run_again_returns_what_exists(store: Store) -> None:
    run_id = new_run(store)
    first = store.events(run_id)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    again = store.create_run(run_id, start(store.load(run_id).task, run_id)).events
    assert again[: len(first)] == first
    assert len(again) == len(first) + 3
    assert len(store.steps(run_id)) == 1


def test_a_task_may_have_several_runs(store: Store) -> None:
    first = new_run(store)
    asked = store.load(first).task
    store.create_run("r-second", start(asked, "r-second"))
    assert store.load("r-second").task == asked
    store.check("r-second")


def test_killed_in_the_middle_of_writing_nothing_is_torn(place: str, home: Home, store: Store) -> None:
    """A process commits and appends as fast as it can; what was acknowledged is kept, and nothing is half there."""
    program = """
while True:
    run_id = new_run(store)
    while (start := store.claim_next("w-killed", run_id)) is not None:
        claim = start.claim
        store.append(claim, turn(claim, 1, "x" * 3000))
        seq = store.commit(claim, succeed).events[-1].seq
        os.write(1, f"{run_id} {seq}\\n".encode())
"""
    reported: dict[str, int] = {}
    for wait in (0.05, 0.15):
        process = python(program, place, home)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        lines = (first + process.stdout.read()).split(b"\n")[:-1]
        process.stdout.close()
        process.wait()
        reported.update({run.decode(): int(seq) for run, seq in (line.split() for line in lines)})
    for run_id, seq in reported.items():
        assert len(store.events(run_id)) >= seq
    assert len(reported) >= 2
    for row in store.history(10_000):
        store.check(row.run_id)
    open_runs = [row.run_id for row in store.history(10_000) if row.state is not State.DONE]
    store.reclaim(wait=True)
    for run_id in open_runs:
        while (start := store.claim_next("w-heir", run_id)) is not None:
            store.commit(start.claim, succeed)
        assert store.load(run_id).state is State.DONE
        store.check(run_id)


def test_four_processes_writing_at_once_lose_nothing(place: str, home: Home, store: Store) -> None:
    program = """
shared, name = sys.argv[1:]
run_id = new_run(store)
claim = take(store, name, run_id)
for number in range(15):
    store.append(claim, turn(claim, number))
    if number % 5 == 0:
        store.control(shared, lambda run: [draft(claim, EventType.PAUSE_REQUESTED, Requested(by=f"{name} {number}"))])
store.commit(claim, succeed)
print(run_id, flush=True)
"""
    program = "from codepilot.core.events import EventType, Requested\n" + program
    shared = new_run(store)
    processes = [python(program, place, home, shared, f"w-{n}") for n in range(4)]
    outputs = [process.communicate(timeout=300)[0].decode().strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    for run_id in outputs:
        assert len(store.events(run_id)) == 2 + 1 + 30 + 2
        store.check(run_id)
    requests = [event.data.model_dump()["by"] for event in store.events(shared, after=2)]
    assert sorted(requests) == sorted(f"w-{n} {number}" for n in range(4) for number in range(0, 15, 5))
    store.check(shared)


def test_a_killed_worker_is_seen_dead_and_its_step_reclaimed(place: str, home: Home, store: Store) -> None:
    run_id = new_run(store)
    program = """
claim = take(store, "w-doomed")
print("ready", flush=True)
time.sleep(600)
"""
    process = python(program, place, home)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert store.queue.alive("w-doomed")
    assert store.reclaim() == []
    assert store.claim_next("w-heir") is None
    process.kill()
    process.wait()
    process.stdout.close()
    while store.queue.alive("w-doomed"):
        time.sleep(0.01)
    assert store.reclaim("r-other") == []
    assert store.reclaim(run_id, wait=True) == [store.steps(run_id)[0].step_id]
    assert store.reclaim(run_id) == []
    successor = take(store, "w-heir")
    assert successor.fence == 3
    assert successor.attempt == 1, "losing a worker is not a failed attempt"
    store.check(run_id)


def test_a_released_or_closed_worker_is_dead_at_once(home: Home, open_store: Callable[[], Store]) -> None:
    store, other = open_store(), open_store()
    run_id = new_run(store)
    claim = take(other, "w-closing")
    assert store.queue.alive("w-closing")
    with pytest.raises(CodePilotError, match="already at work"):
        store.register_worker("w-closing")
    other.beat("w-closing")
    other.close()
    assert store.reclaim(wait=True) == [claim.step_id]
    again = take(store, "w-here", run_id)
    store.release_worker("w-here")
    assert not store.queue.alive("w-here")
    assert store.reclaim(wait=True) == [again.step_id]
    assert not list(home.locks.glob("*.lock"))


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200])
def test_a_worker_needs_a_plain_name(store: Store, name: str) -> None:
    with pytest.raises(CodePilotError, match="name of a worker"):
        store.register_worker(name)


def test_what_ends_a_step_is_synced_to_the_disk_and_the_turns_before_it_are_not(home: Home) -> None:
    """The levels are NORMAL and FULL; a turn that a power cut took is taken again, what was decided holds."""

    levels: list[str] = []

    def listen(*statement: object) -> None:
        levels.extend(re.findall(r"PRAGMA synchronous = (\w+)", str(statement[2])))

    with contextlib.closing(Store.open(home.database, locks=home.locks)) as store:
        new_run(store)
        claim = take(store)
        event.listen(store._database._engine, "before_cursor_execute", listen)
        store.append(claim, turn(claim, 1))
        assert levels == ["NORMAL"]
        store.commit(claim, succeed)
        assert levels == ["NORMAL", "FULL"]


def test_who_has_begun_to_write_is_the_only_one_before_the_first_statement(home: Home) -> None:
    """Also among those who do not know of our gate, else a transaction could fail when it comes to write."""
    database = Database.open(home.database, home.locks)
    with (
        contextlib.closing(database),
        contextlib.closing(sqlite3.connect(home.database, timeout=0, isolation_level=None)) as stranger,
    ):
        with database.write(durable=False), pytest.raises(sqlite3.OperationalError, match="locked"):
            stranger.execute("BEGIN IMMEDIATE")
        stranger.execute("BEGIN IMMEDIATE")


def test_a_full_disk_is_reported_and_nothing_is_half_written(home: Home) -> None:
    database = Database.open(home.database, home.locks)
    with pytest.raises(CodePilotError, match=r"codepilot\.db") as full, database.write() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        connection.exec_driver_sql("INSERT INTO meta VALUES ('big', ?)", ("x" * 1_000_000,))
    assert full.value.kind is FailureKind.DISK_FULL
    with database.write() as connection:
        connection.exec_driver_sql("INSERT INTO meta VALUES ('small', 'x')")
    with database.read() as connection:
        kept = connection.exec_driver_sql("SELECT key FROM meta ORDER BY key").scalars().all()
    database.close()
    assert kept == ["schema_version", "small"]


def test_what_is_not_a_database_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "codepilot.db"
    file.write_bytes(b"this is not a database, and long enough to be read as one" * 40)
    with pytest.raises(CodePilotError, match=r"codepilot\.db is damaged") as refused:
        Store.open(file)
    assert refused.value.kind is FailureKind.STORE_UNAVAILABLE
    with pytest.raises(CodePilotError) as directory:
        Store.open(tmp_path)
    assert directory.value.kind is FailureKind.STORE_UNAVAILABLE
    for other in ("nosuch://engine/x", "mysql://engine/x"):
        with pytest.raises(CodePilotError, match="does not name a store") as unknown:
            Store.open(other)
        assert "postgresql://" in unknown.value.failure.next_action


@pytest.mark.parametrize("locks", [None, "locks of another place"])
def test_what_is_refused_stays_as_it_was_and_nothing_is_made_next_to_it(tmp_path: Path, locks: str | None) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    letter, short = inner / "letter.txt", inner / "short.txt"
    letter.write_bytes(b"dear all, " * 200)
    short.write_bytes(b"dear")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (letter, short)}
    for refused in (letter, short, inner):
        with pytest.raises(CodePilotError) as reported:
            Store.open(refused, locks=tmp_path / locks if locks else None)
        assert reported.value.kind is FailureKind.STORE_UNAVAILABLE
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in inner.iterdir()} == before
    assert list(tmp_path.iterdir()) == [inner]


@pytest.mark.parametrize(
    "name",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+pysqlite:///:memory:",
        "sqlite:///file:x.db",
        "sqlite:///file:x.db?mode=memory&uri=true",
        "sqlite:///x.db?mode=ro",
        "sqlite://host/x.db",
        "sqlite:///x\0.db",
        ":memory:",
        "file:x.db",
        "",
    ],
)
def test_a_store_is_a_file_and_nothing_that_sqlite_makes_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CodePilotError, match="in memory") as refused:
        Store.open(name)
    assert refused.value.kind is FailureKind.INVALID_SPEC and refused.value.failure.next_action
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "rest",
    [
        "localhost:abc/db",
        "[::1/db",
        "localhost:99999/db",
        "localhost:0/db",
        "localhost/db?port=abc",
        "localhost/db?plugin=none",
        "u:hun@ter2:9@localhost/db",
        "u:hun@ter2@localhost/db",
    ],
)
def test_a_server_that_no_url_names_is_bad_input(rest: str) -> None:
    with pytest.raises(CodePilotError, match="does not name a store") as refused:
        Store.open(f"postgresql://{rest}")
    assert refused.value.kind is FailureKind.INVALID_SPEC and "postgresql://" in refused.value.failure.next_action
    assert "ter2" not in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize("option", ["password", "sslpassword", "oauth_client_secret", "scram_client_key"])
def test_a_password_among_the_options_of_a_url_is_not_shown(option: str) -> None:
    port = free_ports(1)[0]
    with pytest.raises(CodePilotError) as away:
        Store.open(f"postgresql://me:hunter1@127.0.0.1:{port}/db?{option}=hunter2")
    reported = f"{away.value} {away.value.failure} {away.value.__cause__}"
    assert f"me:***@127.0.0.1:{port}/db" in reported and "hunter" not in reported


def test_a_path_and_a_url_name_the_same_store(home: Home) -> None:
    store, other = Store.open(home.database), Store.open(f"sqlite:///{home.database}")
    run_id = new_run(store)
    assert other.load(run_id) == store.load(run_id)
    store.close()
    other.close()


def test_a_long_step_is_loaded_from_its_view_and_survives_reopening(open_store: Callable[[], Store]) -> None:
    store = open_store()
    run_id = new_run(store)
    claim = take(store)
    for number in range(70):
        store.append(claim, turn(claim, number))
        if number % 31 == 0:
            store.check(run_id)
    assert store.load(run_id).spent.turns == 70
    assert open_store().load(run_id) == store.load(run_id)
    store.check(run_id)
