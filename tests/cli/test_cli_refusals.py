"""What is refused, with a sentence that says what is wrong and what to do, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import SHOP, SHOP_TESTS, Command, Repo, git

from codepilot.cli.app import app


def refused(codepilot: Command, *arguments: str, saying: str, **environ: str) -> None:
    ended = codepilot("fix", *arguments, **environ)
    assert ended.code == 2, ended.out + ended.err
    reported = " ".join((ended.out + ended.err).split())
    assert saying in reported
    assert "→" in reported, "every refusal says what to do"
    workspaces = codepilot.home / "workspaces"
    assert not workspaces.exists() or list(workspaces.iterdir()) == []


def test_no_such_path(codepilot: Command, tmp_path: Path) -> None:
    refused(codepilot, str(tmp_path / "nowhere"), saying="nowhere")


def test_not_a_repository(codepilot: Command, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    refused(codepilot, str(tmp_path / "plain"), saying="not in a git repository")


def test_no_commit(codepilot: Command, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "empty")
    refused(codepilot, str(tmp_path / "empty"), saying="no commit")


def test_unknown_ref(codepilot: Command, shop: Path) -> None:
    refused(codepilot, str(shop), "--ref", "v9.9", saying="v9.9")


def test_unreachable_url(codepilot: Command, tmp_path: Path) -> None:
    refused(codepilot, f"file://{tmp_path}/nothing.git", saying="nothing.git")


def test_no_test_runner(codepilot: Command, repo: Repo) -> None:
    refused(codepilot, str(repo({"a.py": "x = 1\n"})), saying="test", CODEPILOT_PROJECT_RUNNER="auto")


def test_a_language_whose_tests_cannot_be_run_is_named(codepilot: Command, repo: Repo) -> None:
    files = {"Cargo.toml": '[package]\nname = "sums"\n', "src/lib.rs": "pub fn one() -> i32 { 1 }\n"}
    saying = "This is a Rust project (Cargo.toml)"
    refused(codepilot, str(repo(files)), saying=saying, CODEPILOT_PROJECT_RUNNER="auto")


def test_no_such_test(codepilot: Command, shop: Path) -> None:
    refused(codepilot, str(shop), "--test", "test_shop.py::ShopTest::test_shiping", saying="test_shipping")


def test_the_named_test_passes(codepilot: Command, shop: Path) -> None:
    refused(codepilot, str(shop), "--test", "test_shop.py::ShopTest::test_bill", saying="passes")


@pytest.mark.parametrize("more", [(), ("--prompt", "make something cool")])
def test_nothing_fails(codepilot: Command, repo: Repo, more: tuple[str, ...]) -> None:
    """However it is asked for: words that no failing test bears out are too vague to act on."""
    checkout = repo({"shop.py": SHOP.replace("> limit", ">= limit"), "test_shop.py": SHOP_TESTS})
    refused(codepilot, str(checkout), *more, saying="Nothing fails")


def test_nothing_fails_of_the_only_test(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"test_one.py": "def test_one():\n    assert True\n"})
    saying = "Nothing fails: the one test of the suite that was run passes."
    refused(codepilot, str(checkout), saying=saying, CODEPILOT_PROJECT_RUNNER="pytest")


FLAKY = """import pathlib
import unittest


class T(unittest.TestCase):
    def test_now(self):
        mark = pathlib.Path("mark")
        if not mark.exists():
            mark.touch()
            self.fail("the first time")
