"""Makes graphs of objects like those a function was given: links are rewired, and their invariants still hold."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Call = tuple[Any, ...]
_MOST = 60


def graphs(calls: Sequence[Call], chance: random.Random) -> Callable[[], Call] | None:
    """Something that makes calls with rewired graphs; None if the calls hold no linked objects."""
    linked = [call for call in calls if any(True for _ in edges(nodes(call)))]
    if not linked:
        return None
    every = [nodes(call) for call in calls]
    names = sorted({name for found in every for _, name, _ in edges(found)})
    acyclic = [name for name in names if not any(_cyclic(found, name) for found in every)]
    converse = [(a, b) for a in names for b in names if a < b and all(_converse(found, a, b) for found in every)]
    apart = {b for _, b in converse}

    def make() -> Call:
        call = copy.deepcopy(chance.choice(linked))
        found = nodes(call)
        for _ in range(chance.randint(1, 3)):
            _rewire(found, chance.choice([name for name in names if name not in apart]), chance)
        for a, b in converse:
            _mirror(found, a, b)
        for name in acyclic:
            if _cyclic(found, name):
                return copy.deepcopy(chance.choice(calls))
        if chance.random() < 0.4:
            call = tuple(chance.choice(found) if _is_node(argument) else argument for argument in call)
        return call

    return make


def only_graphs(calls: Sequence[Call]) -> bool:
    """True if the arguments are nothing but objects, and lists of them."""
    return all(
        value is None or _is_node(value) or (isinstance(value, list) and all(map(_is_node, value)))
        for call in calls
        for value in call
    )


def _is_node(value: Any) -> bool:
    return hasattr(value, "__dict__") and not callable(value) and type(value).__module__ != "builtins"


def nodes(value: Any) -> list[Any]:
    """Every object that can be reached, in a fixed order."""
    found: list[Any] = []
    waiting, seen = [value], set()
    while waiting and len(found) < _MOST:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_node(one):
            found.append(one)
            waiting += list(vars(one).values())
        elif isinstance(one, list | tuple | set):
            waiting += list(one)
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
    return found


def edges(found: Sequence[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Each link from one object to another, by the attribute that holds it."""
    for one in found:
        for name, held in vars(one).items():
            for other in held if isinstance(held, list) else [held]:
                if type(other) is type(one):
                    yield one, name, other


def _rewire(found: Sequence[Any], name: str, chance: random.Random) -> None:
    one, other = chance.choice(found), chance.choice(found)
    held = getattr(one, name, None)
    if isinstance(held, list):
        links = list(held)
        if links and chance.random() < 0.5:
            links.pop(chance.randrange(len(links)))
        elif not any(link is other for link in links):
            links.append(other)
        setattr(one, name, links)
    else:
        setattr(one, name, None if chance.random() < 0.3 else other)


def _mirror(found: Sequence[Any], a: str, b: str) -> None:
    """Make `b` the inverse of `a`: the objects that link to this one by `a`."""
    for one in found:
        setattr(one, b, [other for other in found if any(link is one for link in getattr(other, a, ()))])


def _converse(found: Sequence[Any], a: str, b: str) -> bool:
    forth = {(id(one), id(other)) for one, name, other in edges(found) if name == a}
    back = {(id(other), id(one)) for one, name, other in edges(found) if name == b}
    lists = all(isinstance(getattr(one, each, None), list) for one in found for each in (a, b))
    return lists and forth == back


def _cyclic(found: Sequence[Any], name: str) -> bool:
    after: dict[int, list[int]] = {}
    for one, link, other in edges(found):
        if link == name:
            after.setdefault(id(one), []).append(id(other))
    done: set[int] = set()
    for start in list(after):
        path: list[tuple[int, Iterator[int]]] = [(start, iter(after.get(start, ())))]
        on_path = {start}
        while path and start not in done:
            for following in path[-1][1]:
                if following in on_path:
                    return True
                if following not in done:
                    on_path.add(following)
                    path.append((following, iter(after.get(following, ()))))
                    break
            else:
                ended, _ = path.pop()
                on_path.discard(ended)
                done.add(ended)
    return False
