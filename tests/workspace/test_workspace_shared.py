"""Snapshots that travel through one artifact store between the homes of two machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kept_snapshots import fetch, keep

from codepilot.core.artifacts import ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import ArtifactMissing, Artifacts, Home, new_id, open_artifacts
from codepilot.workspace import Entry, ObjectStore, Workspace
from servers import S3Server

State = Callable[[Path], object]
FILES, FILE_BYTES = 200, 20_000


@pytest.fixture(params=["files", "objects"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Artifacts]:
    """Opens the store that both homes share, as each of them would."""
    if request.param == "files":
        return lambda: open_artifacts(tmp_path / "shared", {})
    s3: S3Server = request.getfixturevalue("s3")
    url = f"{s3.url}/tests/{new_id('a')}"
    return lambda: open_artifacts(url, s3.environ)


class Machine:
    """A home with the objects of one repository, and a workspace in it."""

    def __init__(self, path: Path, artifacts: Artifacts) -> None:
        self.home = Home(path).ensure()
        self.objects = ObjectStore.open(self.home.repos / "r.git")
        self.workspace = Workspace(self.home.workspaces / "w", self.objects)
        self.artifacts = artifacts

    @property
    def top(self) -> Path:
        return self.workspace.tree_path


@pytest.fixture
def machines(tmp_path: Path, shared: Callable[[], Artifacts]) -> Iterator[tuple[Machine, Machine, str]]:
    """Two machines that have the same base, which the second got from the first by way of the artifact store."""
    here, there = (Machine(tmp_path / name, shared()) for name in ("here", "there"))
    dice = random.Random(4)
    oids = here.objects.write_blobs(dice.randbytes(FILE_BYTES) for _ in range(FILES))
    base = here.objects.write_tree({f"d{n % 9}/f{n}": Entry("100644", oid) for n, oid in enumerate(oids)})
    carried = here.artifacts.put_stream(here.objects.export(base), ArtifactType.SNAPSHOT)
    assert there.objects.receive(there.artifacts.stream(carried)) == base
    for one in (here, there):
        one.workspace.create(base)
    yield here, there, base
    for one in (here, there):
        one.workspace.close()
        one.objects.close()


def change(top: Path) -> None:
    (top / "d0/f0").write_bytes(b"edited")
    (top / "d1/f1").unlink()
    (top / "new dir/empty").mkdir(parents=True)
    (top / "new dir").chmod(0o750)
    (top / "tool").write_bytes(b"#!/bin/sh\n")
    (top / "tool").chmod(0o711)
    (top / "out").symlink_to("/nowhere")
    (top / "bad\udcfe\n").write_bytes(b"odd")
    (top / "__pycache__").mkdir()
    (top / "__pycache__/x.pyc").write_bytes(b"\0ignored")


def test_a_step_goes_on_elsewhere_from_the_very_same_files(
    machines: tuple[Machine, Machine, str], state: State
) -> None:
    here, there, base = machines
    change(here.top)
    taken, expected = here.workspace.snapshot(), state(here.top)
    ref = keep(here.workspace, here.artifacts, taken.id)
    (there.top / "d2/f2").write_bytes(b"what a failed attempt left behind")
    (there.top / "litter").write_bytes(b"litter")
    there.workspace.restore(fetch(there.workspace, there.artifacts, ref).id)
    assert state(there.top) == expected
    assert there.workspace.snapshot().id == taken.id
    assert there.workspace.diff(base).patch == here.workspace.diff(base).patch
    (there.top / "d3/f3").write_bytes(b"done over there")
    onward, expected = there.workspace.snapshot(), state(there.top)
    back = keep(there.workspace, there.artifacts, onward.id)
    here.workspace.restore(fetch(here.workspace, here.artifacts, back).id)
    assert state(here.top) == expected


def test_a_snapshot_costs_what_differs_from_the_base(machines: tuple[Machine, Machine, str]) -> None:
    here, _, _ = machines
    dice = random.Random(5)
    kept = keep(here.workspace, here.artifacts)
    unchanged = kept.size_bytes
    whole = keep(here.workspace, here.artifacts, whole=True).size_bytes
    (here.top / "d0/f0").write_bytes(dice.randbytes(FILE_BYTES))
    one = keep(here.workspace, here.artifacts)
    (here.top / "d0/f9").write_bytes(dice.randbytes(FILE_BYTES))
    two = keep(here.workspace, here.artifacts)
    assert whole > FILES * FILE_BYTES * 0.9
    listing = unchanged
    assert listing < 40 * FILES * 4
    assert FILE_BYTES < one.size_bytes < listing + FILE_BYTES * 1.2
    assert two.size_bytes - one.size_bytes < FILE_BYTES * 1.2
    assert keep(here.workspace, here.artifacts) == two


def test_what_was_not_kept_or_whose_base_is_not_here_is_reported(
    machines: tuple[Machine, Machine, str], tmp_path: Path
) -> None:
    here, there, base = machines
    change(here.top)
    ref = keep(here.workspace, here.artifacts)
    bare = Machine(tmp_path / "bare", there.artifacts)
    bare.workspace.create(bare.objects.write_tree({}))
    with pytest.raises(CodePilotError) as needing:
        fetch(bare.workspace, bare.artifacts, ref)
    assert needing.value.kind is FailureKind.PATH_NOT_FOUND
    assert needing.value.failure.details["needs"] == base
    with pytest.raises(ArtifactMissing):
        fetch(there.workspace, there.artifacts, ref.model_copy(update={"sha256": "0" * 64}))
    whole = keep(here.workspace, here.artifacts, whole=True)
    bare.workspace.restore(fetch(bare.workspace, bare.artifacts, whole).id)
    assert (bare.top / "d0/f0").read_bytes() == b"edited"
