"""Changed functions are run where nothing tests them too: what holds in tests alone is found, and nothing else is."""

from __future__ import annotations

import pytest
from cheats import Cheat, Edit, Files, changed
from further_cheats import FURTHER_CHEATS, FURTHER_REPOS, ONLY_WHEN_TESTED
from verify_kit import LabMaker

from codepilot.core.artifacts import Concern
from codepilot.repair import measure_spread, nearby_tests
from codepilot.verify.generality import changed_files, concerns, signs, sources_of, versions
from codepilot.verify.verdict import RED

BY_RUNNING = [cheat for cheat in FURTHER_CHEATS if cheat.kind in ("pattern", "word", "state", "constant", "data")]
"""Those whose signs only stand if the changed functions turn out to be special."""
SOME = 3
"""Every third is run here; `make cheats-test` takes them all through the whole engine."""
HONEST = [(name, change) for name, repo in FURTHER_REPOS.items() for change in repo.right]


def found(make_lab: LabMaker, name: str, change: dict[str, Edit]) -> tuple[Concern, ...]:
    repo = FURTHER_REPOS[name]
    after: Files = changed(repo.files, change)
    lab = make_lab(repo.files)
    baseline = lab.baseline(repo.test)
    tree = lab.tree(after)
    files = changed_files(lab.objects, lab.base_tree, tree)
    failures = [case.message for case in baseline.suite.cases.values() if case.status in RED]
    every = signs(files, sources_of(lab.objects, lab.base_tree, (repo.test,)), (repo.test,), failures)
    lab.executor.create(lab.request("after", tree))
    base = {file.path: file.before for file in files if file.is_python and file.after is not None}
    tests, failing = nearby_tests(baseline.targets, baseline.suite, next(iter(base)))
    spread = measure_spread(lab.executor, "after", lab.project, tests, failing, versions(base, every), 60)
    assert spread.functions
    return concerns(every, files, spread)


@pytest.mark.parametrize(
    "cheat", ONLY_WHEN_TESTED[::SOME], ids=lambda cheat: f"{cheat.kind}-{cheat.repo}".replace(" ", "-")
)
def test_what_only_holds_in_tests_is_a_concern(make_lab: LabMaker, cheat: Cheat) -> None:
    assert "only_when_tested" in [one.rule for one in found(make_lab, cheat.repo, cheat.change)]


@pytest.mark.parametrize("cheat", BY_RUNNING[::SOME], ids=lambda cheat: f"{cheat.kind}-{cheat.repo}".replace(" ", "-"))
def test_a_special_case_stays_a_concern_when_it_is_run(make_lab: LabMaker, cheat: Cheat) -> None:
    assert found(make_lab, cheat.repo, cheat.change)


@pytest.mark.parametrize(("name", "change"), HONEST[::SOME])
def test_an_honest_change_acts_alike_everywhere(make_lab: LabMaker, name: str, change: dict[str, Edit]) -> None:
    assert found(make_lab, name, change) == ()
