"""What was done once is not done again, whatever goes wrong after it was done."""

from __future__ import annotations

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CodeResult, LocalExecutor, RunCode
from codepilot.executor.idempotency import IdempotencyCache

NAME = "r-1"
ASKED = RunCode(workspace=NAME, code="1", idempotency_key="k")


@pytest.fixture(params=[True, False], ids=["durable", "in memory"])
def answers(request, tmp_path):
    answers = IdempotencyCache(tmp_path / "answers.log" if request.param else None)
    yield answers
    answers.close()


@pytest.mark.parametrize("error", [OverflowError("too large"), MemoryError(), RuntimeError("broken")])
def test_what_may_have_been_done_is_not_done_again(answers, error):
    done = []

    def act():
        done.append(1)
        raise error

    with pytest.raises(type(error)):
        answers.give(ASKED, CodeResult, act)
    with pytest.raises((CodePilotError, type(error))):
        answers.give(ASKED, CodeResult, act)
    assert len(done) == 1


@pytest.mark.parametrize("error", [CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, "no"), OSError(24, "too many")])
def test_what_could_not_begin_may_be_asked_for_again(answers, error):
    def refuse():
        raise error

    with pytest.raises(type(error)):
        answers.give(ASKED, CodeResult, refuse)
    assert answers.give(ASKED, CodeResult, lambda: CodeResult(status="ok")).status == "ok"


@pytest.mark.parametrize("durable", [True, False])
def test_a_count_that_fails_takes_no_result_away(tmp_path, sandbox, request_for, caplog, durable):
    def count(calls):
        raise RuntimeError("a package is broken")

    executor = LocalExecutor(tmp_path / "workspaces", sandbox, durable=durable, count=count)
    executor.create(request_for())
    try:
        asked = RunCode(workspace=NAME, code="n = globals().get('n', 0) + 1; n", idempotency_key="k")
        assert executor.run_code(asked).value == "1"
        assert executor.run_code(asked).value == "1"
    finally:
        executor.close()
    assert "a package is broken" in caplog.text
