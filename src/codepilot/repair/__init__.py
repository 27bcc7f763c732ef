"""Model-free repair: localise, propose, try, rank. Candidate code runs only inside the sandbox."""

from codepilot.repair.engine import search
from codepilot.repair.protocol import Candidate, Progress, SearchRequest, SearchResult
from codepilot.repair.recency import Ages
from codepilot.repair.strength import Strength, measure_strength
from codepilot.repair.testwriting import Unwritable, Written, write_test
from codepilot.repair.witness import Witnesses, WitnessRequest, find_witnesses, nearby_tests

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
