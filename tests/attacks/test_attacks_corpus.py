"""The corpus as a whole: large enough, complete, and what the document says of it."""

from __future__ import annotations

from pathlib import Path

from attack_kit import CATEGORIES, LAYERS, LEVELS
from corpus import ATTACKS, of, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox.md"


def test_there_are_enough_attacks_of_every_category() -> None:
    assert len(ATTACKS) >= 75
    assert {attack.category for attack in ATTACKS} == set(CATEGORIES)


def test_names_are_unique() -> None:
    names = [attack.name for attack in ATTACKS]
    assert sorted(set(names)) == sorted(names)


def test_every_attack_names_a_known_layer_and_its_signs_for_each_level() -> None:
    for attack in ATTACKS:
        assert set(attack.stops) == set(LEVELS), attack.name
        assert all(stop.layer in LAYERS and stop.signs for stop in attack.stops.values()), attack.name


def test_every_layer_stops_something() -> None:
    assert {stop.layer for attack in ATTACKS for stop in attack.stops.values()} == set(LAYERS)


def test_a_quarter_of_the_programs_are_shown_to_succeed_unconfined() -> None:
    assert sum(attack.control for attack in of("command")) >= len(of("command")) // 5


def test_the_document_holds_the_table() -> None:
    """`python tests/attacks/corpus.py` prints it."""
    assert table() in DOCUMENT.read_text()
