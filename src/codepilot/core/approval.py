"""Approvals: the request to a person, the answer, and what the policy decides without one."""

from hashlib import sha256
from typing import Literal

from pydantic import Field

from codepilot.core.contract import Contract

Operation = Literal["network", "command", "install", "finding", "path", "spend", "plan"]
OPERATIONS: dict[str, Operation] = {
    "network": "network",
    "command": "command",
    "install": "install",
    "finding": "finding",
    "path": "path",
    "spend": "spend",
    "plan": "plan",
}
Risk = Literal["low", "medium", "high"]
EXPIRY = "expiry"
"""Who denied a request that nobody answered in time."""


class ApprovalRequested(Contract):
    """A person is asked to allow an operation. `details` is its subject: a host, a command, a path."""

    approval_id: str = Field(min_length=1)
    operation: Operation
    details: str = ""
    risk: Risk = "medium"
    reasons: tuple[str, ...] = ()
    """Why it is risky."""
    snippet: str = ""
    """The code or the diff that wants it."""
    expires_at: int | None = None
    """When no answer counts as a denial, by the store's clock."""


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
        """True if the answer also applies to `asked`. A denial holds for the whole run, as `always` does."""
        if self.decided is None or self.decided.decision == "once":
            return self.request.approval_id == asked.approval_id
        return (self.request.operation, self.request.details) == (asked.operation, asked.details)


class PolicyDecided(Contract):
    """The policy changed, refused or asked about an action, or allowed one that it would ask about."""

    effect: Literal["allow", "sanitise", "ask", "deny"]
    kind: str
    subject: str
    sanitised: str = ""
    """What is done in place of the subject."""
    rule: str
    reason: str = ""
    reasons: tuple[str, ...] = ()
    """What the score is made of."""
    score: float = Field(default=0.0, ge=0.0, le=1.0)


class WaitingFor(Contract):
    """What a blocked run waits for."""

    kind: Literal["approval", "quota", "artifact_store", "lock", "person", "children"]
    """`approval`: an answer to `approval_id`; `quota`, `artifact_store`, `lock`: until `until`; `person`: a fix by
    hand; `children`: the end of its child runs."""
    approval_id: str | None = None
    until: int | None = None


class ApprovalNeeded(Exception):
    """A person has to answer before the step can go on."""

    def __init__(self, request: ApprovalRequested) -> None:
        super().__init__(f"A person has to approve: {request.operation} {request.details}".rstrip())
        self.request = request


def approval_id(run_id: str, operation: str, subject: str, occasion: str = "") -> str:
    """The id of a request: a crashed and resumed run asks the same thing under the same id.

    `occasion` tells two requests for the same thing apart, since an answer `once` is for one of them.
    """
    key = "\0".join((run_id, operation, subject, occasion))
    return f"a-{sha256(key.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}"


def expired(request: ApprovalRequested, now: int) -> bool:
    """True if it is too late to answer."""
    return request.expires_at is not None and now >= request.expires_at


def expiry_of(request: ApprovalRequested) -> ApprovalDecided:
    """The denial of a request that nobody answered."""
    return ApprovalDecided(
        approval_id=request.approval_id, decision="denied", by=EXPIRY, reason="nobody answered in time"
    )
