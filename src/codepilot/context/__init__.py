"""Selects what an agent sees of a repository: its map, and the pieces that a task needs, within a budget.

`Survey.of(Files.of_tree(objects, tree), cache)` maps a tree; `outline` and `gather` return the text for a model.
"""

from codepilot.context.evidence import Evidence
from codepilot.context.gathering import Gathered, gather
from codepilot.context.memory import listed_quirks, quirks_among, quoted, recall, signature_of
from codepilot.context.ranking import Focus, Graph, graph_of
from codepilot.context.rendering import render_map, tokens_of
from codepilot.context.repository import MapFigures, Read, RepositoryMap, map_repository
from codepilot.context.survey import Files, Survey
from codepilot.context.symbols import FileSymbols, Symbol

__all__ = [
    "Evidence",
    "FileSymbols",
    "Files",
    "Focus",
    "Gathered",
    "Graph",
    "MapFigures",
    "Read",
    "RepositoryMap",
    "Survey",
    "Symbol",
    "gather",
    "graph_of",
    "listed_quirks",
    "map_repository",
    "quirks_among",
    "quoted",
    "recall",
    "render_map",
    "signature_of",
    "tokens_of",
]
