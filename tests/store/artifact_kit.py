"""Artifact stores to test with, and ways to spoil them behind their back."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from codepilot.core.artifacts import ArtifactRef
from codepilot.store import Artifacts, FileArtifacts
from codepilot.store.objects import TIMEOUT_SEC, Bucket, ObjectArtifacts
from codepilot.telemetry import now_us

BIG = 200 << 20


@dataclass
class Shifted:
    """A clock that a test can put forward."""

    by: int = 0

    def __call__(self) -> int:
        return now_us() + self.by

    def forward(self, span: timedelta) -> None:
        self.by += span // timedelta(microseconds=1)


@dataclass
class Kept:
    """One artifact store of either form."""

    form: Literal["files", "objects"]
    artifacts: Artifacts
    url: str
    environ: Mapping[str, str] = field(default_factory=dict)
    secret: str = ""
    clock: Shifted = field(default_factory=Shifted)
    raw: Any = None

    def names(self) -> list[str]:
        """Everything that lies in the store, whatever made it."""
        if self.form == "files":
            root = Path(self.url)
            return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        import obstore

        return sorted(one["path"] for page in obstore.list(self.raw) for one in page)

    def spoil(self, ref: ArtifactRef, data: bytes) -> None:
        """Put other bytes under its name."""
        self.write(f"sha256/{ref.sha256[:2]}/{ref.sha256}", data)

    def write(self, name: str, data: bytes) -> None:
        if self.form == "files":
            path = Path(self.url, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        else:
            import obstore

            obstore.put(self.raw, name, data)

    def age(self, ref: ArtifactRef, by: timedelta) -> None:
        """Make it look so much older; a server's clock cannot be turned, so there ours goes forward."""
        if self.form == "files":
            then = time.time() - by.total_seconds()
            os.utime(Path(self.url, "sha256", ref.sha256[:2], ref.sha256), (then, then))
        else:
            self.clock.forward(by)
            time.sleep(1.1)

    def modified(self, ref: ArtifactRef) -> int:
        return next(one.modified for one in self.artifacts.stored() if one.sha256 == ref.sha256)


def kept_files(root: Path) -> Kept:
    return Kept("files", FileArtifacts(root), str(root))


def kept_objects(bucket: str, prefix: str, environ: Mapping[str, str], timeout_sec: float = TIMEOUT_SEC) -> Kept:
    from obstore.store import S3Store

    clock = Shifted()
    artifacts = ObjectArtifacts(Bucket.open(bucket, prefix, environ, timeout_sec), clock)
    raw = S3Store(
        bucket,
        prefix=prefix,
        endpoint=environ["AWS_ENDPOINT_URL"],
        access_key_id=environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        client_options={"allow_http": True},
    )
    secret = environ["AWS_SECRET_ACCESS_KEY"]
    return Kept("objects", artifacts, f"s3://{bucket}/{prefix}", environ, secret, clock, raw)
