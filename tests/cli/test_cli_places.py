"""What `fix` is pointed at, and `--all`: a nested project with a sibling package and two bugs."""

from __future__ import annotations

from cli_kit import Command, Repo, git

TAX = "def gross(net, rate):\n    if rate > 0:\n        return net - net * rate\n    return net\n"
CLAMP = (
    "def clamp(value, low, high):\n    if value < low:\n        return low\n"
    "    if value > high:\n        return low\n    return value\n"
)
TESTS = """import unittest

from common import clamp, gross


class TotalTest(unittest.TestCase):
    def test_gross(self):
        self.assertEqual(gross(100, 0.5), 150)
        self.assertEqual(gross(10, 0.25), 12.5)

    def test_free_of_tax(self):
        self.assertEqual(gross(7, 0), 7)

    def test_clamp_above(self):
        self.assertEqual(clamp(120, 0, 100), 100)
        self.assertEqual(clamp(101, 0, 100), 100)

    def test_clamp(self):
        self.assertEqual([clamp(5, 0, 100), clamp(-3, 0, 100), clamp(0, 0, 9)], [5, 0, 0])
"""
FILES = {
    "services/api/pyproject.toml": '[project]\nname = "api"\ndependencies = ["common @ file:../../libs/common"]\n',
    "services/api/tests/test_total.py": TESTS,
    "libs/common/pyproject.toml": '[project]\nname = "common"\n',
    "libs/common/src/common.py": f"{TAX}\n\n{CLAMP}",
    "libs/common/tests/test_tax.py": "import unittest\n\n\nclass Tax(unittest.TestCase):\n    pass\n",
}


def test_all_failing_tests_of_a_nested_project_are_repaired(codepilot: Command, repo: Repo) -> None:
    checkout = repo(FILES)
    several = codepilot("fix", str(checkout))
    assert several.code == 2 and "2 projects: libs/common, services/api" in several.err
    assert codepilot("fix", "--all", "--run", "r-x", cwd=checkout).code == 2
    inside = checkout / "services/api/tests"
    done = codepilot("fix", "--all", "--accept-plausible", "--apply", "--json", cwd=inside)
    assert done.code == 0
    tests = [run["tests_before"]["failed"] for run in done.json["runs"]]
    case = "tests.test_total.TotalTest"
    assert tests == [[f"{case}.test_clamp_above", f"{case}.test_gross"], [f"{case}.test_gross"]]
    assert done.json["runs"][-1]["tests_after"]["failed"] == []
    assert git(checkout, "diff", "--stat", "--name-only").split() == ["libs/common/src/common.py"]
    last = codepilot("fix", "test_gross", cwd=inside)
    assert last.code == 2 and "already passes" in last.out


def test_a_project_of_django_inside_another_project_is_what_is_meant(codepilot: Command, repo: Repo) -> None:
    checkout = repo(
        {
            "pyproject.toml": '[project]\nname = "all"\n',
            "test_all.py": "def test_all():\n    assert 1 == 2\n",
            "web/manage.py": "",
            "web/requirements.txt": "no-such-module\n",
            "web/polls/test_votes.py": "import no_such_module\n\n\ndef test_votes():\n    assert 1 == 2\n",
        }
    )
    refused = codepilot("fix", "web", cwd=checkout, CODEPILOT_PROJECT_RUNNER="pytest")
    assert refused.code == 2
    assert "The project declares no-such-module in web/requirements.txt" in refused.out
    assert "Run `codepilot prepare` in web" in refused.out
