"""What an action asks of the host: earlier outputs, and repairs that need no model."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

import pytest

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, State
from codepilot.models import ScriptedModel

if TYPE_CHECKING:
    from conftest import Harness

TARGET = "tests/test_price.py::test_discount"
DONE = '<result>{"rationale": "A percentage is a hundredth.", "confidence": 0.9}</result>'


WEAKER = (
    "--- a/tests/test_price.py\n+++ b/tests/test_price.py\n@@ -9,2 +9,2 @@\n def test_discount():\n"
    "-    assert total([1000], discount=20) == 800\n+    assert total([1000], discount=20)\n"
)
BROKEN = (
    "--- a/shop/price.py\n+++ b/shop/price.py\n@@ -12,2 +12,2 @@\n def cheapest(prices):\n"
    "-    return min(prices) if prices else None\n+    return min(prices\n"
)


def act(code: str) -> str:
    return f"```python\n{code}\n```"


def seen(harness: Harness, *codes: str) -> list[str]:
    """What each action's observation says."""
    model = ScriptedModel([*map(act, codes), DONE])
    harness.edit()
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context(turns_per_step=30))
    return [request[-1].content for request in model.requests[1:]]


def change(text: str, returned: str) -> str:
    """A diff that lets `total` return something else."""
    after = text.replace("amount - amount * discount // 10", returned)
    lines = (part.splitlines(keepends=True) for part in (text, after))
    return "".join(difflib.unified_diff(*lines, "a/shop/price.py", "b/shop/price.py"))


def test_a_long_output_is_kept_whole_and_read_in_parts(harness: Harness) -> None:
    shown, part, rest = seen(
        harness,
        "print(''.join(f'{n:07d}' for n in range(300_000)))",
        "print(read_output(1, 700_008, 7))",
        "whole = read_output(1, 0, 10_000_000)\nprint(len(whole), whole.count('0299999'))",
    )
    assert len(shown) < 10_000
    assert "characters left out" in shown
    ref = harness.of(EventType.TURN_FINISHED)[0].artifacts[0]
    assert ref.uri in shown
    assert f"({ref.size_bytes} characters)" in shown
    assert "0100000" in part
    assert f"{ref.size_bytes} 1" in rest


def test_an_output_survives_its_kernel(harness: Harness) -> None:
    *_, last = seen(harness, "print('x' * 20_000)", "import os\nos._exit(1)", "print(len(read_output(1, 0, 99_999)))")
    assert "20009" in last


def test_what_cannot_be_answered_says_why(harness: Harness) -> None:
    absent, unknown, own = seen(harness, "read_output(9)", "n = 7\nread_output(n)", "print(read_output(1))")
    assert "there is no earlier turn 9 in this conversation" in absent
    assert "there is no earlier turn 7 in this conversation" in unknown
    assert "no earlier turn 9" in own


def test_the_turn_may_be_computed(harness: Harness) -> None:
    *_, both = seen(
        harness, "print('first ' * 9)", "print('second ' * 9)", "for n in (1, 2):\n    print(read_output(n)[-30:])"
    )
    assert "first first" in both
    assert "second second" in both


def test_the_arguments_of_a_search_may_be_computed(harness: Harness) -> None:
    code = (
        "mine = [one.test for one in result.failed]\nlabel = ('found', 1)\nprint('before')\n"
        "for one in find_repairs(\n    tests=mine,\n    limit=len(mine),\n):\n    print(label, one['path'])\n"
        "print(len(mine))"
    )
    _, found = seen(harness, f"result = run_tests([{TARGET!r}])", code)
    assert "before\n('found', 1) shop/price.py\n1" in found
    assert harness.of(EventType.REPAIRS_SOUGHT)[0].data.tests == (TARGET,)  # type: ignore[attr-defined]


def test_arguments_of_another_type_are_an_error_the_model_reads(harness: Harness) -> None:
    (message,) = seen(harness, "find_repairs(tests='a::b')")
    assert "find_repairs" in message and "list" in message
    assert not harness.of(EventType.REPAIRS_SOUGHT)


