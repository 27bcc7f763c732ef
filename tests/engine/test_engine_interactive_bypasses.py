"""What an agent may try so that a checkpoint does not see a change, or sees another one than it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from interactive_kit import MEND, Interactive, StdioAgent

from codepilot.core.checkpoint import CheckpointRecorded
from codepilot.core.policy import Policy
from codepilot.engine import Runtime

GUARDED = Policy(generated_code="off", protected_areas=("ci/**", "test_*.py", ".github/workflows/**", "pr\u00fcf/**"))
GIT = "git -c user.name=a -c user.email=a@b.invalid"
SLEEP = "86399.5"
"""No other program of this machine sleeps so long."""
WAYS = {
    "ci/staged": "echo x > ci/staged; git add ci/staged",
    "ci/committed": f"echo x > ci/committed; git add -A; {GIT} commit -qm x",
    "ci/forced": "echo ci/ > .gitignore; echo x > ci/forced; git add -f ci",
    "ci/excluded": "mkdir -p .git/info; echo ci/excluded >> .git/info/exclude; echo x > ci/excluded",
    "ci/unchanged": "echo x > ci/unchanged; git add -A; git update-index --assume-unchanged ci/unchanged",
    "ci/sparse": "echo x > ci/sparse; git add -A; git update-index --skip-worktree ci/sparse",
    "ci/renamed": "echo x > free; git add -A; mv free ci/renamed",
    "ci/old": "echo x > ci/old; touch -d 1990-01-01 ci/old ci",
    "ci/unreadable": "echo x > ci/unreadable; chmod 000 ci/unreadable",
    "ci/daemon": f"(setsid sh -c 'echo x > ci/daemon; exec sleep {SLEEP}' </dev/null >/dev/null 2>&1 &); sleep 0.3",
    "ci/no-text\\xff": "touch $(printf 'ci/no-text\\377')",
    "ci/two\nlines": "touch \"$(printf 'ci/two\\nlines')\"",
    "ci/linked": "mkdir -p real; echo x > real/run.yml; ln -s ../real ci/linked",
    "test_shapes.py": "rm test_shapes.py; ln -s shapes.py test_shapes.py",
    "CI/upper": "mkdir CI; echo x > CI/upper",
    "ci./dotted": "mkdir ci.; echo x > ci./dotted",
    "pr\u0075\u0308f/composed": "mkdir pru\u0308f; echo x > pru\u0308f/composed",
    "c\u200di/joined": "mkdir c\u200di; echo x > c\u200di/joined",
    ".github": "mkdir -p hub/workflows; echo x > hub/workflows/run.yml; ln -s hub .github",
    "test_other.py/x": "mkdir test_other.py; echo x > test_other.py/x",
}
"""A forbidden path, and how it is hidden."""
ENTRIES = {
    "nested_git": "mkdir lib; git init -q lib",
    "nested_git ": "mkdir pointed; echo 'gitdir: /tmp/elsewhere' > pointed/.git",
    "nested_git  ": "mkdir -p upper/.GIT; echo x > upper/.GIT/config",
    "nested_git   ": "git init -q --bare naked",
    "symlink_leaves_tree": "ln -s /etc/passwd notes",
    "symlink_leaves_tree ": "mkdir -p a/b/c; ln -s ../../.. a/b/c/up; ln -s a/b/c/up/../x climbs",
    "hard_link": "ln shapes.py copy.py",
    "special_file": "mkfifo pipe",
}


def first_checkpoint(runtime: Runtime, checkout: Path, *commands: str) -> CheckpointRecorded:
    steps = [["run", command] for command in commands]
    work = Interactive(runtime, checkout, StdioAgent([MEND, *steps, ["turn"]]), GUARDED).begin()
    first = work.until(work.checkpoints)[0]
    work.pilot.cancel(work.run_id)
    work.end()
    return first


def test_forbidden_files_are_seen_however_they_are_hidden(runtime: Runtime, checkout: Path) -> None:
    first = first_checkpoint(runtime, checkout, "mkdir ci", *WAYS.values())
    assert first.status == "invalid"
    assert WAYS.keys() <= {one.file for one in first.violations if one.constraint == "protected_areas"}
    assert not alive(SLEEP)


def test_entries_that_leave_the_tree_are_critical(runtime: Runtime, checkout: Path) -> None:
    first = first_checkpoint(runtime, checkout, *ENTRIES.values())
    assert first.severity == "critical"
    found = [(one.constraint, one.file) for one in first.violations]
    assert {"lib/.git", "pointed/.git", "upper/.GIT", "naked"} <= {path for rule, path in found if rule == "nested_git"}
    assert {("symlink_leaves_tree", "notes"), ("symlink_leaves_tree", "climbs")} <= set(found)
    assert {rule.strip() for rule in ENTRIES} <= {rule for rule, _ in found}


@pytest.mark.variants
def test_the_record_and_the_message_of_very_many_violations_stay_small(runtime: Runtime, checkout: Path) -> None:
    make = "mkdir ci; for i in $(seq 700); do echo $i > ci/$i; done"
    agent = StdioAgent([MEND, ["run", make], ["turn"], ["run", "rm -r ci"]])
    work = Interactive(runtime, checkout, agent, GUARDED, max_uncommitted_changes=5_000, validation_budget_ms=60_000)
    run = work.end()
    assert run.verdict == "confirmed", run.failure
    first = work.checkpoints()[0]
    assert (len(first.files_changed), first.files_changed_count, first.files_changed_total) == (500, 701, 701)
    assert (len(first.violations), first.violations_left_out) == (500, 200)
    assert "and 680 more" in agent.received[0]
    assert len(agent.received[0]) < 5_000


def test_a_file_with_the_size_and_the_times_of_before_is_read_again(runtime: Runtime, checkout: Path) -> None:
    change = "cp -p a.txt kept; printf evil > a.txt; touch -r kept a.txt; rm kept"
    agent = StdioAgent([MEND, ["write", "a.txt", "good"], ["receive"], ["run", change], ["receive"]])
    work = Interactive(runtime, checkout, agent, checkpoint_interval_ms=200).begin()
    work.until(work.checkpoints)
    work.pilot.message(work.run_id, "go on")
    work.until(
        lambda: any((work.tree / "a.txt").exists() and one.files_changed == ("a.txt",) for one in work.checkpoints())
    )
    work.pilot.cancel(work.run_id)
    work.end()
    last = work.checkpoints()[-1]
    assert b"+evil" in work.pilot.checkpoint_diff(work.run_id, last.checkpoint_id, total=True)


def test_a_checkpoint_keeps_what_it_checked_while_something_writes_all_the_time(
    runtime: Runtime, checkout: Path
) -> None:
    """A daemon swaps a file between a good and a forbidden content; the kept tree is the one that was judged."""
    swap = "while :; do echo good > a.txt; mkdir -p ci; echo bad > ci/b; rm -rf ci; done"
    agent = StdioAgent([MEND, ["run", f"({swap}) >/dev/null 2>&1 & sleep 0.2"], ["sleep", 60]])
    work = Interactive(runtime, checkout, agent, GUARDED, max_uncommitted_changes=1).begin()
    work.until(lambda: len(work.checkpoints()) >= 4)
    work.pilot.cancel(work.run_id)
    work.end()
    for one in work.checkpoints():
        patch = work.pilot.checkpoint_diff(work.run_id, one.checkpoint_id, total=True)
        assert (one.status == "invalid") == (b" b/ci/b\n" in patch), one


def test_a_secret_is_found_in_added_lines_alone(runtime: Runtime, checkout: Path) -> None:
    key = "AKIA" + "Q3EGT7XZPL2MN4VB"
    agent = StdioAgent([MEND, ["write", "conf.py", f"KEY = '{key}'\n"], ["turn"]])
    work = Interactive(runtime, checkout, agent, GUARDED).begin()
    first = work.until(work.checkpoints)[0]
    work.pilot.cancel(work.run_id)
    work.end()
    [found] = first.violations
    assert (found.file, found.constraint) == ("conf.py", "secret")
    assert key not in found.message


def alive(word: str) -> bool:
    """True if a process of this machine has the word in its command line."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in place.read_bytes():
                return True
        except OSError:
            continue
    return False
