"""Environments in every place people keep them, and what the sandbox may see of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from project_kit import ENVIRON, find, make_venv, run, site_of, statuses, write

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.project_settings import ProjectSettings
from codepilot.project import PLUGIN_DIR, check_level, detect

T = "tests/test_a.py"
PLAIN = {T: "def test_a(): pass\n"}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def refusal(root: Path, **choice: str) -> CodePilotError:
    with pytest.raises(CodePilotError) as caught:
        find(root, **choice)  # type: ignore[arg-type]
    return caught.value


def test_an_environment_outside_brings_its_packages(tmp_path: Path) -> None:
    home = make_venv(tmp_path / "envs" / "an env é")
    (site_of(home) / "dependency.py").write_text("answer = 42\n")
    root = write(tmp_path / "repo", {T: "from dependency import answer\ndef test_a(): assert answer == 42\n"})
    project = find(root, environ={**ENVIRON, "VIRTUAL_ENV": str(home)})
    assert project.interpreter.origin == "$VIRTUAL_ENV"
    assert project.interpreter.prefix == str(home)
    assert statuses(run(root, project=project)) == {f"{T}::test_a": "passed"}


def test_an_environment_that_was_activated_by_a_relative_path_is_shown_by_its_own(tmp_path: Path) -> None:
    home, root = make_venv(tmp_path / "env"), write(tmp_path / "repo", PLAIN)
    dotted = f"{tmp_path}/repo/../env"
    assert find(root, environ={**ENVIRON, "VIRTUAL_ENV": dotted}).interpreter.prefix == str(home)


def test_an_editable_install_of_the_project_tests_the_changed_tree(tmp_path: Path) -> None:
    root = write(
        tmp_path / "check out",
        {
            "src/pack/__init__.py": "def f(): return 'checkout'\n",
            T: "import pack, sys\ndef test_a(): assert pack.f() == 'change', pack.__file__\n",
        },
    )
    home = make_venv(root / ".venv")
    (site_of(home) / "_pack.pth").write_text(f"{root}/src\n")
    tree = write(tmp_path / "tree", {"src/pack/__init__.py": "def f(): return 'change'\n", T: (root / T).read_text()})
    project = find(root)
    assert project.interpreter.origin == ".venv"
    assert project.interpreter.editable == (f"{root}/src",)
    assert str(root) not in project.interpreter.mounts
    assert f"{root}/src" not in project.interpreter.mounts
    assert statuses(run(root, tree=tree, project=project)) == {f"{T}::test_a": "passed"}


def test_a_source_layout_works_without_any_install(tmp_path: Path) -> None:
    root = write(tmp_path, {"src/pack/__init__.py": "x = 1\n", T: "import pack\ndef test_a(): assert pack.x == 1\n"})
    assert statuses(run(root)) == {f"{T}::test_a": "passed"}


def test_an_installed_copy_does_not_hide_the_tree(tmp_path: Path) -> None:
    home = make_venv(tmp_path / "env")
    write(site_of(home), {"pack/__init__.py": "x = 'installed'\n"})
    root = write(
        tmp_path / "repo",
        {"src/pack/__init__.py": "x = 'tree'\n", T: "import pack\ndef test_a(): assert pack.x == 'tree'\n"},
    )
    assert statuses(run(root, project=find(root, python=str(home)))) == {f"{T}::test_a": "passed"}


def test_another_package_installed_in_place_is_shown_read_only(tmp_path: Path) -> None:
    home = make_venv(tmp_path / "env")
    write(tmp_path / "other/src", {"other/__init__.py": "", "other/data.txt": "x"})
    write(tmp_path / "third", {"third.py": "", "secret.txt": "s"})
    finder = f"MAPPING: dict[str, str] = {{'third': {str(tmp_path / 'third/third.py')!r}}}\nNAMESPACES = {{}}\n"
    finder += "def install():\n    import sys\n    sys.path.append(__import__('os').path.dirname(MAPPING['third']))\n"
    name = "__editable___third_1_0_finder"
    write(
        site_of(home),
        {
            "other.pth": f"# a comment\n{tmp_path}/other/src\n",
            "third.pth": f"import {name}; {name}.install()\n",
            f"{name}.py": finder,
        },
    )
    root = write(
        tmp_path / "repo",
        {
            T: f"""
                import os, pytest, other, third
                def test_read_only():
                    with pytest.raises(OSError):
                        open(os.path.join(os.path.dirname(other.__file__), "data.txt"), "w")
                def test_no_more_than_needed():
                    assert not os.path.exists({str(tmp_path / "third/secret.txt")!r})
            """
        },
    )
    project = find(root, python=str(home / "bin/python"))
    assert f"{tmp_path}/other/src" in project.interpreter.mounts
    assert set(statuses(run(root, project=project)).values()) == {"passed"}


def test_the_home_directory_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "home" / "user"
    home = make_venv(user / "env")
    (site_of(home) / "greedy.pth").write_text(f"{user}\n{user.parent}\n/\n")
    monkeypatch.setenv("HOME", str(user))
    root = write(user / "repo", PLAIN)
    mounts = [Path(path) for path in find(root, python=str(home)).interpreter.mounts]
    assert not any(user.is_relative_to(path) for path in mounts)
    assert user / "env" in mounts


def test_everything_mounted_exists_and_the_system_is_left_out(tmp_path: Path) -> None:
    project = find(write(tmp_path, PLAIN))
    sources = [Path(source) for source, _ in project.mounts]
    assert all(source == target for source, target in project.mounts)
    assert all(path.exists() and not path.is_relative_to("/usr") for path in sources)
    assert any(PLUGIN_DIR.is_relative_to(path) for path in sources)
    assert any(Path(sys.prefix).is_relative_to(path) for path in sources)


def test_links_on_the_way_to_the_interpreter_are_shown(tmp_path: Path) -> None:
    home = make_venv(tmp_path / "env")
    base = (home / "bin/python").resolve()
    hop = tmp_path / "shims" / "python3"
    hop.parent.mkdir()
    hop.symlink_to(base)
    (home / "bin/python").unlink()
    (home / "bin/python").symlink_to(hop)
    root = write(tmp_path / "repo", PLAIN)
    project = find(root, python=str(home))
    assert str(hop) in project.interpreter.mounts
    assert statuses(run(root, project=project)) == {f"{T}::test_a": "passed"}


def test_the_flag_wins_over_configuration_and_environment(tmp_path: Path) -> None:
    homes = [make_venv(tmp_path / name) for name in ("flag", "configured", "active")]
    root = write(tmp_path / "repo", PLAIN)
    make_venv(root / "venv")
    environ = {**ENVIRON, "VIRTUAL_ENV": str(homes[2])}

    def prefix(flag: str | None, configured: str | None, env: dict[str, str]) -> str:
        settings = ProjectSettings(python=configured)
        return detect(root, python=flag, environ=env, inside=str(root), settings=settings).interpreter.prefix

    assert prefix(str(homes[0]), str(homes[1]), environ) == str(homes[0])
    assert prefix(None, str(homes[1]), environ) == str(homes[1])
    assert prefix(None, None, environ) == str(homes[2])
    assert prefix(None, None, ENVIRON) == str(root / "venv")
    assert prefix("venv/bin/python", None, ENVIRON) == str(root / "venv")


def test_codepilots_own_environment_being_active_says_nothing(tmp_path: Path) -> None:
    root = write(tmp_path / "repo", PLAIN)
    make_venv(root / ".venv")
    assert find(root, environ={**ENVIRON, "VIRTUAL_ENV": sys.prefix}).interpreter.origin == ".venv"


def test_files_of_the_repository_are_never_run_on_the_host(tmp_path: Path) -> None:
    root = write(
        tmp_path / "repo", {**PLAIN, ".venv/pyvenv.cfg": f"home = {tmp_path}/repo/.venv/bin\nversion = 3.11.7\n"}
    )
    ran = tmp_path / "ran"
    for name in (".venv/bin/python", ".venv/bin/python3.11", "tools/python"):
        script(root / name, f"touch '{ran}'")
    assert refusal(root).kind is FailureKind.ENVIRONMENT_MISSING
    assert refusal(root, python=str(root / "tools/python")).kind is FailureKind.ENVIRONMENT_MISSING
    with pytest.raises(CodePilotError):
        settings = ProjectSettings(python="./tools/python")
        detect(root, python=None, environ=ENVIRON, inside=str(root), settings=settings)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo 'no python here' >&2; exit 3", "no python here"),
        ("echo '{}'", "does not answer"),
        (
            """echo '{"executable": "/x", "version": [3, 7, 1], "prefix": "/", "base_prefix": "/", "exec_prefix": "/",
            "path": [], "sites": [], "libdir": "", "has_pytest": true}'""",
            "is Python 3.7.1",
        ),
    ],
)
def test_what_is_no_usable_python_is_refused(tmp_path: Path, text: str, says: str) -> None:
    python = script(tmp_path / "bin dir" / "python", text)
    error = refusal(write(tmp_path / "repo", PLAIN), python=str(python))
    assert error.kind is FailureKind.ENVIRONMENT_MISSING
    assert says in str(error)
    assert str(python) in str(error)


@pytest.mark.parametrize("named", ["no-such-python", "/no/such/python", "tests"])
def test_an_interpreter_that_is_not_there_is_bad_input(tmp_path: Path, named: str) -> None:
    assert refusal(write(tmp_path, PLAIN), python=named).kind is FailureKind.INVALID_SPEC


def test_an_emptied_environment_is_named(tmp_path: Path) -> None:
    root = write(tmp_path, {**PLAIN, ".venv/pyvenv.cfg": "home = /nowhere\n"})
    error = refusal(root)
    assert error.kind is FailureKind.ENVIRONMENT_MISSING
    assert str(root / ".venv") in str(error)


def test_a_level_that_cannot_remap_refuses_an_editable_install(tmp_path: Path) -> None:
    project = find(write(tmp_path, PLAIN))
    project = replace(project, interpreter=replace(project.interpreter, editable=("/checkout/src",)))
    check_level(project, True, "/workspaces/1/tree")
    check_level(project, False, "/checkout")
    with pytest.raises(CodePilotError, match="editable install"):
        check_level(project, False, "/workspaces/1/tree")