def test_a_search_that_is_stopped_ends_the_step(harness: Harness) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        if harness.of(EventType.TURN_STARTED):
            raise Stopped

    harness.raise_if_stopped = stop
    with pytest.raises(Stopped):
        seen(harness, "find_repairs()")
    assert not harness.of(EventType.TURN_FINISHED)


def test_repairs_are_found_for_the_model_and_nothing_is_changed(harness: Harness) -> None:
    before = harness.text("shop/price.py")
    made, found, fixed = seen(
        harness,
        "kept = len('kept')\nopen('note.txt', 'w').write('mine')",
        "best = find_repairs(limit=2)\nprint(len(best) <= 2, best[0]['path'], best[0]['confidence'] > 0)\n"
        "print(read_file('shop/price.py').count('// 100'), kept, read_file('note.txt'))",
        "print(apply_patch(best[0]['diff']))\nrun_tests(['tests/test_price.py'])",
    )
    assert "kernel" not in made
    assert "True shop/price.py True\n0 4 mine" in found
    assert "variables are lost" not in found
    assert "3 passed" in fixed
    assert harness.text("shop/price.py") != before
    sought = harness.of(EventType.REPAIRS_SOUGHT)[0].data
    assert (sought.by, sought.chosen, sought.found > 0, sought.tried > 0) == ("agent", False, True, True)  # type: ignore[attr-defined]


@pytest.mark.variants
def test_a_function_of_an_action_may_search_twice(harness: Harness) -> None:
    code = "def search(limit):\n    return find_repairs(mine, limit)\nprint([len(search(n)) for n in range(2)])"
    _, found = seen(harness, f"mine = [{TARGET!r}]", code)
    assert "[0, 1]" in found
    assert len(harness.of(EventType.REPAIRS_SOUGHT)) == 2


@pytest.mark.variants
def test_proposals_are_tried_and_ranked_with_the_rest_whatever_the_encoding(harness: Harness) -> None:
    """Of two proposals the wrong one is not offered; the right one, which no template makes, is."""
    text = "# -*- coding: latin-1 -*-\n# Preis für einen\n" + harness.text("shop/price.py")
    good = change(text, "int(sum(prices) * (1 - discount / 100))  # ü")
    bad, wide = change(text, "amount - discount"), change(text, "amount  # €")
    _, refused, offered, applied = seen(
        harness,
        f"open('shop/price.py', 'wb').write({text!r}.encode('latin-1'))",
        f"find_repairs(proposals=[{wide!r}])",
        f"for one in find_repairs(proposals=[{bad!r}, {good!r}]):\n    print(one['diff'])",
        f"apply_patch({good!r})",
    )
    assert "latin-1 and cannot hold '€'" in refused
    assert "int(sum(prices) * (1 - discount / 100))  # ü" in offered
    assert "amount - discount\n" not in offered
    assert "patched shop/price.py" in applied
    assert harness.executor.read_file(harness.workspace, "shop/price.py").count(b"\xfc") == 2


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        ("nothing of a diff", "PatchError|patch|diff"),
        ("--- a/shop/none.py\n+++ b/shop/none.py\n@@ -1 +1 @@\n-x\n+y\n", "shop/none.py"),
        ("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-x\n+y\n", "etc/passwd"),
        ("--- a/../up.py\n+++ b/../up.py\n@@ -1 +1 @@\n-x\n+y\n", r"\.\./up.py"),
        ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n", "one file that exists"),
        (WEAKER, "may not change it"),
        (BROKEN, "would not be Python"),
    ],
)
def test_a_proposal_that_is_no_change_of_a_file_is_an_error_the_model_reads(
    harness: Harness, diff: str, why: str
) -> None:
    (message,) = seen(harness, f"find_repairs(proposals=[{diff!r}])")
    assert "SkillError" in message
    assert re.search(why, message)


def test_a_search_that_cannot_be_made_is_an_error_the_model_reads(harness: Harness) -> None:
    (message,) = seen(harness, "find_repairs(['tests/test_price.py::test_plain_total'])")
    assert "SkillError" in message
    assert "passes when it is run by itself" in message
