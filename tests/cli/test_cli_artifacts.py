"""`codepilot artifacts`: what a run's events name, and where its bytes can be read."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cli_kit import Command

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import EventDraft, EventType, SnapshotKept
from codepilot.engine import Runtime
from codepilot.store import new_id
from configured import configured
from servers import S3Server


def submitted(codepilot: Command, shop: Path, **environ: str) -> tuple[str, bytes]:
    """A run whose worker has recorded one artifact and waits, and its bytes."""
    run_id = codepilot("submit", str(shop), **environ).out.strip()
    data = new_id("x").encode()
    with Runtime.open(configured({**codepilot.environ, **environ})) as runtime:
        begun = runtime.store.claim_next("w-one", run_id)
        assert begun is not None
        ref = runtime.artifacts.put(data, ArtifactType.SNAPSHOT)
        kept = SnapshotKept(snapshot="s-1", kept=ref)
        claim = begun.claim
        drafts = [
            EventDraft(
                type=EventType.SNAPSHOT_KEPT, data=kept, step_id=claim.step_id, attempt=claim.attempt, artifacts=(ref,)
            )
        ]
        runtime.store.append(claim, drafts * 2)
    return run_id, data


def test_every_artifact_is_reported_with_its_step_and_its_file(codepilot: Command, shop: Path) -> None:
    run_id, data = submitted(codepilot, shop)
    reported = codepilot("artifacts", run_id, "--json").json
    sha256 = hashlib.sha256(data).hexdigest()
    assert (reported["schema_version"], reported["run_id"], len(reported["artifacts"])) == (1, run_id, 2)
    assert reported["artifacts"][0] == {
        "type": "snapshot",
        "sha256": sha256,
        "size_bytes": len(data),
        "uri": f"hash://snapshot/{sha256}",
        "seq": 5,
        "event": "snapshot_kept",
        "step_id": f"s-{run_id.removeprefix('r-')}-0001",
        "state": "INIT",
        "link": None,
    }
    linked = codepilot("artifacts", "last", "--link", "60", "--json").json["artifacts"]
    assert [Path(one["link"]).read_bytes() for one in linked] == [data, data]
    lines = codepilot("artifacts", run_id, "--link", "60").out.splitlines()
    assert [line.split() for line in lines] == [
        [str(one["seq"]), "snapshot_kept", "INIT", str(len(data)), one["uri"], one["link"]] for one in linked
    ]
    Path(linked[0]["link"]).unlink()
    assert codepilot("artifacts", run_id, "--link", "60").out.count(" gone\n") == 2
    assert codepilot("artifacts", run_id).out.count("\n") == 2


@pytest.mark.variants
def test_a_link_to_a_bucket_is_good_without_a_key(
    codepilot: Command, shop: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    environ = {**s3.environ, "CODEPILOT_ARTIFACTS": f"{s3.url}/{new_id('a')}"}
    run_id, data = submitted(codepilot, shop, **environ)
    reported = codepilot("artifacts", run_id, "--link", "60", "--json", **environ).json
    link, again = (one["link"] for one in reported["artifacts"])
    assert link == again and s3.secret not in link
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.read() == data
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(link.partition("?")[0], timeout=30)


@pytest.mark.parametrize("seconds", ["0", "604801", "soon"])
def test_a_link_lasts_a_week_at_most(codepilot: Command, shop: Path, seconds: str) -> None:
    assert codepilot("artifacts", "last", "--link", seconds).code == 2


def test_a_run_without_any_says_so(codepilot: Command, shop: Path) -> None:
    run_id = codepilot("submit", str(shop)).out.strip()
    assert codepilot("artifacts", run_id).out == "This run has no artifacts.\n"
    assert codepilot("artifacts", "r-none").code == 2
