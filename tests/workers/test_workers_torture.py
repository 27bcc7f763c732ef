"""A smoke test of `make torture`."""

from __future__ import annotations

from pathlib import Path

from torture import make_torture

from servers import PostgresServer, S3Server


def test_runs_end_as_if_nothing_had_happened_to_their_workers(
    tmp_path: Path, postgres: PostgresServer, s3: S3Server
) -> None:
    torture = make_torture(tmp_path / "torture", postgres, s3, seconds=4, seed=4, runs=2)
    try:
        reported = torture.torment()
    finally:
        torture.deployment.close()
    assert reported.kills >= 1
