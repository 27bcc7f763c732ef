"""Sets of bugs, run through the engine as any user would, and judged by what the search never sees."""

from codepilot.bench.figures import Figures, by_kind, figure
from codepilot.bench.report import document, write_reports
from codepilot.bench.results import Result
from codepilot.bench.sweep import Sweep, Swept, run_sweep

__all__ = [
    "Figures",
    "Result",
    "Sweep",
    "Swept",
    "by_kind",
    "document",
    "figure",
    "run_sweep",
    "write_reports",
]
