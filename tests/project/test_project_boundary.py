"""What a repository cannot reach by bringing an environment, or by naming an interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from project_kit import ENVIRON, make_venv, run, site_of, statuses, write

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Settings
from codepilot.engine.execution_context import find_project
from codepilot.project import Dependencies, Interpreter, detect, find_interpreter, version_files
from codepilot.project import probe as probe_module
from codepilot.project.detect import survey
from codepilot.project.import_paths import configured_paths
from codepilot.workspace.git import run_git
from levels import level

T = "tests/test_a.py"
PLAIN = {T: "def test_a(): pass\n"}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, with what lies in one."""
    home = tmp_path / "home" / "user"
    write(
        home,
        {
            ".ssh/id_rsa": "secret",
            ".ssh/pyproject.toml": "",
            ".ssh/__init__.py": "",
            ".config/app/setup.py": "",
            ".aws/credentials": "secret",
            ".local/share/codepilot/repos/other.checkout/pyproject.toml": "",
            ".local/share/codepilot/repos/other.checkout/other/__init__.py": "",
            "Documents/letter.txt": "dear",
            "Documents/script.py": "",
            "code/other/pyproject.toml": "",
            "code/other/src/other/__init__.py": "x = 1\n",
            "code/single/setup.py": "",
            "code/single/single.py": "",
            "code/spaces/pyproject.toml": "",
            "code/spaces/src/company/part/__init__.py": "",
        },
    )
    monkeypatch.setenv("HOME", str(home))
    return home


def environ_of(user: Path, **more: str) -> dict[str, str]:
    return {**ENVIRON, "HOME": str(user), **more}


