"""Sets of bugs, run through the engine as any user would, and judged by what the search never sees."""

from codepilot.bench.report import Figures, by_kind, document, figure, write_reports
from codepilot.bench.results import Result
from codepilot.bench.sweep import BenchResult, BenchSpec, run_sweep

__all__ = [
    "BenchResult",
    "BenchSpec",
    "Figures",
    "Result",
    "by_kind",
    "document",
    "figure",
    "run_sweep",
    "write_reports",
]
