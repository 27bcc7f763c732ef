"""A policy may be tightened by anyone and loosened by nobody below."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from codepilot.core.policy import Policy, tightened

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
