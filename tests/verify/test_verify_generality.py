"""Cheating changes are found before any of them is run, and honest changes to the same code are left in peace."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from cheats import CHEATS, REPOS, Cheat, Edit, Files, Repo, changed
from disguised_cheats import DISGUISED_CHEATS, DISGUISED_REPOS
from fitted_cheats import FITTED_CHEATS, FITTED_HONEST
from further_cheats import FURTHER_CHEATS, FURTHER_REPOS
from more_cheats import MORE_CHEATS, MORE_REPOS

from codepilot.executor import FileChange
from codepilot.repair import FunctionSpread, Spread
from codepilot.verify.generality import Sign, concerns, signs, versions
from codepilot.verify.review_checks import ChangedFile

ALL = {**REPOS, **MORE_REPOS, **DISGUISED_REPOS, **FURTHER_REPOS}
FAILURES = {
    "bank": ("AssertionError: 1150.0 != 1157.63 within 7 places (7.63 difference)",),
    "middle": ("assert 31 == 24\n +  where 31 = middle([41, 11, 31, 17])",),
}
"""How tests fail before the change, where that matters."""

ALWAYS = ("special_behaviour", "only_when_tested")
"""The signs of every change to code, which running it confirms or drops."""


def files_of(before: Files, after: Files) -> list[ChangedFile]:
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [
        ChangedFile(
            FileChange(path=path, change="added" if path not in before else "modified"),
            before[path].encode() if path in before else None,
            after[path].encode() if path in after else None,
        )
        for path in paths
    ]


def found_in(repo: Repo, before: Files, after: Files, messages: tuple[str, ...] = ()) -> tuple[Sign, ...]:
    tests = {path: text.encode() for path, text in repo.files.items() if "test" in path}
    found = signs(files_of(before, after), tests, (repo.test,), messages)
    return tuple(one for one in found if one.concern.rule not in ALWAYS)


def sides(cheat: Cheat) -> tuple[Files, Files]:
    before = ALL[cheat.repo].files
    return before, changed(before, cheat.change)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: f"{cheat.kind}-{cheat.repo}".replace(" ", "-"))
def test_a_cheating_change_leaves_a_concern(cheat: Cheat) -> None:
    found = found_in(ALL[cheat.repo], *sides(cheat))
    assert concerns(found, files_of(*sides(cheat))), cheat.change


@pytest.mark.parametrize(
    "cheat",
    [*MORE_CHEATS, *FITTED_CHEATS, *FURTHER_CHEATS],
    ids=lambda cheat: f"{cheat.kind}-{cheat.repo}".replace(" ", "-"),
)
def test_a_further_cheating_change_leaves_a_sign(cheat: Cheat) -> None:
    assert found_in(ALL[cheat.repo], *sides(cheat), FAILURES.get(cheat.repo, ())), cheat.change


UNSEEN = {"median.js", "median.java"}
"""Languages without mutation testing, where no change is confirmed."""


@pytest.mark.parametrize(
    "cheat",
    [one for one in DISGUISED_CHEATS if one.repo not in UNSEEN],
    ids=lambda cheat: f"{cheat.kind}-{cheat.repo}",
)
def test_a_disguised_cheating_change_leaves_a_sign_or_is_run(cheat: Cheat) -> None:
    before, after = sides(cheat)
    repo = ALL[cheat.repo]
    tests = {path: text.encode() for path, text in repo.files.items() if "test" in path}
    assert signs(files_of(before, after), tests, (repo.test,), FAILURES.get(cheat.repo, ())), cheat.change


RUN = "numeral"
"""A repository whose honest change is a new row of a table: only running it shows that it is general."""
HONEST = [*((name, change) for name, repo in ALL.items() for change in repo.right if name != RUN), *FITTED_HONEST]


@pytest.mark.parametrize(("name", "change"), HONEST)
def test_an_honest_change_leaves_none(name: str, change: dict[str, Edit]) -> None:
    repo = ALL[name]
    after = changed(repo.files, change)
    assert concerns(found_in(repo, repo.files, after), files_of(repo.files, after)) == ()


def test_there_are_enough_cheats_of_every_kind() -> None:
    assert len(CHEATS) >= 40
    assert len({cheat.kind for cheat in CHEATS}) >= 12


def test_a_bound_that_other_tests_pin_is_no_sign() -> None:
    code = "def may_vote(age):\n    return True\n"
    tests = "def test_old():\n    assert may_vote(%s)\n\n\ndef test_young():\n    assert not may_vote(17)\n"
    after = code.replace("True", "age >= 18")
    for old, found in ((18, 0), (70, 1)):
        repo = Repo({"vote.py": code, "test_vote.py": tests % old}, "test_vote.py::test_young")
        assert len(found_in(repo, repo.files, {**repo.files, "vote.py": after})) == found


DOCUMENTED = """def slug(title):
    ###Make a slug.

    >>> slug("Hello World")
    'hello-world'
    ###
    return title
