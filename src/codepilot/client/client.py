"""The client of a service, with the façade's methods."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx2

from codepilot.client.decoding import activity_of, event_of, row_of
from codepilot.client.http import Http, segment
from codepilot.client.sending import send_task
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.events import Event as RunEvent
from codepilot.core.events import PatchApplied, ProofRecorded, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.interactive import ModeSwitch
from codepilot.core.landing import Landed, LandingEntry, LandingRefused
from codepilot.core.memory import MemoryKind
from codepilot.core.run import Run, evolve, replay
from codepilot.core.task import TaskSpec
from codepilot.engine import Request, Settings
from codepilot.engine.audit import AskedOf, AuditEntry
from codepilot.engine.facade.people import Answer
from codepilot.engine.follower import is_settled
from codepilot.engine.interactive.requests import Asked, Listed
from codepilot.engine.policy_view import Explanation, PolicySetting
from codepilot.store import Activity, ArtifactRow, LockRow, MemoryRow, NotificationRow, RunRow, WorkerRow
from codepilot.telemetry import Analytics, Costs, Feedback, IterationFigures, LogLines, Report, figures

PAGE = 1000
AGAIN_SEC = 1.0


class Client:
    """Submits tasks to a service, follows and controls their runs. Safe to use from any thread.

    A run is named by its id, the beginning of its id or "last", as with `CodePilot`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        settings: Settings | None = None,
        plain_http: bool = False,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`settings` are those of this machine: they complete the tasks that are submitted from here."""
        self.settings = settings or Settings.for_reading()
        self._http = Http(url, token, plain_http=plain_http, transport=transport)
        self._listed: dict[str, str] = {}
        """The statuses of the last list: its caller asks for them next."""

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    shared = True
    """Workers elsewhere take its runs."""
    warning = ""

    # Tasks

    def submit(self, task: Request | TaskSpec, run_id: str | None = None) -> Run:
        """Queue a run of the task; a checkout on this machine is sent along. `run_id` makes it safe to repeat."""
        return self.run(send_task(self._http, self.settings, task, run_id))

    def submit_document(self, document: str, key: str | None = None) -> Run:
        """Queue a run of a task document, whose repository the service can reach."""
        headers = None if key is None else {"Idempotency-Key": key}
        return self.run(self._http.post("/v1/tasks", json.loads(document), headers)["runId"])

    def model_named(self, name: str | None) -> str | None:
        return name

    # Reading

    def find(self, run_id: str) -> str:
        """The whole id of a run."""
        return str(self._http.get(f"/v1/runs/{segment(run_id)}")["runId"])

    def run(self, run_id: str = "last") -> Run:
        return replay(self.events(run_id))

    def runs(self, limit: int = 20) -> list[RunRow]:
        """The newest runs first."""
        found: list[RunRow] = []
        cursor = None
        while len(found) < limit:
            page = self._http.get("/v1/runs", limit=min(200, limit - len(found)), cursor=cursor)
            found += [row_of(one) for one in page["runs"]]
            self._listed |= {one["runId"]: one["status"] for one in page["runs"]}
            cursor = page["nextCursor"]
            if cursor is None:
                break
        return found

    def activities(self, *run_ids: str) -> dict[str, Activity]:
        """Of runs that have neither ended nor wait: whether they are queued, at work, or interrupted."""
        listed, self._listed = self._listed, {}
        found = {
            run_id: listed.get(run_id) or self._http.get(f"/v1/runs/{segment(run_id)}")["status"] for run_id in run_ids
        }
        return {run_id: known for run_id, status in found.items() if (known := activity_of(status)) is not None}

    def events(self, run_id: str = "last", after: int = 0, limit: int | None = None) -> list[RunEvent]:
        """The events of a run so far, those after the number `after`, without secrets."""
        found: list[RunEvent] = []
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self._http.get(f"/v1/runs/{segment(run_id)}/events", after=after, limit=size)
            found += map(event_of, page["events"])
            after = page["lastSeq"]
            if len(page["events"]) < size:
                break
        return found

    def follow(
        self, run_id: str = "last", after: int = 0, *, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[RunEvent]:
        """The events of a run as they are recorded, until it finishes or waits, or until `stop` is true."""
        past = self.events(run_id)
        run = replay(past)
        for event in past:
            if event.seq > after:
                yield event
        while not is_settled(run) and not stop():
            try:
                for number, kind, data in self._http.events(f"/v1/runs/{run.run_id}/events", run.last_seq):
                    if kind in ("end", "draining"):
                        break
                    if number and int(number) > run.last_seq:
                        event = event_of(json.loads(data))
                        run = evolve(run, event)
                        yield event
                    if stop() or is_settled(run):
                        return
            except CodePilotError as error:
                if error.kind is not FailureKind.STORE_UNAVAILABLE:
                    raise
            time.sleep(AGAIN_SEC)

    def log(self, run_id: str = "last", *, follow: bool = False) -> Iterator[str]:
        """The run's log as lines of JSON, without secrets."""
        formatted = LogLines(self.settings.redact)
        for event in self.follow(run_id) if follow else self.events(run_id):
            formatted.learn([event])
            yield formatted.of([event]).decode().removesuffix("\n")

    def report(self, run_id: str = "last") -> Report:
        return Report.model_validate(self._http.get(f"/v1/runs/{segment(run_id)}/report"))

    def feedback(self, run_id: str = "last") -> Feedback:
        return Feedback.model_validate(self._http.get(f"/v1/runs/{segment(run_id)}/feedback"))

    def timeline(self, run_id: str = "last") -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/v1/runs/{segment(run_id)}/timeline")
        return found

    def iterations(self, run_id: str = "last") -> tuple[IterationFigures, ...]:
        found = figures(self.events(run_id))
        return () if found is None else tuple(found.iterations)

    def notifications(self, run_id: str = "last") -> list[NotificationRow]:
        """None: the service sends its own."""
        return []

    def notify(self, run_id: str = "last") -> str:
        """Nothing to do: the service sends its own."""
        return ""

    def check(self, run_id: str = "last") -> None:
        """The events make a run; an error otherwise."""
        self.run(run_id)

    def diff(self, run_id: str = "last", path: str | None = None) -> bytes:
        """The change of a run as a patch for `git apply`; empty if it has none."""
        return self._http.read(f"/v1/runs/{segment(run_id)}/diff", path=path)

    def artifacts(self, run_id: str = "last", link_sec: int | None = None) -> list[tuple[ArtifactRow, str | None]]:
        """The artifacts of a run, each with a link if `link_sec` is given."""
        found = self._http.get(f"/v1/runs/{segment(run_id)}/artifacts", linkSec=link_sec)
        rows: list[tuple[ArtifactRow, str | None]] = []
        for one in found["artifacts"]:
            ref = ArtifactRef(type=one["type"], sha256=one["sha256"], size_bytes=one["sizeBytes"])
            about, link = one["metadata"], one["link"]
            row = ArtifactRow(ref, about["seq"], about["event"], about["stepId"], about["role"])
            whole = f"{self._http.url}{link}" if link and link.startswith("/") else link
            rows.append((row, whole if link_sec is not None else None))
        return rows

    def document(self, run_id: str, name: str) -> bytes:
        """A document of a run by its name: the answer, or the plan, commands or diff of a dry run."""
        wanted = self.run(run_id).documents.get(name)
        place = f"/v1/runs/{segment(run_id)}/artifacts"
        found = self._http.get(place)["artifacts"]
        names = [one["artifactId"] for one in found if wanted is not None and one["sha256"] == wanted.sha256]
        if not names:
            raise CodePilotError(FailureKind.INVALID_SPEC, f"Run {run_id} has no document {name!r} there.")
        return self._http.read(f"{place}/{segment(names[0])}")  # links may lead elsewhere, where the token does not go

    def bundle(self, run_id: str = "last") -> Path:
        """Where `fetch_bundle` puts the bundle of a run."""
        return self.settings.home.bundles / self.find(run_id)

    def fetch_bundle(self, run_id: str = "last") -> None:
        """Bring the bundle of a run here, if it has one."""
        from codepilot.client.sending import unpack_bundle

        run = self.run(run_id)
        if run.bundle is not None and run.state is State.DONE:
            self.settings.home.ensure()
            unpack_bundle(self._http.read(f"/v1/runs/{run.run_id}/bundle"), self.settings.home.bundles, run.run_id)

    def workers(self) -> list[WorkerRow]:
        from codepilot.client.decoding import worker_of

        return [worker_of(one) for one in self._http.get("/v1/workers")["workers"]]

    def locks(self) -> list[LockRow]:
        """The contract locks that runs hold."""
        from codepilot.client.decoding import lock_of

        return [lock_of(one) for one in self._http.get("/v1/locks")["locks"]]

    # Figures

    def analytics(self, newest: int = 200) -> Analytics:
        return Analytics.model_validate(self._http.get("/v1/analytics", newest=newest))

    def costs(self, run_id: str = "last") -> Costs:
        """What a run and the runs that work on parts of its plan used."""
        return Costs.model_validate(self._http.get(f"/v1/runs/{segment(run_id)}/cost"))

    def memory(
        self, kind: MemoryKind, *, repo: str | None = None, language: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        """What runs recorded for later ones, the newest first."""
        from codepilot.client.decoding import memory_of

        found = self._http.get("/v1/memory", kind=kind, repo=repo, language=language, limit=limit)
        return [memory_of(one) for one in found["memories"]]

    def policy(self, repo: None = None) -> list[PolicySetting]:
        """The policy of the service, each value with its source."""
        return [PolicySetting.model_validate(one) for one in self._http.get("/v1/policy")["settings"]]

    def policy_explain(self, words: Sequence[str], repo: None = None, *, kind: str = "command") -> Explanation:
        """What the service's policy decides about an action, and how to change that."""
        return Explanation.model_validate(self._http.get("/v1/policy/explain", subject=list(words), kind=kind))

    # Control

    def pause(self, run_id: str = "last") -> Run:
        return self._control(run_id, "pause")

    def resume(
        self, run_id: str = "last", *, limits: Mapping[str, float] | None = None, mode: ModeSwitch | None = None
    ) -> Run:
        """Let a run go on; `limits` are new values of budgets, `mode` another execution mode or strategy."""
        body: dict[str, object] = {"limits": dict(limits or {})}
        if mode is not None:
            body |= {"executionMode": mode.execution_mode, "strategy": mode.strategy}
        return self._control(run_id, "resume", body)

    def cancel(self, run_id: str) -> Run:
        return self._control(run_id, "cancel")

    def fork(self, run_id: str = "last", at: int | None = None) -> Run:
        return self._control(run_id, "fork", {"at": at})

    def _control(self, run_id: str, verb: str, body: object = None) -> Run:
        return self.run(self._http.post(f"/v1/runs/{segment(run_id)}/{verb}", body)["runId"])

    def verify(
        self,
        bundle: str | Path = "last",
        *,
        repo: Path | None = None,
        python: str | None = None,
        unsafe_no_sandbox: bool = False,
        on_progress: Callable[[str], None] = lambda stage: None,
    ) -> ProofRecorded:
        """Prove a bundle again on this machine; that of a run is brought here first."""
        from codepilot.engine import CodePilot

        place = Path(bundle)
        if not place.exists():
            self.fetch_bundle(str(bundle))
            place = self.bundle(str(bundle))
        with CodePilot(self.settings) as here:
            return here.verify(
                place, repo=repo, python=python, unsafe_no_sandbox=unsafe_no_sandbox, on_progress=on_progress
            )

    def apply(self, run_id: str = "last", *, accept_plausible: bool = False) -> PatchApplied:
        """Write a proved change into the checkout on the service's machine that it was made for."""
        body = {"acceptPlausible": accept_plausible}
        found = self._http.post(f"/v1/runs/{segment(run_id)}/apply", body)
        return PatchApplied(checkout=found["checkout"], files=tuple(found["files"]))

    # Interactive runs

    def checkpoints(self, run_id: str = "last") -> list[Listed]:
        """The checkpoints of a run, oldest first."""
        from codepilot.client.decoding import listed_of

        found = self._http.get(f"/v1/runs/{segment(run_id)}/checkpoints")
        return [listed_of(one) for one in found["checkpoints"]]

    def checkpoint_diff(self, run_id: str, checkpoint: str, *, total: bool = False) -> bytes:
        """The change of a checkpoint since the one before, or since the base, as a patch."""
        path = f"/v1/runs/{segment(run_id)}/checkpoints/{segment(checkpoint)}/diff"
        return self._http.read(path, total="true" if total else None)

    def checkpoint_changes(self, run_id: str, checkpoint: str) -> bytes:
        """Every file change that a checkpoint took, as lines of JSON."""
        return self._http.read(f"/v1/runs/{segment(run_id)}/checkpoints/{segment(checkpoint)}/changes")

    def compare_checkpoints(self, run_id: str, before: str, after: str) -> bytes:
        """The change from one checkpoint to another as a patch; `start` names the base."""
        path = f"/v1/runs/{segment(run_id)}/checkpoints/compare"
        return self._http.read(path, **{"from": before, "to": after})

    def checkpoint(self, run_id: str = "last", *, wait_sec: float = 0.0) -> Asked:
        """Ask for a checkpoint now."""
        return self._ask(run_id, "checkpoint", {}, wait_sec)

    def message(self, run_id: str, text: str, *, when: Literal["now", "turn"] = "now", wait_sec: float = 0.0) -> Asked:
        """Send the agent a message: now, or at the end of its turn."""
        return self._ask(run_id, "message", {"text": text, "when": when}, wait_sec)

    def rollback(
        self,
        run_id: str = "last",
        checkpoint: str | None = None,
        files: Sequence[str] = (),
        *,
        smart: bool = False,
        wait_sec: float = 0.0,
    ) -> Asked:
        """Put files back to a checkpoint."""
        body = {"checkpoint": checkpoint, "files": list(files), "smart": smart}
        return self._ask(run_id, "rollback", body, wait_sec)

    def _ask(self, run_id: str, verb: str, body: object, wait_sec: float) -> Asked:
        from codepilot.client.decoding import asked_in_session

        found = self._http.post(f"/v1/runs/{segment(run_id)}/{verb}?wait={wait_sec:g}", body)
        return asked_in_session(found, self.run(found["runId"]))

    # People

    def approvals(self, run_id: str | None = None) -> list[AskedOf]:
        from codepilot.client.decoding import asked_of

        path = "/v1/approvals" if run_id is None else f"/v1/runs/{segment(run_id)}/approvals"
        return [asked_of(one) for one in self._http.get(path)["approvals"]]

    def decide_approval(
        self, run_id: str, decision: Answer, approval_id: str = "", *, by: str = "user", reason: str = ""
    ) -> tuple[AskedOf, Run]:
        """Answer a request of a run; the service records the token's name as the one who did."""
        from codepilot.client.decoding import asked_of, named

        asked = named(self.approvals(run_id), approval_id, run_id)
        path = f"/v1/runs/{segment(asked.run_id)}/approvals/{segment(asked.id)}"
        answered = asked_of(self._http.post(path, {"decision": decision, "reason": reason}))
        return answered, self.run(asked.run_id)

    def audit(self, run_id: str | None = None) -> list[AuditEntry]:
        found = self._http.get("/v1/audit", run=run_id)
        return [AuditEntry.model_validate(one) for one in found["entries"]]

    def review(
        self,
        run_id: str = "last",
        *,
        accept: Sequence[str] = (),
        reject: Sequence[str] = (),
        reason: str | Mapping[str, str] = "",
        rest: str | None = None,
        again: bool = False,
    ) -> dict[str, Any]:
        """Take a part of a run's change. The runs that this begins are queued on the service."""
        why = {"reason": reason} if isinstance(reason, str) else {"reasons": dict(reason)}
        body = {"accept": list(accept), "reject": list(reject), **why, "rest": rest, "again": again}
        found: dict[str, Any] = self._http.post(f"/v1/runs/{segment(run_id)}/review", body)
        return found

    # Landing

    def landings(self) -> list[LandingEntry]:
        """The changes that wait for a branch in their order, then those that landed or were refused."""
        from codepilot.client.decoding import landing_of

        return [landing_of(one) for one in self._http.get("/v1/landings")["landings"]]

    def queue_landing(self, run_ids: Sequence[str], onto: str, *, accept_plausible: bool = False) -> list[LandingEntry]:
        """Let the changes of these runs wait for a branch of the checkout on the service's machine."""
        from codepilot.client.decoding import landing_of

        body = {"runs": [self.find(one) for one in run_ids], "onto": onto, "acceptPlausible": accept_plausible}
        return [landing_of(one) for one in self._http.post("/v1/landings", body)["landings"]]

    def land(
        self,
        run_ids: Sequence[str],
        onto: str,
        *,
        accept_plausible: bool = False,
        jobs: int | None = None,
        on_progress: Callable[[str], None] = lambda message: None,
        on_outcome: Callable[[str, Landed | LandingRefused], None] = lambda run_id, outcome: None,
    ) -> dict[str, Landed | LandingRefused]:
        """Have the service land these changes, and wait until it has. Its workers judge as many as they can."""
        found: dict[str, Landed | LandingRefused] = {}
        asked = [one.run_id for one in self.queue_landing(run_ids, onto, accept_plausible=accept_plausible)]
        on_progress(f"{len(asked)} in the service's landing queue")
        while True:
            for run_id in asked:
                outcome = self.run(run_id).landing if run_id not in found else None
                if isinstance(outcome, Landed | LandingRefused):
                    found[run_id] = outcome
                    on_outcome(run_id, outcome)
            if len(found) == len(asked):
                return found
            time.sleep(AGAIN_SEC)
