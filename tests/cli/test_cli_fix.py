"""`codepilot fix` from the first command to the applied patch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_kit import SHOP, SHOP_TESTS, Command, Repo, git

from codepilot.telemetry import Report


def digest(directory: Path) -> dict[str, str]:
    """Every file below, `.git` included, with what it holds."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.timeout(600)
def test_the_whole_round(codepilot: Command, shop: Path) -> None:
    before = digest(shop)
    named = ("--test", "test_shop.py::ShopTest::test_shipping_is_free_at_the_limit")
    whole = {"CODEPILOT_POLICY_REGRESSION_TEST": "true", "CODEPILOT_POLICY_GENERATED_CODE": "high"}
    ended = codepilot("fix", *named, "--json", cwd=shop, **whole)
    assert ended.code == 0, ended.err
    report = ended.json
    _tells_what_was_done(report)
    assert digest(shop) == before, "the checkout is left alone"
    assert list((codepilot.home / "workspaces").iterdir()) == []
    reported = {command: codepilot(*command.split()) for command in ("show", "logs", "diff", "show --events")}
    for command, ended in reported.items():
        assert (ended.code, ended.err) == (0, ""), command
        assert ended.out
    assert "free" not in reported["diff"].out
    page = codepilot("show", "last", str(shop.parent / "run.html"), "--html")
    assert (page.code, page.out) == (0, f"{shop.parent / 'run.html'}\n"), page.err
    assert codepilot("show", "-", "--html").out == (shop.parent / "run.html").read_text(encoding="utf-8")
    assert "DONE" in codepilot("history").out
    verified = codepilot("verify", report["bundle"])
    assert (verified.code, "holds" in verified.out) == (0, True), verified.err
    _refuses_a_tampered_bundle(codepilot, Path(report["patch"]))
    _refuses_a_file_that_changed_since(codepilot, shop / "shop.py")
    applied = codepilot("apply", "last", "--accept-plausible")
    assert (applied.code, "shop.py" in applied.out) == (0, True), applied.err
    assert git(shop, "status", "--porcelain") == " M shop.py\n M test_shop.py\n"
    green = subprocess.run([sys.executable, "-m", "unittest"], cwd=shop, capture_output=True, check=False)
    assert green.returncode == 0
    again = codepilot("apply", "last", "--accept-plausible")
    assert (again.code, "already" in again.out) == (0, True)
    shutil.rmtree(report["bundle"])
    assert f"no longer at {report['bundle']}" in codepilot("show", "last").out


def test_the_interpreter_may_be_named_by_a_relative_path(codepilot: Command, shop: Path, tmp_path: Path) -> None:
    relative = replace(codepilot, python=os.path.relpath(sys.executable, tmp_path))
    argv = relative.argv("fix", str(shop), "--test", "test_shop.ShopTest.test_bill", "--json")
    ended = subprocess.run(argv, cwd=tmp_path, env=relative.environ, capture_output=True, text=True, timeout=300)
    assert json.loads(ended.stdout)["failure"]["kind"] == "test_already_passes", ended.stdout


def _tells_what_was_done(report: dict[str, Any]) -> None:
    assert list(report) == list(Report.model_fields)
    assert (report["status"], report["failure"], report["base_dirty"]) == ("DONE", None, False)
    assert report["verdict"] == "confirmed"
    assert report["tests_before"]["failed"] == ["test_shop.ShopTest.test_shipping_is_free_at_the_limit"]
    assert (report["tests_after"]["passed"], report["tests_after"]["failed"]) == (5, [])
    assert report["suite"] == "full"
    assert report["regression_test"]["test"] == "test_shop.ShopTest.test_shipping_regression"
    assert "+    if amount >= limit:" in Path(report["patch"]).read_text(encoding="utf-8")
    assert report["workspace"] is None, "a finished run leaves no workspace"


def _refuses_a_tampered_bundle(codepilot: Command, patch: Path) -> None:
    whole = patch.read_bytes()
    patch.write_bytes(whole.replace(b">=", b"> "))
    ended = codepilot("verify", str(patch.parent))
    assert (ended.code, "patch.diff" in ended.err) == (1, True)
    patch.write_bytes(whole)


def _refuses_a_file_that_changed_since(codepilot: Command, file: Path) -> None:
    before = file.read_text(encoding="utf-8")
    file.write_text("# mine\n" + before, encoding="utf-8")
    ended = codepilot("apply", "last", "--accept-plausible")
    assert (ended.code, file.name in ended.err) == (2, True)
    assert file.read_text(encoding="utf-8") == "# mine\n" + before
    file.write_text(before, encoding="utf-8")


@pytest.mark.variants
def test_a_dirty_detached_repository_inside_another_one_without_an_author(codepilot: Command, repo: Repo) -> None:
    outer = repo({"a.txt": "x"}, name="outer")
    checkout = repo({"shop.py": SHOP, "notes.txt": "old"}, name="outer/inner")
    (checkout / "test_shop.py").write_text(SHOP_TESTS, encoding="utf-8")
    (checkout / "notes.txt").unlink()
    git(checkout, "checkout", "-q", "--detach")
    report = codepilot("fix", str(checkout), "--json", HOME=str(outer), GIT_CONFIG_GLOBAL=os.devnull).json
    assert (report["status"], report["base_dirty"]) == ("DONE", True)
    assert codepilot("verify", "last").code == 0


