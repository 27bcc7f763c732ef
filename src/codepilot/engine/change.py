"""The change that a run found, to be shown, applied or committed."""

from __future__ import annotations

from contextlib import closing

from codepilot.core.events import BasePinned, BundleWritten, State
from codepilot.core.run import Run
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.runtime import Runtime
from codepilot.workspace import ObjectStore


def patch_of(runtime: Runtime, run: Run) -> bytes:
    """The change of a run as any git can apply it; nothing if it has none."""
    if run.base is None or run.proposal is None or run.proposal.refused_by:
        return b""
    if run.state is not State.DONE:
        return runtime.artifacts.get(run.proposal.diff)
    with closing(changed_objects(runtime, run, run.base)) as objects:
        return objects.patch_for_sha1(run.base.tree, run.proposal.tree)


def changed_objects(runtime: Runtime, run: Run, base: BasePinned) -> ObjectStore:
    """The repository's objects with the changed tree, fetched if the run was finished on another machine."""
    objects = open_objects(runtime.home, base.repo_id)
    if run.proposal is not None and not objects.has_tree(run.proposal.tree):
        fetch_base(runtime, base, objects)
        for event in reversed(runtime.store.events(run.run_id)):
            if isinstance(event.data, BundleWritten) and event.data.tree is not None:
                objects.receive(runtime.artifacts.stream(event.data.tree))
                break
    return objects
