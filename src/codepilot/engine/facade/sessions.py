"""The part of the façade about interactive runs: checkpoints, messages and rollbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from codepilot.engine.facade.base import FacadeBase

if TYPE_CHECKING:
    from codepilot.engine.interactive.requests import Asked, Listed


class Sessions(FacadeBase):
    def checkpoints(self, run_id: str = "last") -> list[Listed]:
        """The checkpoints of a run, oldest first."""
        from codepilot.engine.interactive.requests import checkpoints_of

        return checkpoints_of(self._runtime, self.find(run_id))

    def checkpoint_diff(self, run_id: str, checkpoint: str, *, total: bool = False) -> bytes:
        """The change of a checkpoint since the one before, or since the base, as a patch."""
        from codepilot.engine.interactive.requests import checkpoint_diff

        return checkpoint_diff(self._runtime, self.find(run_id), checkpoint, total=total)

    def checkpoint_changes(self, run_id: str, checkpoint: str) -> bytes:
        """Every file change that a checkpoint took, as lines of JSON."""
        from codepilot.engine.interactive.requests import file_changes

        return file_changes(self._runtime, self.find(run_id), checkpoint)

    def compare_checkpoints(self, run_id: str, before: str, after: str) -> bytes:
        """The change from one checkpoint to another as a patch; `start` names the base."""
        from codepilot.engine.interactive.requests import compare

        return compare(self._runtime, self.find(run_id), before, after)

    def checkpoint(self, run_id: str = "last", *, by: str = "user", wait_sec: float = 0.0) -> Asked:
        """Ask for a checkpoint now."""
        from codepilot.core.checkpoint import SessionRequested
        from codepilot.engine.interactive.requests import ask
        from codepilot.store import new_id

        request = SessionRequested(request_id=new_id("q-"), kind="checkpoint", by=by)
        return ask(self._runtime, self.find(run_id), request, wait_sec)

    def message(
        self,
        run_id: str,
        text: str,
        *,
        when: Literal["now", "turn"] = "now",
        by: str = "user",
        wait_sec: float = 0.0,
    ) -> Asked:
        """Send the agent a message: now, or at the end of its turn."""
        from codepilot.core.checkpoint import SessionRequested
        from codepilot.engine.interactive.requests import ask
        from codepilot.store import new_id

        request = SessionRequested(request_id=new_id("q-"), kind="message", by=by, text=text, when=when)
        return ask(self._runtime, self.find(run_id), request, wait_sec)

    def rollback(
        self,
        run_id: str = "last",
        checkpoint: str | None = None,
        files: Sequence[str] = (),
        *,
        smart: bool = False,
        by: str = "user",
        wait_sec: float = 0.0,
    ) -> Asked:
        """Put files back to a checkpoint, by default to the last valid one before the present state.

        With `files` only those, with `smart` only the files that break a rule. The tree before it is a checkpoint.
        """
        from codepilot.core.checkpoint import SessionRequested
        from codepilot.engine.interactive.requests import ask
        from codepilot.store import new_id

        request = SessionRequested(
            request_id=new_id("q-"), kind="rollback", by=by, checkpoint_id=checkpoint, files=tuple(files), smart=smart
        )
        return ask(self._runtime, self.find(run_id), request, wait_sec)
