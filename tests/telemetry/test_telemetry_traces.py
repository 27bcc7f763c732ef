"""Traces: a run as spans, and what a collector receives of a real run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))

from api_kit import make_checkout
from test_telemetry_timeline import Recorded

from codepilot.core.decide import Failed, Succeeded
from codepilot.core.events import EventType, ModelAsked, SkillCall, State, TurnFinished, TurnStarted, Usage
from codepilot.core.failures import Failure, FailureKind
from codepilot.engine import CodePilot, Request
from codepilot.engine.sections import ServiceSection
from codepilot.telemetry import span_names as names
from codepilot.telemetry.spans import spans
from configured import configured
from receiver import receiver

ASKED = (EventType.MODEL_ASKED, ModelAsked(model="m-1", estimate=Usage(tokens=900)))
REPLY = (
    EventType.TURN_STARTED,
    TurnStarted(turn=1, action={}, usage=Usage(turns=1, tokens=30, input_tokens=20, output_tokens=10)),
)
CALLED = (
    EventType.TURN_FINISHED,
    TurnFinished(turn=1, observation={}, calls=(SkillCall(skill="run_command", status="error", duration_ms=7.5),)),
)


def test_a_run_is_a_tree_of_spans() -> None:
    recorded = Recorded()
    recorded.step(3, Succeeded(), ASKED, REPLY, CALLED)
    recorded.step(2, Failed(Failure(kind=FailureKind.INTERNAL, message="broken")))
    run, chat_step, chat, turn, failed = spans(recorded.run, recorded.events)[:5]
    assert (run.parent_id, run.name, run.attributes[names.OPERATION]) == (None, "run bugfix", "invoke_agent")
    assert [one.parent_id for one in (chat_step, failed)] == [run.span_id] * 2
    assert [one.parent_id for one in (chat, turn)] == [chat_step.span_id] * 2
    assert chat_step.name == "step INIT" and chat_step.end - chat_step.start == 3_000_000
    assert (chat.attributes[names.MODEL], chat.attributes[names.INPUT_TOKENS]) == ("m-1", 20)
    assert turn.moments[0].attributes == {
        names.TOOL_NAME: "run_command",
        names.CALL_STATUS: "error",
        names.CALL_MS: 7.5,
    }
    assert (failed.error, failed.attributes[names.STATUS]) == ("internal", "failed")
    again = spans(recorded.run, recorded.events)
    assert [one.span_id for one in again][:5] == [one.span_id for one in (run, chat_step, chat, turn, failed)]
    assert len({one.trace_id for one in again}) == 1


def test_a_child_is_in_the_trace_of_its_parent() -> None:
    recorded = Recorded()
    task = recorded.run.task
    parent = spans(recorded.run, recorded.events)[0]
    child = recorded.run.model_copy(
        update={"run_id": "r-2", "task": task.model_copy(update={"parent_run_id": "r-1", "node_id": "a"})}
    )
    root = spans(child, recorded.events)[0]
    assert (root.trace_id, root.parent_id) == (parent.trace_id, parent.span_id) and root.span_id != parent.span_id


def test_a_collector_receives_a_real_run_once(tmp_path: Path) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with receiver("/v1/traces") as collector:
        settings = configured(
            {"CODEPILOT_HOME": str(tmp_path / "home")}, service={"traces": collector.url.removesuffix("/v1/traces")}
        )
        with CodePilot(settings) as pilot:
            run = pilot.submit(Request(repo=str(make_checkout(tmp_path / "shapes"))))
            assert pilot.work(run.run_id).state is State.DONE
    found = [
        span
        for sent in collector.received
        for resource in ExportTraceServiceRequest.FromString(sent.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {sent.path for sent in collector.received} == {"/v1/traces"}
    (root,) = [span for span in found if not span.parent_span_id]
    values = {one.key: one.value.string_value for one in root.attributes}
    assert (values[names.RUN_ID], values[names.VERDICT]) == (run.run_id, "confirmed")
    steps = [span.name for span in found if span.parent_span_id == root.span_id]
    assert steps[0] == "step INIT" and steps[-1] == "step FINALIZE" and len(steps) == len(set(steps))
    assert root.start_time_unix_nano <= found[1].start_time_unix_nano < root.end_time_unix_nano


def test_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    settings = configured({"CODEPILOT_HOME": str(tmp_path / "home")}, service={"traces": "http://127.0.0.1:9"})
    with CodePilot(settings) as pilot:
        run = pilot.submit(Request(repo=str(make_checkout(tmp_path / "shapes"))))
        assert pilot.cancel(run.run_id).state is State.ABORTED


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_HEADERS"):
        ServiceSection(traces="http://me:secret@collector.example")
