"""Counters, gauges and histograms of this process, and their Prometheus text (exposition format 0.0.4)."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
MAX_SERIES = 1_000
"""A metric keeps this many label sets; what comes after is counted under the label value `other`."""

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Values = tuple[str, ...]


class Metric:
    """One name with its series, one series for each set of label values."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        if not _METRIC_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no metric name")
        for label in labels:
            if not _LABEL_NAME.fullmatch(label) or label == "le":
                raise ValueError(f"{label!r} is no label name")
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._names = frozenset(labels)
        self._lock = threading.Lock()

    def _values(self, given: dict[str, str], known: Collection[Values]) -> Values:
        if given.keys() != self._names:
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(given)}")
        values = tuple(str(given[label]) for label in self.labels)
        if values in known or len(known) < MAX_SERIES:
            return values
        return ("other",) * len(self.labels)

    def lines(self) -> list[str]:
        """The metric's samples, sorted by their labels."""
        raise TypeError(f"{type(self).__name__} is no kind of metric")

    def _sample(self, suffix: str, values: Values, value: float, extra: str = "") -> str:
        pairs = [f'{label}="{_escaped(text)}"' for label, text in zip(self.labels, values, strict=True)]
        inner = ",".join([*pairs, extra] if extra else pairs)
        return f"{self.name}{suffix}{'{' + inner + '}' if inner else ''} {_number(value)}"


class Counter(Metric):
    """Only grows."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self._series: dict[Values, float] = {}

    def inc(self, amount: float = 1.0, /, **labels: str) -> None:
        if amount < 0:
            raise ValueError(f"the counter {self.name} cannot go down")
        with self._lock:
            values = self._values(labels, self._series)
            self._series[values] = self._series.get(values, 0.0) + amount

    def value(self, **labels: str) -> float:
        with self._lock:
            return self._series.get(tuple(labels[label] for label in self.labels), 0.0)

    def lines(self) -> list[str]:
        with self._lock:
            series = sorted(self._series.items())
        if not series and not self.labels:
            series = [((), 0.0)]
        return [self._sample("", values, value) for values, value in series]


class Gauge(Counter):
    """Goes up and down."""

    kind = "gauge"

    def set(self, value: float, /, **labels: str) -> None:
        with self._lock:
            self._series[self._values(labels, self._series)] = float(value)

    def inc(self, amount: float = 1.0, /, **labels: str) -> None:
        with self._lock:
            values = self._values(labels, self._series)
            self._series[values] = self._series.get(values, 0.0) + amount

    def dec(self, amount: float = 1.0, /, **labels: str) -> None:
        self.inc(-amount, **labels)


class Histogram(Metric):
    """How observations spread over buckets; each bucket holds all that are not above its bound."""

    kind = "histogram"

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = BUCKETS) -> None:
        super().__init__(name, help, labels)
        bounds = tuple(float(bound) for bound in buckets if bound != float("inf"))
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"the buckets of {name} must rise")
        self.buckets = bounds
        self._counts: dict[Values, list[int]] = {}
        self._sums: dict[Values, float] = {}

    def observe(self, value: float, /, **labels: str) -> None:
        with self._lock:
            values = self._values(labels, self._counts)
            if values not in self._counts:
                self._counts[values] = [0] * (len(self.buckets) + 1)
                self._sums[values] = 0.0
            self._counts[values][bisect_left(self.buckets, value)] += 1
            self._sums[values] += value

    def count(self, **labels: str) -> int:
        with self._lock:
            return sum(self._counts.get(tuple(labels[label] for label in self.labels), ()))

    def lines(self) -> list[str]:
        with self._lock:
            series = sorted((values, tuple(counts), self._sums[values]) for values, counts in self._counts.items())
        told = []
        for values, counts, total in series:
            seen = 0
            for bound, count in zip((*self.buckets, float("inf")), counts, strict=True):
                seen += count
                told.append(self._sample("_bucket", values, seen, f'le="{_number(bound)}"'))
            told.append(self._sample("_sum", values, total))
            told.append(self._sample("_count", values, seen))
        return told


M = TypeVar("M", bound=Metric)


class Metrics:
    """The metrics there are, by name. Asking for one again gives the same one."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._lock = threading.Lock()

    def counter(self, name: str, help: str = "", labels: Sequence[str] = ()) -> Counter:
        return self._same(Counter(name, help, labels))

    def gauge(self, name: str, help: str = "", labels: Sequence[str] = ()) -> Gauge:
        return self._same(Gauge(name, help, labels))

    def histogram(
        self, name: str, help: str = "", labels: Sequence[str] = (), buckets: Sequence[float] = BUCKETS
    ) -> Histogram:
        return self._same(Histogram(name, help, labels, buckets))

    def render(self) -> str:
        """Everything, as a scraper reads it."""
        with self._lock:
            metrics = sorted(self._metrics.values(), key=lambda metric: metric.name)
        lines: list[str] = []
        for metric in metrics:
            if metric.help:
                lines.append(f"# HELP {metric.name} {_escaped(metric.help, quote=False)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines.extend(metric.lines())
        return "".join(f"{line}\n" for line in lines)

    def _same(self, wanted: M) -> M:
        with self._lock:
            known = self._metrics.setdefault(wanted.name, wanted)
        if type(known) is not type(wanted) or known.labels != wanted.labels:
            raise ValueError(f"{wanted.name} is a {known.kind} with the labels {known.labels} already")
        return known


def _escaped(text: str, quote: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


METRICS = Metrics()
"""What this process counts; `/metrics` shows it."""
