"""What was done once is not done again, whatever goes wrong after it was done."""

from __future__ import annotations

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CodeResult, LocalExecutor, RunCode
from codepilot.executor.idempotency import IdempotencyCache, _digest
from codepilot.executor.protocol import Conflict, Unfinished

NAME = "r-1"
ASKED = RunCode(workspace=NAME, code="1", idempotency_key="k")


@pytest.fixture(params=[True, False], ids=["durable", "in memory"])
def answers(request, tmp_path):
    answers = IdempotencyCache(tmp_path / "answers.db" if request.param else None)
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


def test_an_answer_outlives_the_process_and_one_that_never_came_is_reported(tmp_path):
    file = tmp_path / "answers.db"
    first = IdempotencyCache(file)
    assert first.give(ASKED, CodeResult, lambda: CodeResult(status="ok", value="1")).value == "1"
    unfinished = ASKED.model_copy(update={"idempotency_key": "cut off"})
    first._execute("INSERT INTO answers (key, digest) VALUES ('cut off', ?)", _digest(unfinished))
    second = IdempotencyCache(file)  # the first was killed
    assert second.give(ASKED, CodeResult, lambda: pytest.fail("again")).value == "1"
    with pytest.raises(Unfinished):
        second.give(unfinished, CodeResult, lambda: pytest.fail("again"))
    with pytest.raises(Conflict):
        second.give(ASKED.model_copy(update={"code": "2"}), CodeResult, lambda: pytest.fail("again"))
    first.close()
    second.close()
    assert second.give(ASKED, CodeResult, lambda: pytest.fail("again")).value == "1"
    second.leave()


def test_it_keeps_the_newest_answers_and_what_runs(answers):
    answers._kept, answers._kept_bytes = 10, 10_000

    def give(key: str, text: str = "") -> str | None:
        asked = ASKED.model_copy(update={"idempotency_key": key})
        return answers.give(asked, CodeResult, lambda: CodeResult(status="ok", stdout=text)).status

    def many() -> CodeResult:
        for number in range(200):
            give(f"k{number}")
        return CodeResult(status="ok")

    answers.give(ASKED, CodeResult, many)
    kept = {key for (key,) in answers._execute("SELECT key FROM answers")}
    assert kept == {"k", *(f"k{number}" for number in range(191, 200))}
    give("huge", "x" * 20_000)
    assert [key for (key,) in answers._execute("SELECT key FROM answers")] == ["huge"]