def interpreter(
    root: Path,
    user: Path,
    *,
    python: str | None = None,
    configured: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Interpreter:
    return find_interpreter(root, python=python, configured=configured, environ=environ or environ_of(user))


def refusal(root: Path, user: Path, **choice: Any) -> CodePilotError:
    with pytest.raises(CodePilotError) as caught:
        interpreter(root, user, **choice)
    return caught.value


def shows(found: Interpreter, path: Path) -> bool:
    """Whether anything at or below a path, or anything that holds it, is mounted, by any spelling."""
    mounts = [Path(mount).resolve() for mount in found.mounts]
    return any(path.is_relative_to(mount) or mount.is_relative_to(path) for mount in mounts)


def program(path: Path, ran: Path) -> Path:
    """A program that leaves a trace and says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    path.chmod(0o755)
    return path


HIDDEN = (".ssh", ".config", ".config/app", ".aws", ".local/share/codepilot", ".ssh/id_rsa", ".ssh/__init__.py")
TOO_WIDE = (".", "..", "Documents", "Documents/script.py", "code")


@pytest.mark.parametrize("place", [*HIDDEN, *TOO_WIDE])
def test_an_environment_in_the_repository_cannot_name_what_is_private(user: Path, place: str) -> None:
    root = write(user / "code" / "repo", PLAIN)
    site = site_of(make_venv(root / ".venv"))
    target = user / place
    finder = "__editable___x_1_0_finder"
    write(
        site,
        {
            "plain.pth": f"{target}\n",
            "relative.pth": f"{os.path.relpath(target, site)}\n",
            "old.egg-link": f"{target}\n.\n",
            "finder.pth": f"import {finder}; {finder}.install()\n",
            f"{finder}.py": f"MAPPING = {{'x': {str(target)!r}}}\n",
        },
    )
    found = interpreter(root, user)
    assert found.origin == ".venv"
    mounts = [Path(mount) for mount in found.mounts]
    assert not any(target.resolve().is_relative_to(mount) for mount in mounts)
    assert {mount.relative_to(user).parts[:3] for mount in mounts if mount.is_relative_to(user)} == {
        ("code", "repo", ".venv")
    }


@pytest.mark.parametrize("place", ["/", "/etc", "/etc/ssl", "/var", "/var/lib", "/proc/self", "/home", "/root", "/tmp"])
def test_an_environment_in_the_repository_cannot_name_the_systems_places(user: Path, place: str) -> None:
    root = write(user / "code" / "repo", PLAIN)
    (site_of(make_venv(root / ".venv")) / "x.pth").write_text(f"{place}\n")
    assert place not in interpreter(root, user).mounts


@pytest.mark.parametrize("place", ["/", "/etc", "/var", "/home", "/root", "/tmp", "~", "~/.."])
def test_no_environment_at_all_shows_what_holds_everything(user: Path, place: str, tmp_path: Path) -> None:
    root = write(user / "code" / "repo", PLAIN)
    target = Path(place).expanduser().resolve()
    link = tmp_path / "link"
    link.symlink_to(target)
    home = make_venv(tmp_path / "env")
    (site_of(home) / "x.pth").write_text(f"{target}\n{link}\n")
    mounts = interpreter(root, user, python=str(home)).mounts
    assert str(target) not in mounts
    assert str(link) not in mounts


def test_a_link_in_the_repository_does_not_lead_out_of_it(user: Path) -> None:
    root = write(user / "code" / "repo", PLAIN)
    home = make_venv(root / ".venv")
    (root / "inner").symlink_to(user / ".ssh")
    (home / "inner").symlink_to(user / ".ssh")
    (user / "code/other/keys").symlink_to(user / ".ssh")
    names = (root / "inner", home / "inner", user / "code/other/keys")
    (site_of(home) / "x.pth").write_text("".join(f"{name}\n" for name in names))
    found = interpreter(root, user)
    assert not shows(found, user / ".ssh")
    assert not shows(found, user / "code/other")


@pytest.mark.parametrize(
    "place", ["code/other", "code/other/src", "code/other/src/other", "code/single/single.py", "code/spaces/src"]
)
def test_a_sibling_project_installed_in_place_is_still_shown(user: Path, place: str) -> None:
    root = write(user / "code" / "repo", PLAIN)
    (site_of(make_venv(root / ".venv")) / "x.pth").write_text(f"{user / place}\n")
    assert str(user / place) in interpreter(root, user).mounts


def test_a_sibling_project_is_imported_by_the_tests(user: Path) -> None:
    root = write(user / "code" / "repo", {T: "import other\ndef test_a(): assert other.x == 1\n"})
    (site_of(make_venv(root / ".venv")) / "x.pth").write_text(f"{user}/code/other/src\n")
    project = detect(root, python=None, environ=environ_of(user), inside=str(root))
    assert statuses(run(root, project=project)) == {f"{T}::test_a": "passed"}


def test_packages_of_another_environment_are_still_shared(user: Path) -> None:
    root = write(user / "code" / "repo", PLAIN)
    other = site_of(make_venv(user / "code" / "tool" / ".venv"))
    (site_of(make_venv(root / ".venv", pytest_too=False)) / "x.pth").write_text(f"{other}\n")
    assert str(other) in interpreter(root, user).mounts


def test_an_environment_the_configuration_names_is_judged_alike(user: Path) -> None:
    root = write(user / "code" / "repo", PLAIN)
    home = make_venv(user / "code" / "prepared")
    (site_of(home) / "x.pth").write_text(f"{user}/.ssh\n{user}/code/other/src\n")
    found = interpreter(root, user, configured=str(home))
    assert not shows(found, user / ".ssh")
    assert shows(found, user / "code/other/src")


def test_the_chain_of_links_to_the_interpreter_shows_nothing_else(user: Path) -> None:
    """Read by names alone, this chain passes through a key; the kernel follows it elsewhere."""
    root = write(user / "repo", PLAIN)
    home = make_venv(root / ".venv")
    base = (home / "bin/python").resolve()
    (root / ".ssh").mkdir()
    (root / ".ssh/id_rsa").symlink_to(base)
    (root / "a/b/bin").mkdir(parents=True)
    (root / "a/b/bin/python").symlink_to("../../../.ssh/id_rsa")
    for entry in (home / "bin").iterdir():
        entry.unlink()
    (home / "bin").rmdir()
    (home / "bin").symlink_to(root / "a/b/bin")
    assert not shows(interpreter(root, user), user / ".ssh")


def test_links_that_cannot_be_read_or_followed_are_passed_over(user: Path) -> None:
    root = write(user / "code" / "repo", PLAIN)
    site = site_of(make_venv(root / ".venv"))
    (site / "x.pth").write_bytes(b"a\0b\n" + b"x" * 5000 + b"\n" + b"\xff\n/loop\n")
    (site / "loop.pth").symlink_to("loop.pth")
    os.mkfifo(site / "pipe.pth")
    assert interpreter(root, user).has_pytest


@pytest.mark.parametrize("name", [".venv", "venv"])
def test_an_environment_in_a_clone_is_not_used(user: Path, name: str, tmp_path: Path) -> None:
    for number, environ in enumerate(
        (
            environ_of(user, CODEPILOT_HOME=str(tmp_path / "cp")),
            environ_of(user, XDG_DATA_HOME=str(tmp_path / "xdg")),
            environ_of(user),
        )
    ):
        own = (tmp_path / "cp", tmp_path / "xdg/codepilot", user / ".local/share/codepilot")[number]
        root = write(own / "repos" / "abc.checkout", PLAIN)
        home = make_venv(root / name)
        assert interpreter(root, user, environ=environ).origin == "CodePilot's own"
        active = {**environ, "VIRTUAL_ENV": str(home)}
        assert interpreter(root, user, environ=active).origin == "CodePilot's own"
        for choice in ({"python": str(home)}, {"configured": f"{name}/bin/python"}):
            with pytest.raises(CodePilotError, match="CodePilot keeps"):
                interpreter(root, user, environ=environ, **choice)  # type: ignore[arg-type]


def test_a_configured_path_starts_at_the_repository_alone(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(user / "code" / "repo", PLAIN)
    make_venv(tmp_path / "elsewhere" / "env")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert refusal(root, user, configured="env/bin/python").kind is FailureKind.INVALID_SPEC
    assert interpreter(root, user, python="env/bin/python").prefix == str(tmp_path / "elsewhere/env")
    make_venv(root / "env")
    assert interpreter(root, user, configured="env/bin/python").prefix == str(root / "env")


def test_a_search_path_relative_to_the_process_finds_nothing(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "here" / "python-here", tmp_path / "ran")
    monkeypatch.chdir(tmp_path / "here")
    environ = environ_of(user, PATH=f".:{ENVIRON['PATH']}")
    with pytest.raises(CodePilotError) as caught:
        interpreter(write(user / "repo", PLAIN), user, configured="python-here", environ=environ)
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert not (tmp_path / "ran").exists()


def test_what_is_not_called_python_is_not_run(user: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    tool = program(tmp_path / "bin" / "reboot", ran)
    root = write(user / "repo", {**PLAIN, "copied/pyvenv.cfg": f"base-executable = {user}/repo/tools/python\n"})
    (root / "tools").mkdir()
    (root / "tools/python").symlink_to(tool)
    program(root / "copied/bin/python", ran)
    environ = environ_of(user, PATH=f"{tool.parent}:{ENVIRON['PATH']}")
    for named in (
        str(tool),
        "reboot",
        "tools/python",
        "/proc/self/root" + str(root / "tools/python"),
        "copied/bin/python",
    ):
        for choice in ({"python": named}, {"configured": named}):
            with pytest.raises(CodePilotError, match="no Python") as caught:
                interpreter(root, user, environ=environ, **choice)  # type: ignore[arg-type]
            assert caught.value.kind is FailureKind.ENVIRONMENT_MISSING
    assert not ran.exists()


def test_a_file_in_codepilots_home_is_not_run(user: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    written = program(tmp_path / "cp/workspaces/w/tree/python3", ran)
    root = write(user / "repo", PLAIN)
    link = tmp_path / "python3"
    link.symlink_to(written)
    environ = environ_of(user, CODEPILOT_HOME=str(tmp_path / "cp"))
    for named in (written, link):
        with pytest.raises(CodePilotError, match="never run on the host") as caught:
            interpreter(root, user, python=str(named), environ=environ)
        assert caught.value.kind is FailureKind.ENVIRONMENT_MISSING
    assert not ran.exists()


def test_a_prefix_that_holds_codepilots_home_is_not_shown(user: Path, tmp_path: Path) -> None:
    home = make_venv(tmp_path / "env")
    root = write(user / "repo", PLAIN)
    environ = environ_of(user, CODEPILOT_HOME=str(home / "state" / "codepilot"))
    (home / "state" / "codepilot").mkdir(parents=True)
    assert str(home) not in interpreter(root, user, python=str(home), environ=environ).mounts


class TestARepositorysChoice:
    """A repository's choice of interpreter is never executed, unless it is a system one or one the user named."""

    @pytest.fixture
    def ran(self, tmp_path: Path) -> Path:
        return tmp_path / "ran"

    def test_a_script_next_to_a_submodule_is_refused(self, user: Path, ran: Path) -> None:
        root = write(user / "code" / "outer" / "sub", PLAIN)
        program(root.parent / "tools/python3", ran)
        for named in ("../tools/python3", str(root.parent / "tools/python3"), "~/code/outer/tools/python3"):
            assert "which the repository chose" in str(refusal(root, user, configured=named))
        assert not ran.exists()

    def test_a_tracked_environment_that_links_out_is_refused(self, user: Path, ran: Path) -> None:
        root = write(user / "code" / "outer" / "sub", {**PLAIN, ".venv/pyvenv.cfg": "home = /usr/bin\n"})
        (root / ".venv/bin").mkdir()
        (root / ".venv/bin/python").symlink_to(program(root.parent / "tools/python3", ran))
        assert "which the repository chose" in str(refusal(root, user))
        active = environ_of(user, VIRTUAL_ENV=str(root / ".venv"))
        assert "which the repository chose" in str(refusal(root, user, environ=active))
        assert "which the repository chose" in str(refusal(root, user, python=str(root / ".venv")))
        assert not ran.exists()

    def test_a_copied_environment_whose_settings_name_a_script_is_refused(self, user: Path, ran: Path) -> None:
        tool = program(user / "code/outer/tools/python3", ran)
        for number, line in enumerate((f"base-executable = {tool}", f"home = {tool.parent}", "home = ../../tools")):
            root = write(user / "code" / "outer" / f"sub{number}", {**PLAIN, ".venv/pyvenv.cfg": f"{line}\n"})
            program(root / ".venv/bin/python", ran)
            assert "which the repository chose" in str(refusal(root, user))
        assert not ran.exists()

    def test_a_search_path_that_leads_into_the_checkout_does_not_name_it(self, user: Path, ran: Path) -> None:
        root = write(user / "code" / "repo", PLAIN)
        program(root / "bin/python3", ran)
        environ = environ_of(user, PATH=f"{root}/bin:{ENVIRON['PATH']}")
        assert Path(interpreter(root, user, configured="python3", environ=environ).executable) != root / "bin/python3"
        assert not ran.exists()

    def test_an_interpreter_on_the_users_path_may_be_chosen(self, user: Path, tmp_path: Path) -> None:
        root = write(user / "code" / "repo", PLAIN)
        base = (make_venv(tmp_path / "env") / "bin/python").resolve()
        shims = tmp_path / "shims"
        shims.mkdir()
        (shims / "python3.99").write_text(f'#!/bin/sh\nexec "{base}" "$@"\n')
        (shims / "python3.99").chmod(0o755)
        environ = environ_of(user, PATH=f"{shims}:{ENVIRON['PATH']}")
        assert interpreter(root, user, configured="python3.99", environ=environ).executable == str(base)

    def test_one_that_the_users_own_configuration_names_is_used(self, user: Path, ran: Path) -> None:
        root = write(user / "code" / "repo", PLAIN)
        named = program(user / "tools/python3", ran)
        with pytest.raises(CodePilotError, match="does not answer"):
            find_interpreter(root, python=None, configured=str(named), named_by_user=True, environ=environ_of(user))
        assert ran.exists()

    def test_a_relative_path_in_the_users_configuration_is_still_the_repositorys(self, user: Path, ran: Path) -> None:
        root = write(user / "code" / "outer" / "sub", PLAIN)
        program(root.parent / "tools/python3", ran)
        with pytest.raises(CodePilotError, match="which the repository chose"):
            find_interpreter(
                root, python=None, configured="../tools/python3", named_by_user=True, environ=environ_of(user)
            )
        assert not ran.exists()

    def test_the_chosen_one_is_asked_inside_the_sandbox(self, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root = write(user / "code" / "repo", PLAIN)
        make_venv(root / ".venv")
        level("best")
        probe_module._ask.cache_clear()
        monkeypatch.setattr(probe_module.subprocess, "run", lambda *_, **__: pytest.fail("asked on the host"))
        assert interpreter(root, user).origin == ".venv"
        probe_module._ask.cache_clear()

    def test_files_that_lead_out_of_the_checkout_are_not_opened(self, user: Path, tmp_path: Path) -> None:
        write(
            tmp_path,
            {"outside.py": "import pytest\ndef test_a(): pass\n", "package.json": '{"scripts": {"test": "jest"}}'},
        )
        root = write(user / "code" / "repo", {"README": ""})
        (root / "tests").mkdir()
        (root / "tests/test_a.py").symlink_to(tmp_path / "outside.py")
        (root / "package.json").symlink_to(tmp_path / "package.json")
        with pytest.raises(CodePilotError) as caught:
            detect(root, python=None, environ=environ_of(user), inside=str(root))
        assert caught.value.kind is FailureKind.NO_TEST_RUNNER

    def test_the_engine_tells_the_users_configuration_from_the_repositorys(
        self, user: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tool = program(user / "tools/python3", ran)
        line = f"[project]\npython = {str(tool)!r}\n"
        root = write(user / "code" / "repo", {**PLAIN, "codepilot.toml": line})
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        task = SimpleNamespace(python=None, path="", tests=())
        asked = task, SimpleNamespace(checkout=str(root)), root, SimpleNamespace(remaps=True)
        with pytest.raises(CodePilotError, match="which the repository chose"):
            find_project(*asked, lambda: str(root), Settings.load(), ())  # type: ignore[arg-type]
        assert not ran.exists()
        write(user, {".config/codepilot/codepilot.toml": line})
        with pytest.raises(CodePilotError, match="does not answer"):
            find_project(*asked, lambda: str(root), Settings.load(), ())  # type: ignore[arg-type]

    def test_a_program_in_the_checkout_is_not_run_as_git(
        self, user: Path, ran: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = write(user / "code" / "repo", PLAIN)
        program(root / "git", ran)
        monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
        run_git(["init", "-q"], root / ".git", work_tree=root)
        assert not ran.exists()

    def test_python_m_codepilot_imports_nothing_from_the_checkout(self, user: Path, ran: Path) -> None:
        names = ("json", "typer", "sqlalchemy", "tomllib")
        root = write(user / "code" / "repo", {f"{name}.py": f"open({str(ran)!r}, 'w')\n" for name in names})
        command = [sys.executable, "-m", "codepilot", "--help"]
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
        assert done.returncode == 0
        assert not ran.exists()

    @pytest.mark.parametrize(
        "content",
        ["a = " + "9" * 5000, "a = " + "[" * 5000, "a" + ".a" * 60_000 + " = 1", "a = " + "{a=" * 3000],
        ids=["number", "arrays", "key", "tables"],
    )
    def test_hostile_toml_is_quickly_refused(self, user: Path, content: str) -> None:
        root = write(user / "code" / "repo", {**PLAIN, "pyproject.toml": content, "codepilot.toml": content})
        assert not survey(root).configured
        assert not version_files(root)
        with pytest.raises(CodePilotError) as caught:
            Settings.load(root, {})
        assert caught.value.kind is FailureKind.INVALID_SPEC

    @pytest.mark.parametrize("name", ["environment.yml", ".env", "tox.ini"])
    def test_text_that_some_patterns_would_read_for_hours_is_read_at_once(self, user: Path, name: str) -> None:
        empty = "\n" * 200_000
        content = f"[testenv]\nsetenv =\n    A=1\n{empty}    B=2\n" if name == "tox.ini" else empty
        root = write(user / "code" / "repo", {**PLAIN, name: content})
        began = time.thread_time()
        assert not list(configured_paths(root))
        assert Dependencies(root).facts("nowhere").declared is None
        assert time.thread_time() - began < 5

    def test_a_mistake_in_a_file_of_long_lines_is_found_at_once(self, user: Path) -> None:
        text = f'[project]\nrunner = """\na{" " * 200_000}\n"""\n'
        root = write(user / "code" / "repo", {**PLAIN, "codepilot.toml": text})
        began = time.thread_time()
        with pytest.raises(CodePilotError, match="runner"):
            Settings.load(root, {})
        assert time.thread_time() - began < 5

    def test_a_project_file_that_leads_to_a_device_is_not_read(self, user: Path) -> None:
        root = write(user / "code" / "repo", PLAIN)
        (root / "pyproject.toml").symlink_to("/dev/zero")
        assert not survey(root).configured
        assert not version_files(root)

    def test_a_huge_settings_file_is_refused(self, user: Path) -> None:
        root = write(user / "code" / "repo", {"codepilot.toml": "#" * (1 << 20)})
        with pytest.raises(CodePilotError, match="larger than"):
            Settings.load(root, {})
