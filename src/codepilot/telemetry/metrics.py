"""Prometheus metrics of this process.

Metrics are declared where they are counted and made by `prometheus_client` in processes that serve them: a command
that nobody scrapes does not import the library.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
MAX_SERIES = 1_000
"""A metric keeps this many label sets; later ones are counted under the label value `other`."""

Kind = Literal["Counter", "Gauge", "Histogram"]


class Metric:
    """A counter, gauge or histogram; does nothing while its registry is disabled."""

    def __init__(self, registry: Metrics, kind: Kind, name: str, help: str, labels: Sequence[str], **more: Any) -> None:
        self.shape = (kind, name, tuple(labels))
        self._registry = registry
        self._made: Any = None
        self._more = {"documentation": help, **more}
        self._series: set[tuple[str, ...]] = set()

    def inc(self, amount: float = 1.0, /, **labels: str) -> None:
        if self._registry.enabled:
            self._child(labels).inc(amount)

    def set(self, value: float, /, **labels: str) -> None:
        if self._registry.enabled:
            self._child(labels).set(value)

    def observe(self, value: float, /, **labels: str) -> None:
        if self._registry.enabled:
            self._child(labels).observe(value)

    def forget(self, **labels: str) -> None:
        """Show a label set no more: what it was about has ended."""
        values = tuple(labels.values())
        if values in self._series:
            self._series.discard(values)
            self.make().remove(*values)

    def make(self) -> Any:
        """The library's metric."""
        import prometheus_client

        kind, name, labels = self.shape
        with self._registry.lock:
            if self._made is None:
                make = getattr(prometheus_client, kind)
                self._made = make(name, labelnames=labels, registry=self._registry.collector, **self._more)
            return self._made

    def _child(self, labels: dict[str, str]) -> Any:
        made, names = self.make(), self.shape[2]
        if not names and not labels:
            return made
        values = tuple(labels.values())
        if values not in self._series:
            if len(self._series) >= MAX_SERIES:
                labels = dict.fromkeys(labels, "other")
            else:
                self._series.add(values)
        return made.labels(**labels)


class Metrics:
    """The metrics of a process by name. Declaring one again gives the same one."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.lock = threading.RLock()
        self._collector: CollectorRegistry | None = None
        self._metrics: dict[str, Metric] = {}

    @property
    def collector(self) -> CollectorRegistry:
        """The library's registry."""
        with self.lock:
            if self._collector is None:
                from prometheus_client import CollectorRegistry, disable_created_metrics

                disable_created_metrics()  # type: ignore[no-untyped-call]
                self._collector = CollectorRegistry()
            return self._collector

    def counter(self, name: str, help: str = "", labels: Sequence[str] = ()) -> Metric:
        return self._declare(Metric(self, "Counter", name, help, labels))

    def gauge(self, name: str, help: str = "", labels: Sequence[str] = ()) -> Metric:
        return self._declare(Metric(self, "Gauge", name, help, labels))

    def histogram(
        self, name: str, help: str = "", labels: Sequence[str] = (), buckets: Sequence[float] = BUCKETS
    ) -> Metric:
        return self._declare(Metric(self, "Histogram", name, help, labels, buckets=buckets))

    def value(self, sample: str, **labels: str) -> float:
        """One sample, as `/metrics` shows it; 0 if there is none."""
        return self.collector.get_sample_value(sample, labels) or 0.0

    def render(self) -> str:
        """All metrics in the text format, those that were never counted included."""
        from prometheus_client import generate_latest

        for metric in sorted(self._metrics.values(), key=lambda metric: metric.shape[1]):
            metric.make()
        return generate_latest(self.collector).decode()

    def _declare(self, wanted: Metric) -> Metric:
        with self.lock:
            known = self._metrics.setdefault(wanted.shape[1], wanted)
        if known.shape != wanted.shape:
            raise ValueError(f"the metric {wanted.shape[1]} is already declared as {known.shape}")
        return known


METRICS = Metrics(enabled=False)
"""The metrics that `/metrics` of this process shows. The server of the page enables them."""
