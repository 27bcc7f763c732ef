"""What an action did that policy forbids, also when its code caught the exception itself."""

from __future__ import annotations

from codepilot.core.events import GuardrailBlocked
from codepilot.executor import CodeResult

MAX_RECORDED = 10
"""How many violations of one action are recorded; policies end a run long before."""


def forbidden(result: CodeResult) -> list[GuardrailBlocked]:
    """One event for each violation the kernel tells of, and one for an error that none of its calls accounts for."""
    told = [call.violation or f"[violation] {call.skill}" for call in result.calls if call.status == "policy_violation"]
    raised = result.error is not None and result.error.type.endswith("PolicyError")
    said = result.error.message if result.error is not None else result.stderr[-200:]
    if (raised and said[:500] not in told) or (result.status == "violation" and not told):
        told.append(said)
    return [_blocked(text) for text in told[:MAX_RECORDED]]


def _blocked(said: str) -> GuardrailBlocked:
    rule, _, attempt = said.partition("] ") if said.startswith("[") else ("violation", "", said)
    return GuardrailBlocked(skill=attempt.partition(":")[0][:100], rule=rule.lstrip("[")[:200], attempt=attempt[:500])
