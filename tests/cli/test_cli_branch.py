"""A change that is handed over as a commit, as users ask for it and are told of it."""

from __future__ import annotations

from pathlib import Path

from cli_kit import SHOP, Command, Repo, git

WEAK = """import unittest
from shop import shipping


class T(unittest.TestCase):
    def test_it(self):
        self.assertEqual(shipping(50), 0)
"""


def test_a_confirmed_change_is_committed_to_the_branch_and_told(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--branch", "mend/{run}")
    run_id = codepilot.newest()
    branch = f"mend/{run_id}"
    commit = git(shop, "rev-parse", branch).strip()
    assert ended.code == 0, ended.out + ended.err
    assert f"branch   {branch} at {commit[:12]}" in ended.out
    assert f"committed to {branch} as {commit[:12]}" in ended.out
    assert f"branch   {branch} at {commit[:12]}" in codepilot("show", "last").out
    assert git(shop, "status", "--porcelain") == ""
    assert git(shop, "diff", "--name-only", "HEAD", branch) == "shop.py\n"
    told = codepilot("show", "last", "--json").json["commit"]
    assert told == {"checkout": str(shop), "branch": branch, "commit": commit, "parent": told["parent"]}
    assert codepilot("apply", "last", "--branch", branch, "--json").json == {"schema_version": 1, **told}
    refused = codepilot("apply", "last", "--branch", "main")
    assert (refused.code, "another name" in refused.err) == (2, True)


def test_a_plausible_one_is_not_and_the_output_says_how(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"shop.py": SHOP, "test_shop.py": WEAK})
    ended = codepilot("fix", str(checkout), "--branch", "mend", "--json")
    report = ended.json
    assert (ended.code, report["status"], report["verdict"], report["commit"]) == (3, "DONE", "plausible", None)
    assert report["failure"]["kind"] == "denied"
    how = f"codepilot apply {report['run_id']} --branch mend --accept-plausible"
    assert how in report["failure"]["next_action"]
    assert how in codepilot("show", "last").out
    assert git(checkout, "branch", "--list", "mend") == ""
    done = codepilot(*how.split()[1:])
    commit = git(checkout, "rev-parse", "mend").strip()
    assert (done.code, commit in done.out) == (0, True), done.err
    accepted = codepilot("fix", str(checkout), "--branch", "other", "--accept-plausible", "--json")
    assert (accepted.code, accepted.json["commit"]["branch"], accepted.json["failure"]) == (0, "other", None)


def test_a_branch_that_cannot_be_is_refused_at_once(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"shop.py": SHOP})
    for name, said in (("a..b", "cannot be a branch"), ("main", "a branch main already")):
        ended = codepilot("fix", str(checkout), "--branch", name)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    queued = codepilot("submit", str(checkout), "--branch", "mend/{run}")
    with codepilot.house() as house:
        assert house.store.load(queued.out.strip()).task.branch == "mend/{run}"
