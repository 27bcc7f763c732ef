"""Checkpoints: rhythm, samples, severity, reverts and the breaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from codepilot.core.checkpoint import (
    FAILURES_TO_BLOCK,
    FLAGGED,
    SAMPLE_SIZE,
    SAMPLING_ABOVE,
    ChangedFile,
    CheckpointChain,
    CheckpointFailed,
    CheckpointRecorded,
    Pace,
    after_failures,
    due,
    is_high_risk,
    reverts_everything,
    select,
    severity_of,
    status_of,
    suggestion,
    to_revert,
    violation,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.interactive import InteractiveSettings, strategy_for

PACE = Pace.of(InteractiveSettings())
SECOND = 1_000_000
times = st.integers(min_value=0, max_value=300 * SECOND)
counts = st.integers(min_value=0, max_value=1000)


def test_defaults_are_those_of_the_seed() -> None:
    assert Pace(30 * SECOND, 5 * SECOND, 50) == PACE
    settings = InteractiveSettings()
    assert (settings.execution_mode, settings.revert, settings.violation_severity) == (
        "deterministic",
        "none",
        "warning",
    )
    assert (settings.max_shadow_size_mb, settings.watchdog_poll_interval_ms, settings.concurrent) == (2048, 2000, 5)


@given(times, counts, st.booleans(), st.booleans(), st.booleans())
def test_nothing_unasked_comes_before_the_shortest_interval(
    since: int, changed: int, requested: bool, turn: bool, final: bool
) -> None:
    trigger = due(PACE, since, changed, requested=requested, turn_ended=turn, final=final)
    if since < PACE.shortest_us and not (requested or final):
        assert trigger is None
    if final or requested:
        assert trigger == ("final" if final else "request")
    if trigger == "changes":
        assert changed >= 50
    if trigger == "time":
        assert changed
        assert since >= PACE.interval_us


paths = st.lists(st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}", fullmatch=True), unique=True, max_size=300)


@given(paths, st.floats(min_value=0, max_value=1e6), st.booleans(), st.text(max_size=4))
def test_a_sample_takes_every_risky_file_and_at_most_twenty_others(
    changed: list[str], per_file: float, whole: bool, salt: str
) -> None:
    budget = 1 * SECOND
    known = set(changed[::3])
    chosen = select(changed, known, per_file, budget, whole=whole, salt=salt)
    assert len(chosen.paths) + chosen.left_out == len(changed)
    assert known <= set(chosen.paths)
    assert {path for path in changed if is_high_risk(path)} <= set(chosen.paths)
    unknown = len(changed) - len(known)
    if whole or len(changed) <= SAMPLING_ABOVE or unknown * per_file <= budget:
        assert chosen.left_out == 0
    else:
        others = [path for path in chosen.paths if path not in known and not is_high_risk(path)]
        assert len(others) <= SAMPLE_SIZE


def test_a_sample_cannot_be_foreseen_without_its_salt() -> None:
    many = [f"src/f{number}.py" for number in range(500)]
    one, other = (select(many, (), 1e6, 1, whole=False, salt=salt).paths for salt in ("a", "b"))
    assert one != other
    assert select(many, (), 1e6, 1, whole=False, salt="a").paths == one


def test_severity_is_the_configured_one_unless_something_escapes() -> None:
    assert severity_of([], "error") is None
    assert severity_of([violation("plan.allowed_areas", "a")], "warning") == "warning"
    assert severity_of([violation("symlink_leaves_tree", "a")], "info") == "critical"
    assert severity_of([violation(FLAGGED, "run.sh")], "critical") == "warning"
    assert status_of([violation(FLAGGED, "run.sh")]) == "valid"
    assert status_of([violation("secret", "a")]) == "invalid"
    assert status_of([], checked=False) == "skipped"


@pytest.mark.parametrize("rule", ["plan.allowed_areas", "path_rules.implementer", "nested_git", "what is this"])
def test_every_violation_says_what_to_do(rule: str) -> None:
    assert suggestion(rule)
    assert violation(rule, "src/x.py").suggestion


def test_smart_takes_back_both_ends_of_a_move() -> None:
    changes = [
        ChangedFile("secret/kept.py", "added", after="oid1"),
        ChangedFile("src/kept.py", "deleted", before="oid1"),
        ChangedFile("src/other.py", "modified", before="a", after="b"),
    ]
    found = [violation("plan.allowed_areas", "secret/kept.py"), violation(FLAGGED, "src/other.py")]
    assert to_revert("none", found, changes) == ()
    assert to_revert("files", found, changes) == ("secret/kept.py",)
    assert to_revert("smart", found, changes) == ("secret/kept.py", "src/kept.py")
    assert reverts_everything("smart", "direct", still_broken=True)
    assert not reverts_everything("files", "direct", still_broken=True)
    assert reverts_everything("none", "shadow", still_broken=False)


def _checkpoint(name: str, **more: object) -> CheckpointRecorded:
    return CheckpointRecorded.model_validate(
        {"checkpoint_id": name, "trigger": "time", "tree": f"tree-{name}", "snapshot": f"snap-{name}", **more}
    )


def test_the_chain_knows_the_last_valid_tree_and_what_blocks_landing() -> None:
    chain = CheckpointChain().recorded(_checkpoint("1"))
    chain = chain.recorded(_checkpoint("2", status="invalid", severity="error"))
    assert (chain.last and chain.last.checkpoint_id, chain.last_valid and chain.last_valid.checkpoint_id) == ("2", "1")
    assert chain.blocked_by == "2"
    chain = chain.recorded(_checkpoint("3", left_out=80))
    assert chain.blocked_by == "2", "a sample clears nothing"
    chain = chain.recorded(_checkpoint("4"))
    assert chain.blocked_by == ""
    chain = chain.recorded(_checkpoint("5", status="invalid", severity="warning"))
    assert chain.blocked_by == ""
    assert (chain.count, chain.invalid) == (5, 2)


def test_three_failed_checkpoints_in_a_row_block() -> None:
    failure = Failure(kind=FailureKind.CHECKPOINT_FAILED, message="no room")
    chain = CheckpointChain()
    for number in range(1, FAILURES_TO_BLOCK + 1):
        assert after_failures(chain.failures) == "go_on"
        chain = chain.failed(CheckpointFailed(trigger="time", failure=failure, in_a_row=chain.failures + 1))
        assert chain.failures == number
    assert after_failures(chain.failures) == "block"
    assert chain.recorded(_checkpoint("1")).failures == 0


def test_the_seeds_keys_are_accepted() -> None:
    seed = {
        "execution_mode": "interactive",
        "strategy": "shadow_workspace",
        "revert_on_violation": True,
        "shadow_workspace": {"enabled": True, "promotion_strategy": "atomic", "max_shadow_size_mb": 64},
    }
    settings = InteractiveSettings.model_validate(seed)
    assert (settings.strategy, settings.revert, settings.max_shadow_size_mb) == ("shadow", "smart", 64)
    assert InteractiveSettings.model_validate({"strategy": "direct_worktree"}).strategy == "direct"
    with pytest.raises(ValidationError, match="incremental is not supported"):
        InteractiveSettings.model_validate({"shadow_workspace": {"promotion_strategy": "incremental"}})
    with pytest.raises(ValidationError, match=r"interactive\.shadow_workspace\.foo"):
        InteractiveSettings.model_validate({"shadow_workspace": {"foo": 1}})
    with pytest.raises(ValidationError):
        InteractiveSettings.model_validate({"concurrent": 11})


def test_a_repository_only_tightens() -> None:
    user = InteractiveSettings(strategy="shadow", revert="files", checkpoint_interval_ms=10_000)
    repository = InteractiveSettings(
        execution_mode="interactive", strategy="direct", revert="none", violation_severity="error", concurrent=10
    )
    both = user.tightened(repository)
    assert (both.execution_mode, both.strategy, both.revert) == ("interactive", "shadow", "files")
    assert (both.violation_severity, both.checkpoint_interval_ms, both.concurrent) == ("error", 10_000, 5)
    assert user.tightened(both) == both


def test_a_risky_change_gets_a_shadow_unless_somebody_chose() -> None:
    assert strategy_for(None, None, risky=True) == "shadow"
    assert strategy_for(None, None, risky=False) == "direct"
    assert strategy_for(None, "direct", risky=True) == "direct"
    assert strategy_for("shadow", "direct", risky=False) == "shadow"
