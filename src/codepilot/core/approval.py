"""Approvals: the request to a person, and the answer."""

from typing import Literal

from pydantic import Field

from codepilot.core.contract import Contract


class ApprovalRequested(Contract):
    """A person is asked to allow an operation. `details` is its subject: a host, a command, a path."""

    approval_id: str = Field(min_length=1)
    operation: str
    details: str = ""
    risk: Literal["low", "medium", "high"] = "medium"


class ApprovalDecided(Contract):
    """The answer: `once`, `always` (the same operation and details in this run) or `denied`."""

    approval_id: str = Field(min_length=1)
    decision: Literal["once", "always", "denied"]
    by: str = "user"
    reason: str = ""


class Approval(Contract):
    """A request with its answer, which is None while the request is open."""

    request: ApprovalRequested
    decided: ApprovalDecided | None = None

    def covers(self, asked: ApprovalRequested) -> bool:
        """True if the answer also applies to `asked`."""
        if self.decided is None or self.decided.decision != "always":
            return self.request.approval_id == asked.approval_id
        return (self.request.operation, self.request.details) == (asked.operation, asked.details)


class WaitingFor(Contract):
    """What a blocked run waits for."""

    kind: Literal["approval", "quota", "artifact_store", "person"]
    """`approval`: an answer to `approval_id`; `quota`, `artifact_store`: until `until`; `person`: a fix by hand."""
    approval_id: str | None = None
    until: int | None = None
