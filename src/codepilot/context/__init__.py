"""What an agent should see of a repository: its map, and the pieces that a task needs, within a budget."""

from codepilot.context.repository import MapFigures, Read, RepositoryMap, map_repository
from codepilot.context.symbols import FileSymbols, Symbol

__all__ = ["FileSymbols", "MapFigures", "Read", "RepositoryMap", "Symbol", "map_repository"]
