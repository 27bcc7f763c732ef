"""What an agent should see of a repository: its map, and the pieces that a task needs, within a budget.

`Survey.of(Files.of_tree(objects, tree), cache)` maps a tree; `outline` and `gather` tell what a model should see of it.
"""

from codepilot.context.evidence import Evidence
from codepilot.context.gathering import Gathered, gather
from codepilot.context.memory import quoted, recall, signature_of
from codepilot.context.ranking import Focus, Graph, graph_of
from codepilot.context.rendering import render_map
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
    "map_repository",
    "quoted",
    "recall",
    "render_map",
    "signature_of",
]
