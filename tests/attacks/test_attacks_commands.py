"""Programs that attack from inside, each at each level, judged by what the host sees."""

from __future__ import annotations

import platform

import pytest
from attack_kit import Attack, Targets, expected, independent, launch, launch_batch, settle, signs
from corpus import of

from codepilot.sandbox import Level, Sandbox, choose

COMMANDS = [attack for attack in of("command") if attack.machine in (None, platform.machine())]


BATCHED = [attack for attack in COMMANDS if independent(attack)]
ALONE = [attack for attack in COMMANDS if not independent(attack)]


@pytest.mark.parametrize("category", sorted({attack.category for attack in BATCHED}))
def test_attacks_of_a_category_are_stopped_by_the_layers_named_for_them(
    category: str, sandbox: Sandbox, targets: Targets
) -> None:
    """One after the other inside one sandbox, as each leaves the next alone."""
    attacks = [attack for attack in BATCHED if attack.category == category]
    results = launch_batch(attacks, sandbox, targets)
    settle(targets)
    assert targets.harm(*(text for done in results for text in (done.stdout, done.stderr))) == []
    wrong = {
        attack.name: (attack.stops[sandbox.level].layer, done.stdout[-500:], done.stderr[-500:])
        for attack, done in zip(attacks, results, strict=True)
        if not signs(done) or not signs(done) <= expected(attack, sandbox.level)
    }
    assert wrong == {}


@pytest.mark.parametrize("attack", ALONE, ids=lambda attack: attack.name)
def test_an_attack_is_stopped_by_the_layer_named_for_it(attack: Attack, sandbox: Sandbox, targets: Targets) -> None:
    done = launch(attack, sandbox, targets)
    settle(targets)
    assert targets.harm(done.stdout, done.stderr) == []
    seen = signs(done)
    assert seen, done.stderr.decode(errors="replace")
    assert seen <= expected(attack, sandbox.level), (attack.stops[sandbox.level].layer, done.stdout[-500:])


@pytest.mark.parametrize("attack", [one for one in COMMANDS if one.control], ids=lambda attack: attack.name)
def test_the_same_attack_succeeds_where_nothing_confines_it(attack: Attack, targets: Targets) -> None:
    sandbox = choose("none")
    assert sandbox.level is Level.NONE
    done = launch(attack, sandbox, targets)
    assert targets.harm(done.stdout, done.stderr) != [], (done.stdout[-500:], done.stderr[-500:])
