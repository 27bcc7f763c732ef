from __future__ import annotations

import subprocess
import sys

import pytest

from codepilot.telemetry import Metrics
from codepilot.telemetry.metrics import MAX_SERIES


def test_the_text_is_what_a_scraper_reads() -> None:
    metrics = Metrics()
    metrics.counter("calls_total", "Calls.", ("skill",)).inc(skill='odd "name"\n\\')
    metrics.gauge("open", "Open ones.").set(2.5)
    metrics.counter("never_total", "Never counted.")
    seen = metrics.histogram("seconds", "How long.", ("skill",), (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7):
        seen.observe(value, skill="a")
    assert set(metrics.render().splitlines()) == {
        "# HELP calls_total Calls.",
        "# TYPE calls_total counter",
        'calls_total{skill="odd \\"name\\"\\n\\\\"} 1.0',
        "# HELP open Open ones.",
        "# TYPE open gauge",
        "open 2.5",
        "# HELP never_total Never counted.",
        "# TYPE never_total counter",
        "never_total 0.0",
        "# HELP seconds How long.",
        "# TYPE seconds histogram",
        'seconds_bucket{le="0.1",skill="a"} 2.0',
        'seconds_bucket{le="1.0",skill="a"} 3.0',
        'seconds_bucket{le="+Inf",skill="a"} 4.0',
        'seconds_sum{skill="a"} 7.65',
        'seconds_count{skill="a"} 4.0',
    }


def test_declaring_a_metric_again_gives_the_same_one_and_another_kind_is_refused() -> None:
    metrics = Metrics()
    assert metrics.counter("a_total") is metrics.counter("a_total")
    for wrong in (lambda: metrics.gauge("a_total"), lambda: metrics.counter("a_total", "", ("x",))):
        with pytest.raises(ValueError, match="already"):
            wrong()


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(ValueError):
        Metrics().counter("c", "", ("x",)).inc(y="1")


def test_series_are_bounded() -> None:
    metrics = Metrics()
    counter = metrics.counter("a_total", "", ("x",))
    for number in range(MAX_SERIES + 500):
        counter.inc(x=str(number))
    assert metrics.render().count("a_total{") == MAX_SERIES + 1
    assert metrics.value("a_total", x="other") == 500


def test_a_process_that_serves_no_metrics_does_not_import_the_library() -> None:
    script = (
        "import sys; from codepilot.engine import metrics; metrics.SNAPSHOT_SECONDS.observe(1.0);"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