"""


def test_a_flaky_test(codepilot: Command, repo: Repo) -> None:
    refused(codepilot, str(repo({"test_x.py": FLAKY})), "--test", "test_x.py::T::test_now", saying="flaky")


def test_a_missing_module_is_named(codepilot: Command, repo: Repo) -> None:
    files = {"test_x.py": "import nosuchthing\n\n\ndef test_it():\n    assert nosuchthing\n"}
    refused(codepilot, str(repo(files)), saying="nosuchthing", CODEPILOT_PROJECT_RUNNER="pytest")


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (("--budget", "walls=3"), "walls"),
        (("--budget", "wall_sec=soon"), "wall_sec=soon"),
        (("--budget", "wall_sec=-1"), "wall_sec"),
        (("--agent", "nobody"), "nobody"),
        (("--python", "/nowhere/python"), "/nowhere/python"),
        (("--prompt", ""), "--prompt is empty"),
        (("--prompt", " \t\n"), "--prompt is empty"),
        (("--capability", "read_only"), "can do nothing with"),
    ],
)
def test_bad_options(codepilot: Command, shop: Path, arguments: tuple[str, ...], saying: str) -> None:
    refused(codepilot, str(shop), *arguments, saying=saying)


def test_a_task_that_says_nothing_is_not_queued(codepilot: Command, shop: Path) -> None:
    ended = codepilot("submit", str(shop), "--prompt", "   ")
    assert ended.code == 2, ended.out + ended.err
    assert "--prompt is empty" in ended.err
    assert "→ Say what should be true afterwards" in ended.err
    assert codepilot.newest() is None


def test_a_mistake_in_the_configuration_names_the_file(codepilot: Command, shop: Path) -> None:
    (shop / "codepilot.toml").write_text("[budget]\nwall_secs = 3\n", encoding="utf-8")
    refused(
        codepilot, str(shop), saying="codepilot.toml, line 2: budget.wall_secs: there is no budget 'wall_secs'; use one"
    )
    (shop / "codepilot.toml").write_text("[sandbox]\nlevel = 'none'\n", encoding="utf-8")
    refused(codepilot, str(shop), saying="codepilot.toml")


def test_a_refusal_as_json_is_one_document(codepilot: Command, tmp_path: Path) -> None:
    ended = codepilot("fix", str(tmp_path / "nowhere"), "--json")
    assert ended.code == 2
    assert ended.json["failure"]["kind"] == "repo_unreachable"
    assert ended.json["failure"]["next_action"]


def test_unknown_runs_and_bundles(codepilot: Command, tmp_path: Path) -> None:
    for command in ("show", "resume", "apply"):
        ended = codepilot(command, "r-nothing")
        assert ended.code == 2, command
        assert "r-nothing" in ended.err
    assert codepilot("verify", str(tmp_path / "no-bundle")).code == 2


# What is no text, and what is no number ---------------------------------------------------------------

OTHER = os.fsdecode(b"a\xffb")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", OTHER),
        ("verify", OTHER),
        ("submit", ".", "--test", OTHER),
        ("fix", ".", "--prompt", OTHER),
        ("fix", f"/tmp/{OTHER}"),
    ],
)
def test_arguments_that_are_not_utf8_are_refused_before_anything_happens(
    codepilot: Command, shop: Path, arguments: tuple[str, ...]
) -> None:
    ended = codepilot(*arguments, cwd=shop)
    assert ended.code == 2, ended.err
    assert "a\\xffb' is not UTF-8" in ended.err and "→" in ended.err and "Traceback" not in ended.err
    assert not codepilot.home.exists()
    as_json = codepilot(*arguments, "--json", cwd=shop)
    assert (as_json.code, as_json.json["failure"]["kind"], as_json.err) == (2, "invalid_spec", "")


def test_neither_a_repository_nor_a_home_may_lie_where_the_path_is_not_utf8(
    codepilot: Command, shop: Path, tmp_path: Path
) -> None:
    other = tmp_path / OTHER
    other.mkdir()
    shop.rename(other / "shop")
    for command in ("fix", "submit"):
        ended = codepilot(command, cwd=other / "shop")
        assert (ended.code, "a\\xffb/shop' is not UTF-8" in ended.err) == (2, True), ended.err
    home = codepilot("history", "--json", CODEPILOT_HOME=str(other / "home"))
    assert home.code == 2 and "is not UTF-8" in home.json["failure"]["message"], home.err


@pytest.mark.parametrize(
    "asked",
    [
        *(("gc", "--artifacts", much) for much in ("inf", "1e300", "1e9", "nan")),
        *(("gc", "--days", much) for much in ("inf", "1e300", "nan")),
        *(("worker", "--until-idle", "--stale-after", much) for much in ("inf", "1e300", "nan")),
        ("worker", "--until-idle", "--drain", "inf"),
        ("history", "--limit", "99999999999999999999"),
    ],
)
def test_numbers_that_nothing_can_be_done_with_are_refused(codepilot: Command, asked: tuple[str, ...]) -> None:
    ended = codepilot(*asked)
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert f"'{asked[-2]}'" in ended.err and "less than or equal to" in ended.err


def test_help_needs_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys\nfrom codepilot.cli.app import app\n"
        "heavy = [m for m in ('sqlalchemy', 'pydantic', 'codepilot.engine') if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_list_of_commands_shows_each_summary_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "codepilot", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert [line for line in done.stdout.splitlines()[1:] if line.endswith("...")] == []


def test_help_names_the_exit_codes_of_verdicts() -> None:
    done = subprocess.run([sys.executable, "-m", "codepilot", "prove", "--help"], capture_output=True, text=True)
    assert "0 confirmed, 5 plausible" in " ".join(done.stdout.split())


def test_a_wrong_choice_is_named_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["spec", "nonsense"])
    assert ended.value.code == 2
    assert "Invalid value for 'kind': 'nonsense' is not one of 'bugfix'" in capsys.readouterr().err
