"""Whose things lie in a place: each store that keeps some there leaves its name, so that none removes another's."""

from __future__ import annotations

from pathlib import Path

NAMES = "stores"


def leave_name(directory: Path, store_id: str, place: str) -> None:
    """Say in `directory` that the store of that name, which is at `place`, keeps something there."""
    (directory / NAMES).mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / NAMES / store_id).write_text(f"{place}\n", encoding="utf-8")


def names_in(directory: Path) -> dict[str, str]:
    """The stores that did, and where each was then."""
    if not (directory / NAMES).is_dir():
        return {}
    return {path.name: path.read_text(encoding="utf-8").strip() for path in (directory / NAMES).iterdir()}
