from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.telemetry import Metrics
from codepilot.telemetry.metrics import MAX_SERIES


def test_the_text_is_what_a_scraper_reads() -> None:
    metrics = Metrics()
    metrics.counter("calls_total", "Calls.", ("skill",)).inc(skill='odd "name"\n\\')
    metrics.gauge("open", "Open ones.").set(2.5)
    seen = metrics.histogram("seconds", "How long.", ("skill",), (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7):
        seen.observe(value, skill="a")
    assert metrics.render() == (
        "# HELP calls_total Calls.\n# TYPE calls_total counter\n"
        'calls_total{skill="odd \\"name\\"\\n\\\\"} 1\n'
        "# HELP open Open ones.\n# TYPE open gauge\nopen 2.5\n"
        "# HELP seconds How long.\n# TYPE seconds histogram\n"
        'seconds_bucket{skill="a",le="0.1"} 2\nseconds_bucket{skill="a",le="1"} 3\n'
        'seconds_bucket{skill="a",le="+Inf"} 4\nseconds_sum{skill="a"} 7.65\nseconds_count{skill="a"} 4\n'
    )


def test_asking_again_gives_the_same_metric_and_another_kind_is_refused() -> None:
    metrics = Metrics()
    assert metrics.counter("a_total") is metrics.counter("a_total")
    for wrong in (lambda: metrics.gauge("a_total"), lambda: metrics.counter("a_total", "", ("x",))):
        with pytest.raises(ValueError, match="already"):
            wrong()


def test_misuse_is_refused() -> None:
    metrics = Metrics()
    for make in (
        lambda: metrics.counter("no name"),
        lambda: metrics.counter("a", "", ("le",)),
        lambda: metrics.counter("a", "", ("__b",)),
        lambda: metrics.histogram("a", buckets=()),
        lambda: metrics.histogram("a", buckets=(2, 1)),
        lambda: metrics.counter("b").inc(-1),
        lambda: metrics.counter("c", "", ("x",)).inc(y="1"),
    ):
        with pytest.raises(ValueError):
            make()


def test_series_are_bounded() -> None:
    metrics = Metrics()
    counter = metrics.counter("a_total", "", ("x",))
    for number in range(MAX_SERIES + 500):
        counter.inc(x=str(number))
    assert len(counter.lines()) == MAX_SERIES + 1
    assert counter.value(x="other") == 500


def test_threads_lose_nothing() -> None:
    metrics = Metrics()
    counter, seen = metrics.counter("a_total"), metrics.histogram("b")

    def work() -> None:
        for _ in range(2_000):
            counter.inc()
            seen.observe(0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counter.value(), seen.count()) == (8_000, 8_000)


@given(st.lists(st.floats(0, 1e6), max_size=30))
def test_buckets_only_grow_and_end_at_the_count(values: list[float]) -> None:
    seen = Metrics().histogram("seconds", "", (), (0.1, 1.0, 10.0))
    for value in values:
        seen.observe(value)
    lines = dict(line.rsplit(" ", 1) for line in seen.lines())
    counts = [int(lines[key]) for key in lines if "bucket" in key]
    assert counts == sorted(counts)
    if values:
        assert counts[-1] == len(values) == int(lines["seconds_count"])
        assert math.isclose(float(lines["seconds_sum"]), math.fsum(values), rel_tol=1e-9)
