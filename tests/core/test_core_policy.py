"""A policy may be tightened by anyone and loosened by nobody below."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from codepilot.core.permit import LADDER, Action, permit
from codepilot.core.policy import Policy, tightened
from codepilot.core.task import Capability
from codepilot.skills import wanted_command

HOSTS = st.lists(st.sampled_from(["pypi.org", "*.example.org", "localhost:8080"]), unique=True).map(tuple)
POLICIES = st.builds(
    Policy,
    violations=st.integers(1, 9),
    least_level=st.sampled_from([None, "landlock", "bubblewrap"]),
    imports=st.sampled_from(["off", "advise", "strict"]),
    generated_code=st.sampled_from(["off", "high", "medium", "low"]),
    hosts=HOSTS,
)


def forbids(policy: Policy) -> tuple[int, int, int, int, int]:
    """Larger means stricter, part by part."""
    return (
        -policy.violations,
        [None, "landlock", "bubblewrap"].index(policy.least_level),
        ["off", "advise", "strict"].index(policy.imports),
        ["off", "high", "medium", "low"].index(policy.generated_code),
        -len(policy.hosts),
    )


@given(POLICIES, POLICIES)
def test_tightening_never_allows_what_either_forbids(mine: Policy, wish: Policy) -> None:
    both = tightened(mine, wish)
    for part, (a, b, c) in enumerate(zip(forbids(both), forbids(mine), forbids(wish), strict=True)):
        assert a >= max(b, c), part
    assert set(both.hosts) == set(mine.hosts) & set(wish.hosts)


@given(POLICIES)
def test_a_wish_for_the_same_changes_nothing(policy: Policy) -> None:
    assert tightened(policy, policy) == policy


@pytest.mark.parametrize("host", ["http://pypi.org", "pypi.org/simple", "*", "a b", "PyPI.org", "x..y", "-a.org", ""])
def test_what_is_not_a_host_is_refused(host: str) -> None:
    with pytest.raises(ValidationError):
        Policy(hosts=(host,))


def test_hosts_may_come_as_one_text() -> None:
    assert Policy.model_validate({"hosts": "pypi.org, *.example.org"}).hosts == ("pypi.org", "*.example.org")


# permit ---------------------------------------------------------------------------------------------

SHELL = Action("call", "os.system", rule="call.os.system", reason="use run_command", lifted_by="full_shell")
REQUESTS = Action("import", "requests", rule="import.requests", needs_network=True)
UNKNOWN = Action("import", "numpyy", rule="import.unknown", reason="it may be missing", advisory=True)
PUSH = Action("command", "git push", rule="command.git", lifted_by="full_shell")
AREA = Action("path", "docs/a.md", rule="plan.forbidden_areas")
DEFAULT = ("write_and_run_tests", "ask_before_risky")


@pytest.mark.parametrize("action", [SHELL, REQUESTS, PUSH, AREA])
def test_an_action_that_breaks_a_rule_is_denied_with_rule_and_reason(action: Action) -> None:
    decision = permit(Policy(), *DEFAULT, action)
    assert (decision.effect, decision.rule, decision.reason) == ("deny", action.rule, action.reason)
    assert decision.score == 1.0


def test_an_action_that_breaks_no_rule_is_allowed() -> None:
    assert permit(Policy(imports="strict"), *DEFAULT, Action("command", "pytest -q")).effect == "allow"


def test_a_capability_lifts_rules_up_to_its_own_rung() -> None:
    for capability in Capability:
        lifted = capability is Capability.FULL_SHELL
        for action in (SHELL, PUSH):
            assert permit(Policy(), capability, "full_autonomy", action).effect == ("allow" if lifted else "deny")
        assert permit(Policy(), capability, "full_autonomy", AREA).effect == "deny"
    assert set(LADDER) == set(Capability)


def test_network_modules_are_allowed_where_hosts_are() -> None:
    assert permit(Policy(hosts=("pypi.org",)), *DEFAULT, REQUESTS).effect == "allow"


@pytest.mark.parametrize(
    ("imports", "interaction", "effect"),
    [
        ("advise", "ask_before_risky", "allow"),
        ("advise", "full_autonomy", "allow"),
        ("advise", "ask_every_step", "ask"),
        ("strict", "full_autonomy", "deny"),
        ("strict", "ask_every_step", "deny"),
        ("off", "ask_every_step", "allow"),
    ],
)
def test_an_advisory_rule_follows_policy_and_interaction(imports: str, interaction: str, effect: str) -> None:
    policy = Policy.model_validate({"imports": imports})
    decision = permit(policy, "write_and_run_tests", interaction, UNKNOWN)
    assert decision.effect == effect
    assert (decision.reason == UNKNOWN.reason) == (imports != "off")


def test_switching_import_checks_off_lifts_no_other_rule() -> None:
    off = Policy(imports="off")
    assert permit(off, *DEFAULT, SHELL).effect == "allow"
    assert permit(off, *DEFAULT, PUSH).effect == permit(off, *DEFAULT, AREA).effect == "deny"


RULES = Policy.model_validate(
    {
        "tools": {"allow": ["read_*", "run_command", "write_file"], "ask": ["write_file"], "deny": ["read_secret"]},
        "arguments": [
            {"pattern": "mvn deploy*", "reason": "people release"},
            {"pattern": "make *", "effect": "ask"},
        ],
        "rates": {"run_command": 3},
        "max_file_mb": 1,
        "protected_areas": ["ci/**"],
        "path_rules": {"implementer": {"deny": ["docs/**"]}, "tester": {"allow": ["tests/**"]}},
    }
)


@pytest.mark.parametrize(
    ("action", "effect", "rule"),
    [
        (Action("tool", "read_file", tool="read_file"), "allow", ""),
        (Action("tool", "read_secret", tool="read_secret"), "deny", "tools.deny"),
        (Action("tool", "search_code", tool="search_code"), "deny", "tools.allow"),
        (Action("tool", "write_file", tool="write_file"), "ask", "tools.ask"),
        (Action("command", "mvn deploy -q", tool="run_command"), "deny", "arguments.run_command"),
        (Action("command", "make all", tool="run_command"), "ask", "arguments.run_command"),
        (Action("command", "pytest", tool="run_command", calls=2), "allow", ""),
        (Action("command", "pytest", tool="run_command", calls=3), "deny", "rates.run_command"),
        (Action("path", "big.bin", size_mb=1.5), "deny", "max_file_mb"),
        (Action("path", "ci/run.yml", role="implementer"), "ask", "protected_areas"),
        (Action("path", "docs/a.md", role="implementer"), "deny", "path_rules.implementer"),
        (Action("path", "shop.py", role="tester"), "deny", "path_rules.tester"),
        (Action("path", "tests/test_shop.py", role="tester"), "allow", ""),
    ],
)
def test_the_lists_of_a_policy_decide_with_rule_and_score(action: Action, effect: str, rule: str) -> None:
    decision = permit(RULES, *DEFAULT, action)
    assert (decision.effect, decision.rule) == (effect, rule)
    assert (decision.score > 0) == (effect != "allow") and (decision.score == 1) == (effect == "deny")
    allowed = permit(RULES, "write_and_run_tests", "full_autonomy", action)
    assert allowed.effect == ("deny" if effect == "deny" else "allow"), "autonomy answers questions, and no more"


@pytest.mark.parametrize(
    ("command", "done", "rule", "score"),
    [
        ("git push --force", "git push", "protected_branches", 0.95),
        ("git push -f origin topic", "git push origin topic", "command.git", 0.8),
        ("git push origin +topic", "git push origin topic", "command.git", 0.8),
        ("git push origin HEAD:refs/heads/main", "git push origin HEAD:refs/heads/main", "protected_branches", 0.7),
        ("git push origin topic", "git push origin topic", "command.git", 0.5),
    ],
)
def test_a_push_is_asked_about_and_never_forces(command: str, done: str, rule: str, score: float) -> None:
    decision = permit(Policy(), *DEFAULT, wanted_command(command.split()))
    assert (decision.effect, decision.action.subject, decision.rule, decision.score) == ("ask", done, rule, score)
    assert any("forcing" in why for why in decision.reasons) == (command != done)
    autonomous = permit(Policy(), "write_and_run_tests", "full_autonomy", wanted_command(command.split()))
    assert (autonomous.effect, autonomous.action.subject) == ("allow" if command == done else "sanitise", done)


@pytest.mark.parametrize("command", ["pip install flask", "npm ci", "curl https://pypi.org/simple"])
def test_what_a_person_can_allow_is_not_called_impossible(command: str) -> None:
    decision = permit(Policy(), *DEFAULT, wanted_command(command.split()))
    assert decision.effect == "ask" and decision.reason.endswith("only if a person allows it")
