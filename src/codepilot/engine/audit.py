"""What people were asked and answered, and what the policy decided, read from the events of runs."""

from __future__ import annotations

from typing import Literal

from codepilot.core.access import CredentialKind
from codepilot.core.approval import ApprovalDecided, ApprovalRequested, PolicyDecided, expired
from codepilot.core.contract import Contract
from codepilot.core.events import EnvironmentPrepared, Event, EventType, GuardrailBlocked, NetworkAllowed
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine.control import decide_approval
from codepilot.engine.environment.decisions import recorded_decisions
from codepilot.engine.runtime import Runtime
from codepilot.telemetry import rfc3339

NEWEST_RUNS = 50


class AskedOf(Contract):
    """A request of a run as it stands now."""

    run_id: str
    request: ApprovalRequested
    status: Literal["open", "once", "always", "denied"]
    by: str = ""
    reason: str = ""

    @property
    def id(self) -> str:
        return self.request.approval_id


class AuditEntry(Contract):
    """One line of the audit: what happened, to what, by whom, when and why."""

    at: str
    run_id: str
    """Empty for what is about no run: tokens, sign-ins and `codepilot prepare`."""
    seq: int
    what: Literal["asked", "answered", "policy", "blocked", "network", "installed", "control", "access"]
    decision: str
    """What was asked for, decided or done: `ask`, `once`, `always`, `denied`, `allow`, `sanitise`, `submit` …"""
    operation: str
    subject: str
    by: str
    rule: str = ""
    reason: str = ""
    score: float | None = None


class NoSuchRequest(CodePilotError):
    """A run has no request of that id."""


def requests_of(runtime: Runtime, run_id: str) -> list[AskedOf]:
    """All requests of a run, oldest first. One that expired is denied, also before a worker has recorded that."""
    now = runtime.store.now()
    return [_asked_of(run_id, one.request, one.decided, now) for one in runtime.store.load(run_id).approvals]


def open_requests(runtime: Runtime) -> list[AskedOf]:
    """The requests of all runs that can still be answered."""
    waiting = dict.fromkeys(row.run_id for row in runtime.store.approvals(waiting=True))
    found = [
        one for run_id in waiting if not runtime.store.load(run_id).terminal for one in requests_of(runtime, run_id)
    ]
    return [one for one in found if one.status == "open"]


def answer(
    runtime: Runtime,
    run_id: str,
    decision: Literal["once", "always", "denied"],
    approval_id: str,
    *,
    by: str,
    reason: str,
) -> tuple[AskedOf, Run]:
    """Record an answer, unless there is one; an expired request is denied."""
    asked = _named(requests_of(runtime, run_id), approval_id, run_id)
    decided = ApprovalDecided(approval_id=asked.id, decision=decision, by=by, reason=reason)
    run = decide_approval(runtime, run_id, decided)
    return next(one for one in requests_of(runtime, run_id) if one.id == asked.id), run


def audit(runtime: Runtime, run_id: str | None) -> list[AuditEntry]:
    """The audit of one run, or of the newest runs and of who got access, oldest first."""
    if run_id is not None:
        return _audited(runtime.store.listing.of_types([run_id], _AUDITED))
    runs = [row.run_id for row in runtime.store.history(NEWEST_RUNS)]
    of_runs = _audited(runtime.store.listing.of_types(runs, _AUDITED))
    entries = [*of_runs, *_access(runtime), *_prepared(runtime)]
    return sorted(entries, key=lambda entry: entry.at)


def _access(runtime: Runtime) -> list[AuditEntry]:
    """Tokens that were created and revoked, and sign-ins."""
    credentials = runtime.store.credentials
    entries = []
    for kind, begun, ended in (
        (CredentialKind.TOKEN, "create", "revoke"),
        (CredentialKind.SESSION, "sign in", "sign out"),
    ):
        for one in credentials.of(kind):
            subject = f"{one.scope} until {rfc3339(one.expires_at)[:16].replace('T', ' ')}"
            for at, decision in ((one.created_at, begun), (one.ended_at, ended)):
                if at is not None:
                    facts = {"at": rfc3339(at), "run_id": "", "seq": 0, "what": "access", "decision": decision}
                    about = {"operation": kind.value, "subject": subject, "by": one.name}
                    entries.append(AuditEntry.model_validate({**facts, **about}))
    return entries


def _prepared(runtime: Runtime) -> list[AuditEntry]:
    """The answers about what `codepilot prepare` installs."""
    return [
        AuditEntry(
            at=rfc3339(one.at),
            run_id="",
            seq=0,
            what="answered",
            decision=one.decision,
            operation="install",
            subject=f"{one.subject} of {one.root}",
            by=one.by,
            reason="; ".join(filter(None, (one.reason, f"as {one.key}, from {', '.join(one.hosts) or 'no host'}"))),
        )
        for one in recorded_decisions(runtime.home)
    ]


