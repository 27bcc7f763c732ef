"""Automated program repair without a model: localise, propose, try, rank. Candidates run only inside the sandbox."""

from codepilot.repair.localise import Ages
from codepilot.repair.mutation.score import MutationScore, mutation_score
from codepilot.repair.protocol import Candidate, Progress, SearchRequest, SearchResult
from codepilot.repair.python.backend import PythonBackend
from codepilot.repair.regression.inputs import Witnesses, WitnessRequest, find_witnesses, nearby_tests
from codepilot.repair.regression.writer import Unwritable, Written, write_test
from codepilot.repair.search import run_search

__all__ = [
    "Ages",
    "Candidate",
    "MutationScore",
    "Progress",
    "SearchRequest",
    "SearchResult",
    "Unwritable",
    "WitnessRequest",
    "Witnesses",
    "Written",
    "find_witnesses",
    "mutation_score",
    "nearby_tests",
    "search",
    "write_test",
]


def search(request: SearchRequest) -> SearchResult:
    """Candidates that make the targets pass and break nothing they were tried on, best first."""
    return run_search(request, PythonBackend())