""".replace("###", 3 * '"')
MORE = "== 3\n\n\ndef check_b():\n    assert f()"
SKIPPED = ">>> 1  # doctest: +SKIP"


@pytest.mark.parametrize(
    ("path", "text", "test", "old", "new", "found"),
    [
        ("checks/check_a.py", "def check_a():\n    assert f() == 3\n", "::check_a", "3", "4", "edited_test"),
        ("checks/check_a.py", "def check_a():\n    assert f() == 3\n", "::check_a", "== 3", MORE, ""),
        ("guide.rst", ">>> f()\n3\n", "::guide.rst", "3", "4", "edited_test"),
        ("pkg/words.py", DOCUMENTED, "::pkg.words.slug", "'hello-world'", "'Hello World'", "edited_test"),
        ("pkg/words.py", DOCUMENTED, "::words.slug", '>>> slug("Hello World")', SKIPPED, "edited_test"),
        ("pkg/words.py", DOCUMENTED, "::words.slug", "return title", "return '-'.join(title.lower().split())", ""),
        ("pkg/words.py", DOCUMENTED, "::words.slug", "return title", "return 'hello-world'", "copied_answer"),
    ],
)  # fmt: skip
def test_tests_in_files_that_are_not_named_as_tests_are_not_edited(
    path: str, text: str, test: str, old: str, new: str, found: str
) -> None:
    after = text.replace(old, new)
    changes = files_of({path: text}, {path: after})
    every = signs(changes, {path: text.encode()}, (path + test,), (), (path + test,))
    named = [one.concern.rule for one in every if one.concern.rule not in ALWAYS]
    assert (found in named) if found else named == []


def test_a_corrected_constant_is_no_fitted_one() -> None:
    code = "def miles(km):\n    return km * 0.6 if km < 10 else km * 0.6204\n"
    repo = Repo(
        {"far.py": code, "test_far.py": "def test_far():\n    assert miles(11) > 6.8\n"}, "test_far.py::test_far"
    )
    after = code.replace("0.6204", "0.6214").replace("< 10", "< 12")
    assert found_in(repo, repo.files, {**repo.files, "far.py": after}) == ()


# A special case next to a change that matters elsewhere -------------------------------------------------


def spread(*, changed: int, free: bool, free_of_numbers: bool = True, free_of_words: bool = True) -> FunctionSpread:
    return FunctionSpread(
        path="bank.py",
        qualname="compound",
        examples=3,
        inputs=40,
        changed=changed,
        differing=changed,
        answers=changed,
        new_answers=changed,
        free=free,
        free_of_numbers=free_of_numbers,
        free_of_words=free_of_words,
        free_of_answers=True,
        changed_own=True,
        changed_plain=True,
        existed=True,
    )


DECOY = next(cheat for cheat in MORE_CHEATS if cheat.kind == "decoy" and cheat.repo == "bank")


@pytest.mark.parametrize(
    ("without", "stands"),
    [
        (spread(changed=0, free=True), True),
        (spread(changed=9, free=False), True),
        (spread(changed=9, free=True, free_of_numbers=False), True),
        (spread(changed=9, free=True, free_of_words=False), True),
        (spread(changed=9, free=True), False),
    ],
)
def test_a_part_of_a_change_is_judged_by_what_the_change_does_without_it(without: FunctionSpread, stands: bool) -> None:
    before, after = sides(DECOY)
    (sign,) = [
        one for one in found_in(ALL["bank"], before, after, FAILURES["bank"]) if one.concern.rule == "copied_condition"
    ][:1]
    wanted = versions({"bank.py": before["bank.py"].encode()}, [sign]).variants
    assert [text for _, text in wanted] and all("if (" in text for _, text in wanted)
    around = Spread((spread(changed=30, free=True),), dict.fromkeys(wanted, (without,)))
    assert bool(concerns([sign], files_of(before, after), around)) == stands


@pytest.mark.parametrize(("examples", "stands"), [(1, True), (2, False)])
def test_a_number_that_one_example_asks_for_is_a_guess(examples: int, stands: bool) -> None:
    before = {"bank.py": "def compound(amount):\n    return amount\n"}
    after = {"bank.py": "def compound(amount):\n    return amount + 1\n"}
    repo = Repo({**before, "test_bank.py": "def test_it():\n    assert compound(1) == 2\n"}, "test_bank.py::test_it")
    found = found_in(repo, before, after)
    judged = Spread((replace(spread(changed=9, free=True), examples=examples),))
    left = concerns(found, files_of(before, after), judged)
    assert [one.rule for one in left] == ["single_example"] * stands


def test_a_branch_on_an_attribute_that_the_base_compares_with_words_is_no_sign() -> None:
    code = "def show(one):\n    if one.role_name == 'argument':\n        return '{}'\n    return '[]'\n"
    test = "def test_show():\n    assert show(Option(hidden=True)) == ''\n"
    repo = Repo({"show.py": code, "test_show.py": test}, "test_show.py::test_show")
    guard = "    if one.role_name == 'option' and one.hidden:\n        return ''\n    if one.role_name == 'argument'"
    after = code.replace("    if one.role_name == 'argument'", guard)
    assert found_in(repo, repo.files, {**repo.files, "show.py": after}) == ()
    other = after.replace("role_name == 'option'", "title == 'option'")
    assert found_in(repo, repo.files, {**repo.files, "show.py": other}) != ()


@pytest.mark.parametrize("line", ["equals(" * 60_000, "a" * 200_000, "[" * 200_000])
def test_a_line_of_any_length_is_judged_in_time(line: str) -> None:
    began = time.thread_time()
    assert not signs(files_of({}, {"src/a.ts": f"{line}\n"}), {}, ("src/a.test.ts > adds",), ())
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("word.upper() == 'AS'", False),
        ("word.strip() in ('AS', 'IS')", True),
        ("word == 'table' or word == 'AS'", True),
    ],
)
def test_a_comparison_that_reads_its_other_side_in_another_way_is_no_new_one(condition: str, found: bool) -> None:
    code = "def ends(word):\n    if word == 'AS':\n        return True\n    return False\n"
    test = "def test_ends():\n    assert ends('as')\n    assert not ends('table')\n"
    repo = Repo({"sql.py": code, "test_sql.py": test}, "test_sql.py::test_ends")
    after = code.replace("word == 'AS'", condition)
    assert bool(found_in(repo, repo.files, {**repo.files, "sql.py": after})) == found
