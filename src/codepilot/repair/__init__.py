"""Automated program repair without a model: localise, propose, try, rank. Candidates run only inside the sandbox."""

from codepilot.repair.localise import Ages
from codepilot.repair.mutation.score import MutationScore, mutation_score
from codepilot.repair.protocol import Candidate, Progress, SearchRequest, SearchResult
from codepilot.repair.python.backend import PythonBackend
from codepilot.repair.python.obstacles import obstacle
from codepilot.repair.regression.inputs import (
    DistinguishingInputs,
    DistinguishingRequest,
    find_distinguishing_inputs,
    nearby_tests,
)
from codepilot.repair.regression.writer import Unwritable, Written, write_test
from codepilot.repair.search import run_search
from codepilot.repair.spread import FunctionSpread, Spread, Variants, measure_spread

__all__ = [
    "Ages",
    "Candidate",
    "DistinguishingInputs",
    "DistinguishingRequest",
    "FunctionSpread",
    "MutationScore",
    "Progress",
    "SearchRequest",
    "SearchResult",
    "Spread",
    "Unwritable",
    "Variants",
    "Written",
    "find_distinguishing_inputs",
    "measure_spread",
    "mutation_score",
    "nearby_tests",
    "obstacle",
    "search",
    "write_test",
]


def search(request: SearchRequest) -> SearchResult:
    """Candidates that make the targets pass and break nothing they were tried on, best first."""
    return run_search(request, PythonBackend())