def _named(asked: list[AskedOf], approval_id: str, run_id: str) -> AskedOf:
    """The request with this id or start of an id; without one the newest open request, else the newest."""
    wanted = approval_id.removeprefix("a-")
    found = [one for one in asked if one.id.removeprefix("a-").startswith(wanted)]
    if wanted and len(found) != 1:
        raise NoSuchRequest(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} has {len(found) or 'no'} request{'s' if len(found) > 1 else ''} {approval_id!r}.",
            next_action=f"`codepilot approvals {run_id}` lists them.",
        )
    if not found:
        raise NoSuchRequest(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} has asked for nothing.",
            next_action="`codepilot approvals` lists what can be answered.",
        )
    return next((one for one in reversed(found) if one.status == "open"), found[-1])


def _asked_of(run_id: str, request: ApprovalRequested, decided: ApprovalDecided | None, now: int) -> AskedOf:
    if decided is None and expired(request, now):
        return AskedOf(run_id=run_id, request=request, status="denied", by="expiry", reason="nobody answered in time")
    if decided is None:
        return AskedOf(run_id=run_id, request=request, status="open")
    return AskedOf(run_id=run_id, request=request, status=decided.decision, by=decided.by, reason=decided.reason)


def _audited(events: list[Event]) -> list[AuditEntry]:
    asked = {
        (event.run_id, event.data.approval_id): event.data
        for event in events
        if isinstance(event.data, ApprovalRequested)
    }
    entries = (_entry(event, asked) for event in events)
    return [entry for entry in entries if entry is not None]


def _entry(event: Event, asked: dict[tuple[str, str], ApprovalRequested]) -> AuditEntry | None:
    def entry(what: str, decision: str, operation: str, subject: str, by: str, **more: object) -> AuditEntry:
        facts = {"at": rfc3339(event.at), "run_id": event.run_id, "seq": event.seq, "what": what, "decision": decision}
        return AuditEntry.model_validate({**facts, "operation": operation, "subject": subject, "by": by, **more})

    match event.data:
        case ApprovalRequested(operation=wanted, details=details, reasons=reasons):
            return entry("asked", "ask", wanted, details, "run", reason="; ".join(reasons))
        case ApprovalDecided(approval_id=name, decision=decision, by=by, reason=reason):
            of = asked.get((event.run_id, name))
            operation, subject = (str(of.operation), of.details) if of else ("", name)
            return entry("answered", decision, operation, subject, by, reason=reason)
        case PolicyDecided(effect=effect, kind=kind, subject=subject, rule=rule, reason=reason, score=score) as made:
            change = f"{subject} → {made.sanitised}" if made.sanitised else subject
            return entry("policy", effect, kind, change, "policy", rule=rule, reason=reason, score=score)
        case GuardrailBlocked(skill=skill, rule=rule, attempt=attempt):
            return entry("blocked", "deny", skill, attempt, "policy", rule=rule)
        case NetworkAllowed(hosts=hosts, by=by, scope=scope):
            return entry("network", "allow", "network", ", ".join(hosts), by, reason=f"for the {scope}")
        case EnvironmentPrepared(packages=packages, files=files, hosts=hosts, key=key):
            reason = f"as {key}, from {', '.join(hosts) or 'no host'}"
            return entry("installed", "allow", "install", " ".join((*files, *packages)), "person", reason=reason)
        case _ if (by := getattr(event.data, "by", NOBODY)) != NOBODY and event.type in _CONTROL:
            return entry("control", _CONTROL[event.type], "run", event.run_id, by)
        case _:
            return None


NOBODY = "user"
"""Who acts where no user is named: the person at this machine."""
_CONTROL = {
    EventType.TASK_SPEC_RECORDED: "submit",
    EventType.PAUSE_REQUESTED: "pause",
    EventType.CANCEL_REQUESTED: "cancel",
    EventType.RUN_RESUMED: "resume",
    EventType.RUN_FORKED: "fork",
    EventType.HUNKS_REVIEWED: "review",
    EventType.PATCH_APPLIED: "apply",
    EventType.LANDING_QUEUED: "land",
}
"""What named users do to a run."""
_AUDITED = (
    *(EventType.APPROVAL_REQUESTED, EventType.APPROVAL_DECIDED, EventType.POLICY_DECIDED),
    *(EventType.GUARDRAIL_BLOCKED, EventType.NETWORK_ALLOWED, EventType.ENVIRONMENT_PREPARED),
    *_CONTROL,
)
