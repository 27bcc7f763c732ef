"""The archive that a sandbox leaves is unpacked without trust."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError
from codepilot.engine.environment.prepare import extract


def endless_header(place: Path) -> None:
    member = tarfile.TarInfo("header")
    member.type, member.size = tarfile.XHDTYPE, 3 << 30
    place.write_bytes(member.tobuf())
    os.truncate(place, 3 << 30)


def pipe(place: Path) -> None:
    os.mkfifo(place)


def link(place: Path) -> None:
    place.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [endless_header, pipe, link])
def test_an_archive_that_would_exhaust_or_block_the_host_is_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "packages.tar")
    with pytest.raises((CodePilotError, OSError)):
        extract(tmp_path / "packages.tar", tmp_path, links=False)


def test_files_are_unpacked_and_links_only_where_they_are_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "b.py").symlink_to("a.py")
    (tmp_path / "out").symlink_to("/etc/passwd")
    with tarfile.open(tmp_path / "packages.tar", "w") as made:
        for name in ("a.py", "b.py", "out"):
            made.add(tmp_path / name, name)
    for links, wanted in ((False, ["a.py"]), (True, ["a.py", "b.py"])):
        (tmp_path / str(links)).mkdir()
        extract(tmp_path / "packages.tar", tmp_path / str(links), links=links)
        assert sorted(one.name for one in (tmp_path / str(links)).iterdir()) == wanted
