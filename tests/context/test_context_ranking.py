"""References between files, the ranking over them, and the map as a model reads it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from little_shop import SHOP, files_of

from codepilot.context import FileSymbols, Focus, RepositoryMap, Symbol, graph_of, map_repository, render_map
from codepilot.context.ranking import Links, handed_on, rank
from codepilot.context.rendering import tokens_of
from codepilot.context.symbols import Kind


def shop() -> RepositoryMap:
    files = files_of(SHOP)
    return map_repository(files.hashes, files.read)


def references(repository: RepositoryMap) -> set[tuple[str, str, str]]:
    graph = graph_of(repository)
    return {(graph.paths[edge.source], edge.name, graph.paths[edge.target]) for edge in graph.edges if edge.name}


def test_references_lead_to_the_file_that_is_imported() -> None:
    assert references(shop()) == {
        ("shop/basket.py", "with_tax", "shop/money.py"),
        ("shop/__init__.py", "Basket", "shop/basket.py"),
        ("shop/checkout.py", "Basket", "shop/basket.py"),
        ("shop/checkout.py", "total_price", "shop/basket.py"),
        ("tests/test_basket.py", "Basket", "shop/basket.py"),
        ("tests/test_basket.py", "total_price", "shop/basket.py"),
        ("tests/test_basket.py", "add", "shop/basket.py"),
    }


def test_of_two_homes_the_imported_one_is_meant() -> None:
    sources = {
        "a/tool.py": b"def build_it(): ...\n",
        "b/tool.py": b"def build_it(): ...\n",
        "main.py": b"from b.tool import build_it\nbuild_it()\n",
    }
    files = files_of(sources)
    assert references(map_repository(files.hashes, files.read)) == {("main.py", "build_it", "b/tool.py")}


def test_a_plain_word_that_is_not_imported_means_nothing() -> None:
    sources = {"a.py": b"def value(): ...\ndef name(): ...\n", "b.py": b"value = 1\nprint(name)\n"}
    files = files_of(sources)
    assert references(map_repository(files.hashes, files.read)) == set()


def test_java_means_its_own_package_and_imports() -> None:
    sources = {
        "src/com/a/Till.java": b"package com.a; class Till { void open() { new Coin().flip(); } }",
        "src/com/a/Coin.java": b"package com.a; class Coin { void flip() {} }",
        "src/com/b/Coin.java": b"package com.b; class Coin { void flip() {} }",
        "src/com/c/User.java": b"package com.c; import com.b.*; class User { Coin coin; }",
    }
    files = files_of(sources)
    found = references(map_repository(files.hashes, files.read))
    assert ("src/com/a/Till.java", "Coin", "src/com/a/Coin.java") in found
    assert ("src/com/c/User.java", "Coin", "src/com/b/Coin.java") in found
    assert ("src/com/c/User.java", "Coin", "src/com/a/Coin.java") not in found


@pytest.mark.parametrize(
    ("path", "module", "meant"),
    [
        ("web/a.js", "./b", ["web/b.ts"]),
        ("web/a.js", "./b.js", ["web/b.ts"]),
        ("web/a.js", "./lib", ["web/lib/index.js"]),
        ("web/lib/index.js", "..", []),
        ("web/a.js", "react", []),
        ("web/a.js", "../../../../etc/passwd", []),
        ("pkg/sub/m.py", "..top", ["pkg/top.py"]),
        ("pkg/sub/m.py", ".", ["pkg/sub/__init__.py"]),
        ("pkg/sub/m.py", "........x", []),
        ("pkg/sub/m.py", "pkg.top", ["pkg/top.py"]),
        ("other/n.py", "pkg.sub", ["pkg/sub/__init__.py"]),
    ],
)
def test_modules_are_found_as_they_are_written(path: str, module: str, meant: list[str]) -> None:
    paths = ["web/a.js", "web/b.ts", "web/lib/index.js", "pkg/top.py", "pkg/sub/__init__.py", "pkg/sub/m.py"]
    files = {path: FileSymbols(imports=(module,))}
    assert sorted(Links([*paths, "other/n.py"]).imported(files).direct[path]) == sorted(set(meant) - {path})


def test_what_many_refer_to_ranks_first_and_a_focus_moves_it() -> None:
    repository = shop()
    graph = graph_of(repository)
    plain = rank(repository, graph).files
    assert max(plain, key=plain.__getitem__) in ("shop/basket.py", "shop/money.py")
    assert sum(plain.values()) == pytest.approx(1.0)
    leaning = rank(repository, graph, Focus({"shop/stock.py": 1.0})).files
    assert max(leaning, key=leaning.__getitem__) == "shop/stock.py"


def test_the_map_shows_signatures_under_their_classes() -> None:
    assert render_map(shop(), Focus({"shop/basket.py": 1.0}), 36) == (
        "shop/basket.py:\n"
        "     4: class Basket\n"
        "    11:   def total_price(self)\n"
        "shop/money.py:\n"
        "     8: def with_tax(amount)\n"
    )


def test_an_empty_repository_has_an_empty_map() -> None:
    assert render_map(RepositoryMap({}, {}), budget_tokens=100) == ""
    assert render_map(shop(), budget_tokens=0) == ""


names = st.sampled_from([f"name_{n}" for n in range(12)] + ["Thing", "run", "é"])
symbols = st.builds(
    Symbol,
    st.sampled_from(["class", "function", "method"]),
    names,
    st.integers(1, 50),
    st.integers(1, 60),
    st.sampled_from(["", "Thing"]),
    names,
)
parsed = st.builds(
    FileSymbols,
    st.lists(symbols, max_size=5).map(tuple),
    st.dictionaries(st.one_of(names, names.map(lambda name: f".{name}")), st.sampled_from(["1", "3,4"]), max_size=6),
    st.lists(st.sampled_from([".a", "b.c", "./x", "a"]), max_size=3).map(tuple),
)
paths = st.sampled_from([f"{d}/{n}.{e}" for d in "ab" for n in "xyz" for e in ("py", "js", "java")])
weights = st.dictionaries(st.sampled_from(["a/x.py", "b/y.js", "?"]), st.floats(0, 5))


@settings(max_examples=40, deadline=None)
@given(tree=st.dictionaries(paths, parsed), budget=st.integers(0, 300), focus=weights)
def test_any_map_ranks_to_one_and_renders_within_its_budget(
    tree: dict[str, FileSymbols], budget: int, focus: dict[str, float]
) -> None:
    repository = RepositoryMap(dict.fromkeys(tree, "0"), tree)
    leaning = Focus(focus, frozenset(["name_1"]))
    ranks = rank(repository, graph_of(repository), leaning)
    assert not tree or sum(ranks.files.values()) == pytest.approx(1.0, abs=1e-6)
    text = render_map(repository, leaning, budget)
    assert tokens_of(text) <= budget
    assert render_map(repository, leaning, budget) == text


def test_the_order_of_a_listing_changes_nothing() -> None:
    files = files_of(SHOP)
    turned = dict(sorted(files.hashes.items(), reverse=True))
    assert render_map(map_repository(turned, files.read)) == render_map(shop())


def linked(files: dict[str, FileSymbols]) -> list[tuple[str, str, str]]:
    graph = graph_of(RepositoryMap(dict.fromkeys(files, "h"), files))
    return [(graph.paths[edge.source], edge.name, graph.paths[edge.target]) for edge in graph.edges if edge.name]


def function(name: str, kind: Kind = "function") -> Symbol:
    return Symbol(kind, name, 1, 2, "", f"def {name}()")


def test_a_package_that_everything_imports_and_that_imports_everything_is_linked_at_once() -> None:
    count = 2_000
    files = {"pkg/__init__.py": FileSymbols(imports=tuple(f".m{n}" for n in range(count)))}
    for n in range(count):
        used = {f"thing_{(n + 1) % count}": "3"}
        files[f"pkg/m{n}.py"] = FileSymbols((function(f"thing_{n}"),), used, (".",))
    began = time.process_time()
    found = linked(files)
    assert time.process_time() - began < 3
    assert len(found) == count
    assert ("pkg/m7.py", "thing_8", "pkg/m8.py") in found


def test_packages_that_all_import_one_another_come_to_an_end() -> None:
    every = {f"p{n}/__init__.py" for n in range(2_000)}
    began = time.process_time()
    handed = handed_on(dict.fromkeys(sorted(every), every))
    assert time.process_time() - began < 3
    assert handed["p0/__init__.py"] == every


def test_a_method_that_a_thousand_classes_have_is_looked_for_next_to_its_user_only() -> None:
    names = [f"getPart{n}" for n in range(30)]
    methods = tuple(function(name, "method") for name in names)
    files = {f"src/p{n}/Thing.java": FileSymbols(methods) for n in range(1_500)}
    files |= {f"src/p{n}/User.java": FileSymbols((), {f".{name}": "3" for name in names}) for n in range(1_500)}
    began = time.process_time()
    found = linked(files)
    assert time.process_time() - began < 3
    assert ("src/p3/User.java", "getPart4", "src/p3/Thing.java") in found
    assert len(found) == 30 * 1_500