@pytest.mark.variants
def test_odd_paths_encodings_and_line_ends_survive(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"test_shop.py": SHOP_TESTS}, name="my söurces 2")
    (checkout / "shop.py").write_bytes(("# caf\xe9\n" + SHOP).encode("latin-1").replace(b"\n", b"\r\n"))
    content = (checkout / "shop.py").read_bytes()
    (checkout / "shop.py").write_bytes(b"# -*- coding: latin-1 -*-\r\n" + content)
    (checkout / "ünïcode dir").mkdir()
    (checkout / "ünïcode dir" / "da\nta.bin").write_bytes(bytes(range(256)))
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "odd")
    before = (checkout / "shop.py").read_bytes()
    ended = codepilot("fix", str(checkout), "--apply", "--accept-plausible", "--json")
    assert ended.code == 0, ended.out + ended.err
    assert (checkout / "shop.py").read_bytes() == before.replace(b"amount > limit", b"amount >= limit")


@pytest.mark.variants
def test_a_url_is_cloned_and_a_ref_means_that_commit_only(codepilot: Command, shop: Path) -> None:
    (shop / "shop.py").write_text("raise SystemExit\n", encoding="utf-8")
    git(shop, "commit", "-q", "-a", "-m", "break it")
    git(shop, "tag", "broken")
    by_ref = codepilot("submit", str(shop), "--ref", "HEAD~1", "--json")
    base = codepilot("show", by_ref.json["run_id"], "--json").json
    assert (base["base_commit"], base["base_dirty"]) == (git(shop, "rev-parse", "HEAD~1").strip(), False)
    git(shop, "branch", "works", "HEAD~1")
    by_url = codepilot("fix", f"file://{shop}", "--ref", "works", "--json")
    assert (by_url.code, by_url.json["base_dirty"]) == (0, False), by_url.err
    refused = codepilot("apply", by_url.json["run_id"], "--accept-plausible")
    assert (refused.code, "git apply" in refused.err) == (2, True)


def test_apply_refuses_what_is_only_plausible_and_still_tells_the_result(codepilot: Command, repo: Repo) -> None:
    weak = "import unittest\nfrom shop import shipping\n\n\nclass T(unittest.TestCase):\n"
    weak += "    def test_it(self):\n        self.assertEqual(shipping(50), 0)\n"
    checkout = repo({"shop.py": SHOP, "test_shop.py": weak})
    ended = codepilot("fix", str(checkout), "--apply", "--json")
    report = ended.json
    assert (ended.code, report["failure"]["kind"]) == (3, "denied"), ended.out
    assert (report["status"], report["verdict"]) == ("DONE", "plausible")
    assert Path(report["patch"]).exists()
    assert (checkout / "shop.py").read_text(encoding="utf-8") == SHOP


def test_a_bug_that_no_template_mends_is_given_up_honestly(codepilot: Command, repo: Repo) -> None:
    checkout = repo(
        {
            "cipher.py": "def encode():\n    return 1\n",
            "test_cipher.py": "import unittest\nfrom cipher import encode\n\n\nclass T(unittest.TestCase):\n"
            "    def test_it(self):\n        self.assertEqual(encode(), '5d41402abc4b2a76b9719d911017c592')\n",
        }
    )
    ended = codepilot("fix", str(checkout), "--budget", "wall_sec=20", "--json")
    assert ended.code == 1
    report = ended.json
    assert report["status"] in ("FAILED", "ABORTED")
    assert report["failure"]["next_action"]
    assert report["verdict"] is None
    assert (Path(report["bundle"]) / "transcript.jsonl").exists()


@pytest.mark.parametrize("test", ["test_nope", "test_shipping_is_free_at_the_limit"])
def test_what_is_kept_of_a_run_has_no_secret_that_was_typed(codepilot: Command, shop: Path, test: str) -> None:
    token = "ghp_" + "a1" * 18
    asked = (
        "--test",
        f"test_shop.py::ShopTest::{test}",
        "--prompt",
        f'{{"token": "{token}"}} -----BEGIN PRIVATE KEY-----',
    )
    ended = codepilot("fix", str(shop), *asked, "--json")
    assert ended.code == (2 if test == "test_nope" else 0), ended.out + ended.err
    kept = [*Path(ended.json["bundle"]).iterdir(), Path(ended.json["log"])]
    for path in kept:
        assert token not in path.read_text(encoding="utf-8"), path.name
    transcript = Path(ended.json["bundle"], "transcript.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(transcript[-1])["seq"] == len(transcript) > 3
    if ended.code == 0:
        assert codepilot("verify", ended.json["bundle"]).code == 0


@pytest.mark.variants
def test_where_namespaces_are_missing_landlock_confines_the_same_repair(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--json", CODEPILOT_SANDBOX_LEVEL="landlock")
    assert ended.code == 0, ended.out + ended.err
    bundle = Path(ended.json["bundle"])
    assert json.loads((bundle / "provenance.json").read_text(encoding="utf-8"))["sandbox"]["level"] == "landlock"
    assert codepilot("verify", str(bundle), CODEPILOT_SANDBOX_LEVEL="landlock").code == 0


@pytest.mark.variants
def test_without_a_sandbox_only_on_demand_and_the_bundle_says_so(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--unsafe-no-sandbox", "--json")
    assert ended.code == 0, ended.out + ended.err
    provenance = json.loads((Path(ended.json["bundle"]) / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["sandbox"] == {"level": "none", "unsandboxed": True}
