"""Every candidate is judged by what it does itself, not by what was spent, left behind or not put in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from repair_kit import Bench, job_of, trial_of

from codepilot.repair.worker import Selection

Open = Callable[[Mapping[str, str | bytes]], Bench]


def test_each_call_that_is_weighed_has_its_own_rounds(bench: Open) -> None:
    project = bench(
        {
            "down.py": "def down(n):\n    k = 0\n    while n > 0:\n        n -= 1\n        k += 1\n    return k\n",
            "test_down.py": "from down import down\n\n\ndef test_down():\n"
            "    assert [down(n) for n in range(900, 916)] == list(range(900, 916))\n",
        }
    )
    tests = project.baseline.collected
    job = job_of(project, "down.py", "k += 1", "k += 1 ", Selection(tests, tests))
    with trial_of(project) as trial:
        trial.start()
        evidence = trial.weigh(job, [("down(9000)", "9000")] * 12)
    assert (evidence.promised, evidence.held) == (12, 12)
    assert (evidence.kept, evidence.broken) == (1.0, 0.0)
