"""A change as a commit on a new branch: one, however often it is made, and nothing else of the user's moves."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from user_repo import Repo, read_state

from codepilot.core.commit import commit_message
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Base, Commit, Entry, ObjectStore, landed_before, pin_base, refuse_branch, write_commit
from codepilot.workspace.trees import EXECUTABLE, FILE, SYMLINK

BRANCH = "codepilot/r-1"
AT = 1_700_000_000_999_999
Wanted = Mapping[str, tuple[str, bytes] | None]


@pytest.fixture
def shop(repo: Repo) -> Repo:
    fill(repo)
    return repo


def fill(repo: Repo) -> None:
    repo.write("shop.py", "a = 1\n")
    repo.write("tool.sh", "true\n", 0o755)
    repo.write("notes/old.txt", "old\n")
    repo.write("notes/deep/gone.txt", "gone\n")
    repo.commit("first")


def changed(objects: ObjectStore, base: Base, wanted: Wanted) -> Commit:
    """The base with these files instead; None deletes one."""
    entries = objects.read_tree(base.tree)
    for path, file in wanted.items():
        entries.pop(path, None)
        if file is not None:
            entries[path] = Entry(file[0], objects.write_blob(file[1]))
    tree = objects.write_tree(entries)
    return Commit(base.commit, base.commit_tree, base.tree, tree, "mend it\n\nRun: r-1\n", AT)


def made(repo: Repo, objects: ObjectStore, wanted: Wanted, branch: str = BRANCH) -> str:
    base = pin_base(repo.path, objects)
    return write_commit(repo.path, objects, changed(objects, base, wanted), branch)


def listed(repo: Repo, commit: str) -> dict[str, tuple[str, str]]:
    rows = [row.split(None, 3) for row in repo.git("ls-tree", "-r", "--full-tree", commit).splitlines()]
    return {path: (mode, oid) for mode, _, oid, path in rows}


def aside(repo: Repo) -> dict[str, object]:
    """All that must stay as it is: files, index, HEAD, stash, configuration and every other branch."""
    git = {
        path: reported
        for path, reported in repo.fingerprint().items()
        if not path.startswith(("objects", "refs/heads", "logs/refs/heads"))
    }
    others = [ref for ref in repo.git("for-each-ref").splitlines() if "codepilot/" not in ref]
    return {**git, **read_state(repo.path), "": others}


def refused(repo: Repo, objects: ObjectStore, wanted: Wanted, branch: str = BRANCH) -> CodePilotError:
    """What forbids a commit; nothing of it may be left behind then."""
    before, refs = aside(repo), repo.git("for-each-ref")
    with pytest.raises(CodePilotError) as reported:
        made(repo, objects, wanted, branch)
    assert (aside(repo), repo.git("for-each-ref")) == (before, refs)
    assert unreachable_commits(repo) == []
    return reported.value


def unreachable_commits(repo: Repo) -> list[str]:
    found = repo.git("fsck", "--unreachable", "--no-reflogs").splitlines()
    return [line for line in found if line.startswith("unreachable commit")]


EVERYTHING: Wanted = {
    "shop.py": (FILE, b"a = 2\r\n\xff"),
    "tool.sh": (FILE, b"true\n"),
    "run.sh": (EXECUTABLE, b"true\n"),
    "new/deep/file.txt": (FILE, b""),
    "new/link": (SYMLINK, b"deep/file.txt"),
    "notes/deep/gone.txt": None,
    "w\xf6rd\n\udcff": (FILE, b"odd\n"),
}


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_one_commit_holds_the_base_with_the_change_and_nothing_else_moves(
    make_repo: Callable[..., Repo], objects: ObjectStore, form: str
) -> None:
    repo = make_repo("formed", f"--object-format={form}")
    fill(repo)
    repo.write("stashed.txt", "later\n")
    repo.git("add", ".")
    repo.git("stash", "-q")
    repo.write("notes/old.txt", "staged\n")
    repo.git("add", ".")
    repo.write("mine.txt", "not yet committed\n")
    base, before = repo.git("rev-parse", "HEAD"), aside(repo)

    commit = made(repo, objects, EVERYTHING)

    assert aside(repo) == before
    assert len(commit) == len(base) == (40 if form == "sha1" else 64)
    assert repo.git("rev-parse", BRANCH, f"{BRANCH}^") == f"{commit}\n{base}"
    rows = repo.git("diff-tree", "-r", "--no-renames", "--name-status", "-z", base, commit).split("\0")
    assert dict(zip(rows[1::2], rows[::2], strict=False)) == {
        "shop.py": "M",
        "tool.sh": "M",
        "run.sh": "A",
        "new/deep/file.txt": "A",
        "new/link": "A",
        "notes/deep/gone.txt": "D",
        "w\xf6rd\n\udcff": "A",
    }
    tree = listed(repo, commit)
    assert [tree[path][0] for path in ("tool.sh", "run.sh", "new/link")] == [FILE, EXECUTABLE, SYMLINK]
    raw = subprocess.run(["git", "show", f"{commit}:shop.py"], cwd=repo.path, capture_output=True, check=True)
    assert raw.stdout == b"a = 2\r\n\xff"
    reported = repo.git("show", "-s", "--format=%an <%ae>|%cn <%ce>|%at|%ct|%B", commit)
    who = "CodePilot <codepilot@localhost>"
    assert reported.strip() == f"{who}|{who}|1700000000|1700000000|mend it\n\nRun: r-1"
    assert repo.git("fsck", "--strict") == ""
    assert unreachable_commits(repo) == []


def test_made_again_it_is_the_same_commit_and_half_made_it_is_completed(shop: Repo, objects: ObjectStore) -> None:
    commit = made(shop, objects, EVERYTHING)
    before, files = aside(shop), shop.fingerprint().keys()
    assert made(shop, objects, EVERYTHING) == commit
    assert (aside(shop), shop.fingerprint().keys()) == (before, files)
    shop.git("branch", "-q", "-D", BRANCH)
    assert made(shop, objects, EVERYTHING) == commit
    assert shop.git("rev-parse", BRANCH) == commit
    shop.git("pack-refs", "--all")
    assert made(shop, objects, EVERYTHING) == commit


def test_a_configuration_that_would_change_the_commit_or_run_something_is_ignored(
    shop: Repo, objects: ObjectStore, tmp_path: Path
) -> None:
    plain = made(shop, objects, EVERYTHING)
    shop.git("branch", "-q", "-D", BRANCH)
    marks = tmp_path / "marks"
    marks.mkdir()
    program = shop.write(".git/mark", f'#!/bin/sh\ntouch "{marks}/$(basename "$0")-$1"\ncat\n', 0o755)
    for hook in ("reference-transaction", "post-index-change", "pre-commit", "post-commit", "commit-msg", "update"):
        shop.write(f".git/hooks/{hook}", program.read_bytes(), 0o755)
    (shop.path / ".git/info/attributes").write_text("* filter=mark text eol=crlf\n")
    for key, value in {
        "core.fsmonitor": str(program),
        "hook.my.mark.command": f"{program} hooked",
        "hook.my.mark.event": "reference-transaction",
        "filter.mark.clean": f"{program} clean",
        "filter.mark.process": f"{program} process",
        "commit.gpgSign": "true",
        "gpg.program": str(program),
        "core.autocrlf": "true",
        "core.splitIndex": "true",
        "core.sparseCheckout": "true",
        "index.sparse": "true",
        "i18n.commitEncoding": "latin1",
        "user.name": "Somebody",
    }.items():
        shop.git("config", key, value)
    shop.write(".git/info/sparse-checkout", "/nothing/\n")
    for left in marks.iterdir():
        left.unlink()
    before = {path for path in shop.fingerprint() if not path.startswith("objects")}

    assert made(shop, objects, EVERYTHING) == plain

    assert list(marks.iterdir()) == []
    new = {path for path in shop.fingerprint() if not path.startswith("objects")} - before
    assert (
        new
        == {
            *("refs/heads/codepilot", f"refs/heads/{BRANCH}"),
            *("logs/refs/heads/codepilot", f"logs/refs/heads/{BRANCH}"),
        }
        - before
    )
    subprocess.run(["git", "branch", "-q", "other"], cwd=shop.path, check=True)
    assert list(marks.iterdir()), "the hooks do leave a mark"


def test_a_branch_that_is_there_or_leaves_no_place_is_refused(shop: Repo, objects: ObjectStore) -> None:
    shop.git("branch", BRANCH)
    error = refused(shop, objects, EVERYTHING)
    assert (error.kind, "another name" in error.failure.advice) == (FailureKind.INVALID_SPEC, True)
    assert f"a branch {BRANCH} already" in str(error)
    for branch, other in (("codepilot", BRANCH), (f"{BRANCH}/more", BRANCH)):
        assert f"a branch {other} already" in str(refused(shop, objects, EVERYTHING, branch))
    mine = made(shop, objects, EVERYTHING, "ours")
    shop.git("update-ref", "refs/heads/ours", shop.git("commit-tree", "-m", "mine", f"{mine}^{{tree}}", "-p", mine))
    assert "a branch ours already" in str(refused(shop, objects, {"shop.py": None}, "ours"))


def test_a_branch_that_head_waits_for_is_refused(shop: Repo, objects: ObjectStore) -> None:
    base = pin_base(shop.path, objects)
    shop.git("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    with pytest.raises(CodePilotError, match="is about to begin the branch"):
        write_commit(shop.path, objects, changed(objects, base, EVERYTHING), BRANCH)
    assert shop.git("for-each-ref", "refs/heads/codepilot") == ""


def test_what_was_not_committed_is_never_committed(shop: Repo, objects: ObjectStore) -> None:
    shop.write("shop.py", "a = 1\nmine = True\n")
    shop.write("fresh.py", "mine = True\n")
    (shop.path / "notes/deep/gone.txt").unlink()
    (shop.path / "notes/deep").rmdir()
    for wanted, path in (
        ({"shop.py": (FILE, b"a = 2\nmine = True\n")}, "shop.py"),
        ({"fresh.py": (FILE, b"b = 2\n")}, "fresh.py"),
        ({"notes/deep": (FILE, b"a file now\n")}, "notes/deep"),
    ):
        error = refused(shop, objects, wanted)  # type: ignore[arg-type]
        assert (error.kind, path in str(error)) == (FailureKind.INVALID_SPEC, True)
        assert "Commit or stash" in error.failure.advice
    commit = made(shop, objects, {"tool.sh": (EXECUTABLE, b"false\n")})
    assert shop.git("diff", "--name-only", f"{commit}^", commit) == "tool.sh"


def test_a_submodule_stays_the_commit_it_is_and_may_not_be_touched(
    shop: Repo, make_repo: Callable[..., Repo], objects: ObjectStore
) -> None:
    inner = make_repo("inner")
    inner.write("lib.py", "x = 1\n")
    inner.commit()
    shop.git("submodule", "add", "-q", str(inner.path), "vendor/inner")
    shop.commit("with a submodule")
    entry = listed(shop, "HEAD")["vendor/inner"]
    commit = made(shop, objects, {"vendor/own.py": (FILE, b"y = 1\n")})
    assert listed(shop, commit)["vendor/inner"] == entry
    assert refused(shop, objects, {"vendor/inner": None}, "other").kind is FailureKind.POLICY_VIOLATION


def test_files_and_directories_may_change_places(shop: Repo, objects: ObjectStore) -> None:
    wanted: Wanted = {
        "shop.py": None,
        "shop.py/inner.py": (FILE, b"1\n"),
        "notes/old.txt": None,
        "notes/deep/gone.txt": None,
        "notes": (FILE, b"2\n"),
    }
    assert set(listed(shop, made(shop, objects, wanted))) == {"tool.sh", "shop.py/inner.py", "notes"}


def test_another_repository_at_the_place_and_none_are_refused(
    shop: Repo, make_repo: Callable[..., Repo], objects: ObjectStore, tmp_path: Path
) -> None:
    wanted = changed(objects, pin_base(shop.path, objects), EVERYTHING)
    empty, other = make_repo("empty"), make_repo("other")
    other.write("shop.py", "something else\n")
    other.commit()
    inside = shop.path / "notes"
    for place in (empty.path, other.path, inside, tmp_path / "nowhere"):
        with pytest.raises(CodePilotError) as reported:
            write_commit(place, objects, wanted, BRANCH)
        assert reported.value.kind is FailureKind.REPO_UNREACHABLE
        assert "codepilot apply RUN --branch" in reported.value.failure.advice
    assert unreachable_commits(other) == []


def test_a_linked_worktree_gives_its_branch_to_the_repository(shop: Repo, objects: ObjectStore, tmp_path: Path) -> None:
    shop.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Repo(tmp_path / "side")
    commit = made(side, objects, EVERYTHING)
    assert shop.git("rev-parse", BRANCH) == commit


def test_a_repository_that_cannot_be_written_is_refused(shop: Repo, objects: ObjectStore) -> None:
    wanted = changed(objects, pin_base(shop.path, objects), EVERYTHING)
    for number in range(256):
        place = shop.path / f".git/objects/{number:02x}"
        if not place.exists():
            place.touch()
    with pytest.raises(CodePilotError, match="cannot write to") as reported:
        write_commit(shop.path, objects, wanted, BRANCH)
    assert reported.value.kind is FailureKind.REPO_UNREACHABLE


def test_a_lock_that_stays_is_reported_in_gits_words(
    shop: Repo, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from codepilot.workspace import commit

    monkeypatch.setattr(commit, "_SETTINGS", ("-c", "core.filesRefLockTimeout=0"))
    shop.write(".git/refs/heads/locked.lock")
    with pytest.raises(CodePilotError, match=r"update-ref cannot write to .*locked\.lock"):
        made(shop, objects, EVERYTHING, "locked")


def test_anyone_who_is_stopped_at_the_last_moment_leaves_no_commit(shop: Repo, objects: ObjectStore) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    base, before = pin_base(shop.path, objects), shop.git("for-each-ref")
    with pytest.raises(KeyboardInterrupt):
        write_commit(shop.path, objects, changed(objects, base, {"shop.py": (FILE, b"a = 2\n")}), BRANCH, stop)
    assert (shop.git("for-each-ref"), unreachable_commits(shop)) == (before, [])


def test_a_branch_that_has_no_place_is_known_beforehand(shop: Repo) -> None:
    shop.git("branch", "codepilot")
    for name in ("codepilot", "codepilot/{run}"):
        with pytest.raises(CodePilotError) as reported:
            refuse_branch(shop.path, name)
        assert reported.value.kind is FailureKind.INVALID_SPEC
        assert "apply" not in reported.value.failure.advice, "there is no run yet"
    refuse_branch(shop.path, "codepilots/{run}")


def test_what_root_commits_belongs_to_whom_the_repository_belongs(objects: ObjectStore) -> None:
    """Where the suite does not run as root, everything is its own anyway."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        repo = Repo(Path(directory) / "theirs")
        repo.path.mkdir()
        repo.git("init", "-q")
        fill(repo)
        owner = 65534 if os.geteuid() == 0 else os.geteuid()
        for path in [repo.path, *repo.path.rglob("*")]:
            os.chown(path, owner, owner if os.geteuid() == 0 else -1, follow_symlinks=False)
        base = pin_base(repo.path, objects)
        write_commit(repo.path, objects, changed(objects, base, EVERYTHING), BRANCH)
        assert {path.lstat().st_uid for path in repo.path.rglob("*")} == {owner}


def test_only_a_commit_of_a_run_says_that_the_run_has_landed(shop: Repo, objects: ObjectStore) -> None:
    """An agent's words are a line of the message; they cannot name another run as landed."""
    first = shop.git("rev-parse", "HEAD").strip()
    for run, said in (("r-1", "Run: r-2"), ("r-3", "done")):
        message = commit_message("mend it", said, run, "confirmed: all well", ["test_a"])
        shop.git("commit", "-q", "--allow-empty", "-m", message)
    shop.git("branch", "fixes")
    last, one = (shop.git("rev-parse", name).strip() for name in ("HEAD", "HEAD^"))
    assert landed_before(shop.path, "fixes", "r-1") == (one, first)
    assert landed_before(shop.path, "fixes", "r-3") == (last, one)
    assert landed_before(shop.path, "fixes", "r-2") is None
