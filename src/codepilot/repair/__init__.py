"""Model-free repair: localise, propose, try, rank. Candidate code runs only inside the sandbox."""

from codepilot.repair.mutation.strength import Strength, measure_strength
from codepilot.repair.protocol import Candidate, Progress, SearchRequest, SearchResult
from codepilot.repair.recency import Ages
from codepilot.repair.regression.inputs import Witnesses, WitnessRequest, find_witnesses, nearby_tests
from codepilot.repair.regression.writer import Unwritable, Written, write_test
from codepilot.repair.search import search

__all__ = [
    "Ages",
    "Candidate",
    "Progress",
    "SearchRequest",
    "SearchResult",
    "Strength",
    "Unwritable",
    "WitnessRequest",
    "Witnesses",
    "Written",
    "find_witnesses",
    "measure_strength",
    "nearby_tests",
    "search",
    "write_test",
]
