"""What `codepilot policy explain` answers about commands, paths and hosts."""

from __future__ import annotations

import pytest

from codepilot.core.failures import CodePilotError
from codepilot.core.policy import Policy
from codepilot.core.task import Capability, InteractionMode
from codepilot.engine.policy_view import Explanation, explain

POLICY = Policy.model_validate(
    {
        "hosts": ["pypi.org:443", "*.example.org"],
        "protected_areas": ["setup.py"],
        "arguments": [{"pattern": "make *"}, {"tool": "read_file", "pattern": "*.lock"}],
    }
)


def explained(*words: str, kind: str = "command") -> Explanation:
    capability, interaction = Capability.WRITE_AND_RUN_TESTS, InteractionMode.ASK_BEFORE_RISKY
    return explain(POLICY, words, kind, capability, interaction, "implementer")


@pytest.mark.parametrize(
    ("words", "kind", "effect", "sanitised"),
    [
        (("git", "push", "--force"), "command", "ask", "git push"),
        (("git push --force",), "command", "ask", "git push"),
        (("grep", "-rn", "two words"), "command", "allow", None),
        (("make",), "command", "deny", None),
        (("makes",), "command", "ask", None),
        (("read_file", "poetry.lock"), "tool", "deny", None),
        (("read_file", "a.py"), "tool", "allow", None),
        (("./setup.py",), "path", "ask", None),
        (("src/a.py",), "path", "allow", None),
        (("pypi.org",), "host", "allow", None),
        (("pypi.org:443",), "host", "allow", None),
        (("pypi.org:8080",), "host", "ask", None),
        (("a.example.org",), "host", "allow", None),
        (("example.org",), "host", "ask", None),
    ],
)
def test_an_action_is_explained_as_a_run_would_decide_it(
    words: tuple[str, ...], kind: str, effect: str, sanitised: str | None
) -> None:
    found = explained(*words, kind=kind)
    assert (found.effect, found.sanitised) == (effect, sanitised)


@pytest.mark.parametrize(("words", "kind"), [((), "command"), (("x",), "nonsense")])
def test_nothing_and_an_unknown_kind_are_refused(words: tuple[str, ...], kind: str) -> None:
    with pytest.raises(CodePilotError, match=r"nothing to explain|no kind of action"):
        explained(*words, kind=kind)
