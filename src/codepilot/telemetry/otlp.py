"""Sends traces of runs to an OpenTelemetry collector, in the background. Needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from codepilot.core.events import Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.telemetry import span_names as names
from codepilot.telemetry.spans import Span, spans

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

FLUSH_MS = 5_000
_PATH = "/v1/traces"


class TraceExporter:
    """Exports each run once, when it has ended. A collector that does not answer costs a run nothing."""

    def __init__(self, address: str) -> None:
        """`address` is that of an OTLP receiver over HTTP, for example `http://127.0.0.1:4318`."""
        if find_spec("opentelemetry") is None:
            raise CodePilotError(
                FailureKind.ENVIRONMENT_MISSING,
                "Traces need opentelemetry, which is not installed.",
                "Install it into the same environment: pip install 'codepilot-cli[otel]'",
            )
        self._address = address if address.endswith(_PATH) else address.rstrip("/") + _PATH

    def run_ended(self, run: Run, events: Sequence[Event]) -> None:
        """Hand over the spans of an ended run; they are sent soon, and at `close` at the latest."""
        for one in spans(run, events):
            self._processor.on_end(self._readable(one))

    def close(self) -> None:
        if "_processor" in self.__dict__:
            self._processor.force_flush(FLUSH_MS)
            self._processor.shutdown()  # type: ignore[no-untyped-call]

    @cached_property
    def _processor(self) -> BatchSpanProcessor:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        return BatchSpanProcessor(OTLPSpanExporter(self._address, timeout=FLUSH_MS / 1000))

    @cached_property
    def _resource(self) -> Resource:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource

        from codepilot import __version__

        return Resource.create({SERVICE_NAME: names.SERVICE, "service.version": __version__})

    def _readable(self, one: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event as SpanEvent
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(span_id: int) -> SpanContext:
            return SpanContext(one.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        failed = {names.ERROR: one.error} if one.error else {}
        return ReadableSpan(
            name=one.name,
            context=context(one.span_id),
            parent=None if one.parent_id is None else context(one.parent_id),
            resource=self._resource,
            attributes={**one.attributes, **failed},
            events=[SpanEvent(each.name, dict(each.attributes), each.at * 1000) for each in one.moments],
            kind=SpanKind.CLIENT if one.name.startswith(names.CHAT) else SpanKind.INTERNAL,
            instrumentation_scope=InstrumentationScope(names.SERVICE),
            status=Status(StatusCode.ERROR, one.error) if one.error else Status(StatusCode.OK),
            start_time=one.start * 1000,
            end_time=one.end * 1000,
        )
