"""Rejected hunks go back: a fork of the reviewed run that continues with the accepted ones and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.artifacts import Review
from codepilot.core.decide import Refused, decide
from codepilot.core.events import Event, EventDraft, EventType, RunResumed
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.review import HunksReviewed
from codepilot.core.run import replay
from codepilot.core.text import counted

KEEP = "A person accepted the rest of the change. The workspace already holds it: keep it as it is."


def sent_back(
    forked: Sequence[EventDraft], run_id: str, record: HunksReviewed, reasons: Sequence[str], now: int
) -> list[EventDraft]:
    """The first events of run `run_id`: those of a fork, the review, and the step that follows from it.

    The person's wish grants the budget once more. Nodes of the plan that changed no file stay succeeded.
    """
    past = replay([_placed(draft, run_id, seq, now) for seq, draft in enumerate(forked, 1)])
    rejected = counted(len(record.of("rejected")), "part")
    failure = Failure(kind=FailureKind.REVIEW_REFUSED, message=f"A person rejected {rejected} of the change.")
    review = Review(
        verdict="REQUEST_CHANGES",
        patch_loc=past.review.patch_loc if past.review else 0,
        policy_checks=past.review.policy_checks if past.review else (),
        reasons=(*reasons, *((KEEP,) if record.tree else ())),
        notes=failure.message,
    )
    drafts = [
        EventDraft(type=kind, data=data, step_id=past.step_id, attempt=past.attempt)
        for kind, data in (
            (EventType.HUNKS_REVIEWED, record),
            (EventType.REVIEW_RECORDED, review),
            (EventType.RUN_RESUMED, RunResumed(granted=True)),
        )
    ]
    events = [_placed(draft, run_id, seq, now) for seq, draft in enumerate([*forked, *drafts], 1)]
    return [*forked, *drafts, *decide(replay(events), Refused(failure), now)]


def _placed(draft: EventDraft, run_id: str, seq: int, at: int) -> Event:
    return Event.placed(draft, event_id=f"{run_id}-{seq}", seq=seq, run_id=run_id, at=at)
