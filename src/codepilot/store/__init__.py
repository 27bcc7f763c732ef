"""What is durable: runs, steps, events and artifacts, and the home directory they lie in.

`Store` brings in the database library, which takes longer to import than everything else here; it is loaded
when it is first asked for.
"""

from typing import TYPE_CHECKING

from codepilot.store.artifacts import ArtifactDamaged, ArtifactMissing, Artifacts, open_artifacts
from codepilot.store.files import FileArtifacts
from codepilot.store.home import Home
from codepilot.store.ids import new_id
from codepilot.store.retention import Pruned, prune
from codepilot.store.rows import (
    Activity,
    ArtifactRow,
    Claim,
    ClaimedStep,
    LockRow,
    LostLease,
    MemoryRow,
    NotificationRow,
    Requests,
    RunChange,
    RunFilter,
    RunRow,
    StepRow,
    StepStatus,
    Unreadable,
    WorkerRow,
    Written,
)

if TYPE_CHECKING:
    from codepilot.store.store import Store
else:

    def __getattr__(name: str) -> object:
        if name == "Store":
            from codepilot.store.store import Store

            return Store
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Activity",
    "ArtifactDamaged",
    "ArtifactMissing",
    "ArtifactRow",
    "Artifacts",
    "Claim",
    "ClaimedStep",
    "FileArtifacts",
    "Home",
    "LockRow",
    "LostLease",
    "MemoryRow",
    "NotificationRow",
    "Pruned",
    "Requests",
    "RunChange",
    "RunFilter",
    "RunRow",
    "StepRow",
    "StepStatus",
    "Store",
    "Unreadable",
    "WorkerRow",
    "Written",
    "new_id",
    "open_artifacts",
    "prune",
]
