"""Model-free repair: localise, propose, try, rank. Candidate code runs only inside the sandbox."""

from codepilot.repair.engine import search
from codepilot.repair.protocol import Candidate, Progress, SearchRequest, SearchResult
from codepilot.repair.strength import Strength, measure_strength

__all__ = ["Candidate", "Progress", "SearchRequest", "SearchResult", "Strength", "measure_strength", "search"]
