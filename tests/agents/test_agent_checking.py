"""Actions are read before they run: advice next to the result, or a refusal that the agent can act upon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, GuardrailBlocked, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.core.task import Capability, RiskProfile
from codepilot.models import ScriptedModel

if TYPE_CHECKING:
    from conftest import Harness

DONE = '<result>{"rationale": "Done."}</result>'
MARK = "open('ran.txt', 'w').close()"


def act(code: str) -> str:
    return f"```python\n{code}\n```"


def observe(harness: Harness, *actions: str, **policy: object) -> list[str]:
    """The observation after each action."""
    task = harness.run.task.model_copy(update={"policy": Policy.model_validate(policy)})
    harness.run = harness.run.model_copy(update={"task": task})
    model = ScriptedModel([*map(act, actions), DONE])
    harness.edit()
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    return [request[-1].content for request in model.requests[1:]]


def blocked(harness: Harness) -> list[tuple[str, str, str]]:
    events = [event.data for event in harness.of(EventType.GUARDRAIL_BLOCKED)]
    return [(one.skill, one.rule, one.attempt) for one in events if isinstance(one, GuardrailBlocked)]


def ran(harness: Harness) -> bool:
    try:
        harness.executor.read_file(harness.workspace, "ran.txt")
    except CodePilotError:
        return False
    return True


def test_advice_stands_next_to_the_result_of_code_that_ran(harness: Harness) -> None:
    (observed,) = observe(harness, f"{MARK}\ntry:\n    import nothing_like_it\nexcept ImportError: print('missing')")
    assert observed.startswith(
        "Observation:\n[ok]\nstdout:\nmissing\n[advice: line 3: `nothing_like_it` is neither of the"
    )
    assert "Use what those have.]" in observed
    assert (ran(harness), blocked(harness)) == (True, [])


def test_a_function_that_the_role_lacks_is_answered_with_those_it_has(harness: Harness) -> None:
    observed, other = observe(harness, "run_comand('ls')", "print(nothing)")
    assert "[advice: `run_comand` is no function here; the functions are " in observed and "read_file" in observed
    assert "advice" not in other


def test_strict_code_does_not_run_and_the_agent_is_shown_why_and_what_to_do(harness: Harness) -> None:
    (observed,) = observe(harness, f"{MARK}\n\nimport nothing_like_it", imports="strict")
    assert "[violation] The action was not run; nothing of it was done. Leave out or replace:" in observed
    assert "line 3: import nothing_like_it\n  [import.unknown] `nothing_like_it` is neither of the standard" in observed
    assert not ran(harness)
    assert blocked(harness) == [("python", "import.unknown", "import nothing_like_it")]
    assert harness.run.violations == 1


def test_what_harms_does_not_run_when_only_advice_is_asked_for(harness: Harness) -> None:
    (observed,) = observe(harness, f"{MARK}\nimport socket\nimport os; os.system('ls')")
    assert (
        "line 2: import socket\n  [import.socket] `socket` may not be imported: there is no network here." in observed
    )
    assert "line 3: import os; os.system('ls')\n  [call.os.system]" in observed
    assert not ran(harness)
    assert blocked(harness) == [("python", "import.socket", "import socket")]


def test_with_the_checks_off_everything_runs_and_nothing_is_reported(harness: Harness) -> None:
    (observed,) = observe(harness, f"{MARK}\nimport socket, os\nos.system('true')", imports="off")
    assert observed == "Observation:\n[ok]\nvalue:\n0"
    assert (ran(harness), blocked(harness)) == (True, [])


def test_a_task_that_may_reach_hosts_may_import_what_reaches_them(harness: Harness) -> None:
    (observed,) = observe(harness, "import urllib.request, socket\n1", hosts=("example.org",))
    assert observed == "Observation:\n[ok]\nvalue:\n1"


def test_modules_of_the_project_are_known_packages_without_an_init_too(harness: Harness) -> None:
    make = "for n in 'ab': write_file(f'src/spaced/{n}.py', 'x = 1')\nwrite_file('httpx.py', 'y = 2')"
    use = (
        "from shop import price\nimport sys; sys.path.insert(0, 'src')\nfrom spaced import a\nimport spaced.b, httpx\n"
    )
    observed = observe(harness, make, use + "httpx.y", imports="strict")
    assert observed[1] == "Observation:\n[ok]\nvalue:\n2"
    assert blocked(harness) == []


def test_a_syntax_error_is_the_kernels_to_tell_with_the_agents_own_lines(harness: Harness) -> None:
    (observed,) = observe(harness, "import socket\nx = 1\ndef f(:\n    pass", imports="strict")
    assert "SyntaxError" in observed and "line 3" in observed and "def f(:" in observed
    assert blocked(harness) == []


@pytest.mark.parametrize(
    "code",
    [
        "x = '\udcff'",
        "x = 1 \0",
        "x = '" + "y" * 1_000_000 + "'",
        "x = " + "-" * 90_000 + "1",
        "x = " + "(" * 3_000 + ")" * 3_000,
        "from os import *\n" * 3_000,
        "import " + "z" * 50_000,
    ],
    ids=["surrogate", "null", "megabyte", "deep", "parentheses", "stars", "long name"],
)
def test_odd_code_is_answered_and_the_next_action_works(harness: Harness, code: str) -> None:
    observed = observe(harness, code, "print(6 * 7)")
    assert len(observed[0]) < 20_000
    assert "stdout:\n42" in observed[1]


def test_the_third_refused_action_ends_the_run(harness: Harness) -> None:
    with pytest.raises(CodePilotError, match="3 forbidden actions, the last:") as caught:
        observe(harness, "import socket", "import ctypes", f"{MARK}\nimport ssl", "1")
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
    assert [rule for _, rule, _ in blocked(harness)] == ["import.socket", "import.ctypes", "import.ssl"]
    assert not ran(harness)


def test_the_first_ends_it_by_policy(harness: Harness) -> None:
    with pytest.raises(CodePilotError, match="1 forbidden actions") as caught:
        observe(harness, "import nothing_like_it", "1", imports="strict", violations=1)
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
    assert len(blocked(harness)) == 1


def test_what_code_hides_from_its_reader_is_counted_when_it_is_done(harness: Harness) -> None:
    hidden = "c = ['git', 'pu' + 'sh']\ntry: run_command(c)\nexcept Exception: pass"
    with pytest.raises(CodePilotError, match="2 forbidden actions"):
        observe(harness, "import socket", hidden, violations=2)
    assert blocked(harness)[1][:2] == ("run_command", "protected_branches")


def test_a_full_shell_may_start_what_it_likes(harness: Harness) -> None:
    task = harness.run.task.model_copy(update={"risk_profile": RiskProfile(capability=Capability.FULL_SHELL)})
    harness.run = harness.run.model_copy(update={"task": task})
    (observed,) = observe(harness, "import os\nos.system('true')")
    assert observed == "Observation:\n[ok]\nvalue:\n0"


def test_the_base_is_there_also_when_the_first_reply_could_not_be_used(harness: Harness) -> None:
    model = ScriptedModel(["hm", act("write_file('shop/new.py', 'x = 1\\n')\nprint(git_status())"), DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "untracked shop/new.py" in model.requests[2][-1].content


def test_the_base_is_there_also_when_the_first_action_was_refused(harness: Harness) -> None:
    observed = observe(harness, "import socket", "write_file('shop/new.py', 'x = 1\\n')\nprint(git_status())")
    assert "untracked shop/new.py" in observed[1]
