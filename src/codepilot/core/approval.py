"""A person is asked, and answers: what is on record of both."""

from typing import Literal

from pydantic import Field

from codepilot.core.contract import Contract


class ApprovalRequested(Contract):
    """A person is asked whether something may be done. `details` is what exactly: a host, a command, a path."""

    approval_id: str = Field(min_length=1)
    operation: str
    details: str = ""
    risk: Literal["low", "medium", "high"] = "medium"


class ApprovalDecided(Contract):
    """The answer: for this time, for the same operation and details in the whole run, or no."""

    approval_id: str = Field(min_length=1)
    decision: Literal["once", "always", "denied"]
    by: str = "user"
    reason: str = ""


class Approval(Contract):
    """A request and its answer, once there is one."""

    request: ApprovalRequested
    decided: ApprovalDecided | None = None

    def covers(self, asked: ApprovalRequested) -> bool:
        """Whether this answer is also the answer to `asked`."""
        if self.decided is None or self.decided.decision != "always":
            return self.request.approval_id == asked.approval_id
        return (self.request.operation, self.request.details) == (asked.operation, asked.details)


class WaitingFor(Contract):
    """What a blocked run waits for."""

    kind: Literal["approval", "quota", "artifact_store", "person"]
    """An answer to `approval_id`; a provider's quota or the artifact store, until then; or a fix by a person."""
    approval_id: str | None = None
    until: int | None = None
