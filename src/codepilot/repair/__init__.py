"""Model-free repair: localise, propose, try, rank. Candidate code runs only inside the sandbox."""

from codepilot.repair.protocol import Candidate, Progress, SearchRequest, SearchResult

__all__ = ["Candidate", "Progress", "SearchRequest", "SearchResult"]
