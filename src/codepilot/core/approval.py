"""A person is asked, and answers: what is on record of both."""

from typing import Literal

from pydantic import Field

from codepilot.core.contract import Contract


class ApprovalRequested(Contract):
    """A person is asked whether something may be done."""

    approval_id: str = Field(min_length=1)
    operation: str
    details: str = ""
    risk: Literal["low", "medium", "high"] = "medium"


class ApprovalDecided(Contract):
    """What they said: for this time, for the whole run, or no."""

    approval_id: str = Field(min_length=1)
    decision: Literal["once", "always", "denied"]
    by: str = "user"
