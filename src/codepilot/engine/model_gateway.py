"""The model gateway of one step: it adds the user's keys, and every call is charged to the run's budget.

The agent's program and everything that it starts share the gateway, and so one budget.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from codepilot.core.approval import ApprovalNeeded
from codepilot.core.events import BudgetWarned, EventType, ModelAnswered, ModelAsked, Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import paid
from codepilot.core.spending import total, unaffordable
from codepilot.core.task import InteractionMode
from codepilot.engine.approvals import require
from codepilot.models.gateway import CallRefused, Dialect, ModelEndpoint
from codepilot.store import LostLease, new_id

if TYPE_CHECKING:
    from codepilot.engine.work import Work
    from codepilot.models.gateway.server import Gateway

WARN_AT = 0.8
BUDGETS = ("cost_usd", "tokens")
SPENT = "The run's budget is spent"

_log = logging.getLogger(__name__)


class StepGateway:
    """FacadeBase when the step's agent first asks where its model is, closed at the end of the step."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._meter = RunMeter(work)
        self._opening = threading.Lock()
        self._gateway: Gateway | None = None
        self._url = ""

    def endpoint(self, dialect: Dialect) -> ModelEndpoint:
        """Where programs inside the sandbox find models of this dialect."""
        from codepilot.models.gateway.providers import KEY_NAMES, agent_model, upstreams

        settings = self._work.runtime.settings
        served = upstreams(settings.environ, settings.models)
        if all(one.dialect != dialect for one in served):
            variable = KEY_NAMES[dialect][0]
            raise CodePilotError(
                FailureKind.MODEL_AUTH,
                f"The agent asks the {dialect} API, and {variable} is not set.",
                next_action=f"Set {variable} in the environment, or share the agent's own login with"
                ' `[agents.NAME] credentials = "share"`.',
            )
        with self._opening:
            if self._gateway is None:
                from codepilot.models.gateway.server import Gateway

                opened = Gateway(served, self._meter, clean=settings.redact, timeout_sec=settings.models.timeout_sec)
                self._gateway = opened.__enter__()
                work = self._work
                self._url = work.executor.endpoint(work.workspace, "model", str(opened.socket)).url
        url = f"{self._url}/v1" if dialect == "openai" else self._url
        return ModelEndpoint(dialect, url, self._gateway.token, agent_model(dialect, settings.models))

    def active_at(self) -> float:
        """When a call last went on."""
        return self._meter.active_at

    def quota_reset_at(self) -> int | None:
        """When the quota that refused the last call is there again, in microseconds, if the provider said so."""
        return self._meter.quota_reset_at

    def raise_if_refused(self) -> None:
        """Raise the reason why calls are no longer made: a spent budget, or a question to a person."""
        if self._meter.stop is not None:
            raise self._meter.stop

    def close(self) -> None:
        """End the calls in flight; what they used is on record then."""
        self._meter.close()
        if self._gateway is not None:
            self._gateway.close()


class RunMeter:
    """Charges calls to the run of an open step. `stop` is set once calls are refused."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._deciding = threading.Lock()
        self._closed = threading.Event()
        self._warned: set[tuple[str, float]] | None = None
        self.stop: CodePilotError | ApprovalNeeded | None = None
        self.active_at = 0.0
        self.quota_reset_at: int | None = None

    def begin(self, model: str, estimate: Usage) -> ChargedCall:
        """Charge the estimate. A call about which a person is asked waits for the end of the step."""
        self.active_at = time.monotonic()
        try:
            with self._deciding:
                self._require(estimate)
                call = new_id("m-")
                self._work.record(EventType.MODEL_ASKED, ModelAsked(model=model, estimate=paid(estimate), call=call))
        except ApprovalNeeded as needed:
            self.stop = self.stop or needed
            self._closed.wait()
            raise CallRefused("CodePilot asks a person whether the run may spend more.") from None
        except CodePilotError as error:
            self.stop = self.stop or error
            spent = error.kind is FailureKind.BUDGET_EXCEEDED
            raise CallRefused(f"{SPENT}. {error}" if spent else f"CodePilot cannot make the call: {error}") from None
        except LostLease:
            raise CallRefused("Another worker has the run now.") from None
        return ChargedCall(self, call, model, estimate)

    def grow(self, estimate: Usage, used: Usage) -> bool:
        """True if the run can pay for a call that has used so much already."""
        self.active_at = time.monotonic()
        tokens, cost = max(0, used.tokens - estimate.tokens), max(0.0, used.cost_usd - estimate.cost_usd)
        spent = unaffordable(self._work.run, Usage(tokens=tokens, cost_usd=cost))
        if spent is not None:
            self.stop = self.stop or CodePilotError.of(spent)
        return spent is None

    def end(self, call: str, model: str, used: Usage | None) -> None:
        """Charge what the call used in place of its estimate."""
        self.active_at = time.monotonic()
        if used is not None:
            self.quota_reset_at = None
        usage = Usage() if used is None else used.model_copy(update={"turns": 0})
        try:
            self._work.record(EventType.MODEL_ANSWERED, ModelAnswered(call=call, model=model, usage=usage))
        except (CodePilotError, LostLease) as error:
            _log.warning("what a call of %s used is not recorded, its estimate stays charged: %s", model, error)

    def close(self) -> None:
        self._closed.set()

    def _require(self, estimate: Usage) -> None:
        """Raise unless the call can be paid for."""
        if self.stop is not None:
            raise self.stop
        run = self._work.run
        if (spent := unaffordable(run, estimate)) is not None:
            raise CodePilotError.of(spent)
        for name in BUDGETS:
            limit, more = total(run, name), float(getattr(estimate, name))
            used = float(getattr(run.spent, name)) + more
            if more and used >= limit * WARN_AT:
                self._near(name, used, limit)

    def _near(self, name: str, used: float, limit: float) -> None:
        """Warn of a budget's end, and ask whether the run gets it once more. After a denial it goes on to the end."""
        work = self._work
        if self._warned is None:
            known = [event.data for event in work.store.events(work.run.run_id)]
            self._warned = {(one.budget, one.limit) for one in known if isinstance(one, BudgetWarned)}
        if (name, limit) not in self._warned:
            self._warned.add((name, limit))
            work.record(EventType.BUDGET_WARNED, BudgetWarned(budget=name, used=round(used, 6), limit=limit))
        if work.run.task.risk_profile.interaction.mode is InteractionMode.FULL_AUTONOMY:
            return
        amount = f"${limit:g}" if name == "cost_usd" else f"{limit:,.0f} tokens"
        reasons = (f"the next call brings {name} to {used:g} of {limit:g}; an approval grants the budget once more",)
        require(work, "spend", f"more than {amount}", reasons=reasons, occasion=f"{name}={limit:g}")


class ChargedCall:
    """A call whose estimate is charged."""

    def __init__(self, meter: RunMeter, call: str, model: str, estimate: Usage) -> None:
        self._meter = meter
        self._call = call
        self._model = model
        self._estimate = estimate

    def grow(self, used: Usage) -> bool:
        return self._meter.grow(self._estimate, used)

    def quota_is_back(self, at_us: int | None) -> None:
        self._meter.quota_reset_at = at_us

    def end(self, used: Usage | None) -> None:
        self._meter.end(self._call, self._model, used)
