"""Texts as vectors, by a provider's embedding model. Each text is asked for once and kept in a file."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import ModelSettings
from codepilot.models.choose import make_model
from codepilot.models.connection import Retry

TIMEOUT_SEC = 5.0
MAX_TEXT = 4_000
MAX_BATCH = 100
MAX_KEPT = 50_000
"""Vectors beyond this number are dropped, the oldest first."""

Vector = Sequence[float]


@dataclass(frozen=True)
class Vectors:
    """The vectors of a model, with the file that keeps them."""

    spec: str
    """`openai:NAME` or `openai-compatible:URL#NAME`."""
    kept: Path
    environ: Mapping[str, str]
    settings: ModelSettings
    timeout_sec: float = TIMEOUT_SEC

    def of(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of these texts, in their order; raise if they are not there in time."""
        names = {text: hashlib.sha256(text[:MAX_TEXT].encode("utf-8", "replace")).hexdigest() for text in texts}
        try:
            with closing(sqlite3.connect(self.kept, timeout=1.0)) as database, database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (number INTEGER PRIMARY KEY, model TEXT NOT NULL,"
                    " text TEXT NOT NULL, vector BLOB NOT NULL, UNIQUE (model, text))"
                )
                known = self._known(database, names.values())
                missing = [text for text, name in names.items() if name not in known]
                for text, vector in zip(missing, self._asked(missing), strict=True):
                    known[names[text]] = vector
                    packed = array("f", vector).tobytes()
                    database.execute(
                        "INSERT OR IGNORE INTO vectors (model, text, vector) VALUES (?, ?, ?)",
                        (self.spec, names[text], packed),
                    )
                database.execute(
                    "DELETE FROM vectors WHERE number <= (SELECT max(number) FROM vectors) - ?", (MAX_KEPT,)
                )
        except sqlite3.Error as error:
            raise CodePilotError(
                FailureKind.STORE_UNAVAILABLE, f"The vectors in {self.kept} cannot be read: {error}."
            ) from error
        return [known[names[text]] for text in texts]

    def _known(self, database: sqlite3.Connection, names: Iterable[str]) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        for name in dict.fromkeys(names):
            row = database.execute(
                "SELECT vector FROM vectors WHERE model = ? AND text = ?", (self.spec, name)
            ).fetchone()
            if row is not None:
                vector = array("f")
                vector.frombytes(row[0])
                found[name] = vector
        return found

    def _asked(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        model = make_model(self.spec, environ=self.environ, settings=self.settings, retry=Retry(tries=1))
        embed = getattr(model, "embed", None)
        if embed is None:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{self.spec} gives no embeddings.",
                next_action="Set [memory] embeddings to openai:NAME or openai-compatible:URL#NAME.",
            )
        found: list[Vector] = []
        until = time.monotonic() + self.timeout_sec
        for first in range(0, len(texts), MAX_BATCH):
            batch = [text[:MAX_TEXT] for text in texts[first : first + MAX_BATCH]]
            found += embed(batch, max(0.1, until - time.monotonic()))
        return found


def cosine(ours: Vector, theirs: Vector) -> float:
    """From 0 to 1: how much two vectors point the same way."""
    size = math.sqrt(sum(x * x for x in ours) * sum(y * y for y in theirs))
    return max(0.0, min(1.0, sum(x * y for x, y in zip(ours, theirs, strict=False)) / size)) if size else 0.0
