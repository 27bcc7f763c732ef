"""Donors from the package: what other files do with the same names, the nearest first, and never too many of them."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench

from codepilot.repair.backend import Failure, SearchFacts
from codepilot.repair.edit import Proposal
from codepilot.repair.ledger import order_digest
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.enumerate import candidates
from codepilot.repair.python.package import FILES, Package, imported_paths
from codepilot.repair.python.source import PythonSource
from codepilot.repair.python.templates import TEMPLATES
from codepilot.repair.selection import TestSelector

Open = Callable[[Mapping[str, str | bytes]], Bench]
DONORS = tuple(template for template in TEMPLATES if template.name.startswith("package."))


def _read(files: Mapping[str, str]) -> dict[str, PythonSource]:
    return {path: PythonSource.read(path, text.encode()) for path, text in files.items()}


def _proposed(text: str, files: Mapping[str, str], path: str = "pkg/own.py") -> list[tuple[Proposal, str]]:
    sources = _read({path: text})
    suspicion = Suspicion({path: dict.fromkeys(range(1, text.count("\n") + 1), 1.0)})
    found = list(candidates(sources, suspicion, Failure(), DONORS, _read(files)))
    return [(one, (one.source.apply(one.edit) or b"").decode()) for one in found]


LESSONS = {
    "a keyword": (
        "def load(path):\n    return open(path).read()\n",
        "def keep(path, text):\n    with open(path, 'w', encoding='utf-8') as file:\n        file.write(text)\n",
        "def load(path):\n    return open(path, encoding='utf-8').read()\n",
    ),
    "the value of a keyword": (
        "def f(x):\n    return g(x, deep=False)\n",
        "def h(y):\n    return g(y, deep=True)\n",
        "def f(x):\n    return g(x, deep=True)\n",
    ),
    "a condition instead": (
        "def f(node):\n    if node.kind:\n        return 1\n",
        "def g(node):\n    while node.kind is not None:\n        node = node.next\n",
        "def f(node):\n    if node.kind is not None:\n        return 1\n",
    ),
    "a condition beside": (
        "def f(node):\n    if node.ready():\n        return 1\n",
        "def g(node):\n    return 2 if node.ready() and not node.done else 3\n",
        "def f(node):\n    if node.ready() and not node.done:\n        return 1\n",
    ),
    "a call": (
        "def f(a, b):\n    return join(a)\n",
        "def g(a, b):\n    return join([a, b])\n",
        "def f(a, b):\n    return join([a, b])\n",
    ),
    "a sibling's statement": (
        "class One:\n    def take(self, item):\n        return self.items.pop()\n",
        "class Two:\n    def take(self, item):\n        return self.items.pop(item)\n",
        "class One:\n    def take(self, item):\n        return self.items.pop(item)\n",
    ),
    "a statement that a sibling has": (
        "class One:\n    def put(self, item):\n        self.items.append(item)\n",
        "class Two:\n    def put(self, item):\n        self.items.append(item)\n        self.count += 1\n",
        "class One:\n    def put(self, item):\n        self.items.append(item)\n        self.count += 1\n",
    ),
}


@pytest.mark.parametrize("case", LESSONS)
def test_another_file_of_the_package_lends(case: str) -> None:
    text, other, wanted = LESSONS[case]
    texts = [patched for _, patched in _proposed(text, {"pkg/other.py": other})]
    assert wanted in texts
    assert wanted not in [patched for _, patched in _proposed(text, {"elsewhere/other.py": other})]
    for patched in texts:
        ast.parse(patched)


def test_the_file_itself_lends_before_others() -> None:
    text = "def f(x):\n    return g(x)\n\n\ndef h(y):\n    return g(y, own=1)\n"
    texts = [patched for _, patched in _proposed(text, {"pkg/a.py": "def k(y):\n    return g(y, far=1)\n"})]
    own, far = (next(at for at, one in enumerate(texts) if f"g(x, {word}=1)" in one) for word in ("own", "far"))
    assert own < far


def test_what_means_nothing_here_is_not_taken_over() -> None:
    other = "import os\n\n\ndef g(path, mode):\n    return open(path, mode=mode, opener=os.open, errors='strict')\n"
    texts = [patched for _, patched in _proposed("def f(path):\n    return open(path)\n", {"pkg/other.py": other})]
    assert any("errors='strict'" in one for one in texts)
    assert not any("mode" in one or "os.open" in one for one in texts)


def test_only_the_sources_are_edited() -> None:
    found = _proposed("def f(x):\n    return g(x)\n", {"pkg/other.py": "def h(y):\n    return g(y, k=1) or g(y)\n"})
    assert found and {one.source.path for one, _ in found} == {"pkg/own.py"}


def test_imports_lead_to_files() -> None:
    text = (
        "import os\nfrom . import near\nfrom .sub.deep import x\nfrom ..other import y\n"
        "from pkg.inner.beside import z\nfrom elsewhere.module import w\n"
    )
    found = set(imported_paths(PythonSource.read("src/pkg/inner/own.py", text.encode())))
    inner = {"src/pkg/inner/near.py", "src/pkg/inner/sub/deep.py", "src/pkg/inner/beside.py"}
    assert found == {*inner, "src/pkg/other.py"}


def test_a_large_package_is_not_looked_through() -> None:
    body = "".join(f"def f{n}(a, b):\n    if a.ready and b:\n        return g(a, key={n})\n\n\n" for n in range(60))
    files = {f"pkg/m{number:03}.py": body for number in range(499)}
    files["pkg/zz.py"] = "from pkg.own import f\n" + body
    own = PythonSource.read("pkg/own.py", b"def f(a):\n    return g(a)\n")
    package = Package({**_read(files), "pkg/own.py": own})
    begun = time.process_time()
    near = package.near(own)
    assert len(near) == FILES + 1
    assert [one.path for one in near[:2]] == ["pkg/own.py", "pkg/zz.py"]
    assert len(list(package.calls(own, "g"))) == 1 + 60 * FILES
    assert time.process_time() - begun < 10.0


paths = st.lists(st.sampled_from(["a", "b", "c", "src"]), min_size=1, max_size=3).map(lambda parts: "/".join(parts))


@given(st.sets(paths, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_nearest_files_do_not_depend_on_the_order_they_were_read_in(names: set[str], random: object) -> None:
    sources = _read({f"{name}.py": "x = 1\n" for name in sorted(names)})
    shuffled = list(sources.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = next(iter(sources.values()))
    one, other = Package(sources).near(first), Package(dict(shuffled)).near(first)
    assert one == other and one[0] is first and len(set(one)) == len(one) <= FILES + 1


def test_a_module_that_no_test_loads_lends_to_the_search(bench: Open) -> None:
    project = bench(
        {
            "shop/__init__.py": "",
            "shop/codes.py": "def code(text, *, fold=None, strict=True):\n    return (fold or len)(text), strict\n\n\n"
            "def folded(text):\n    return text.casefold()\n",
            "shop/lists.py": "from shop.codes import code, folded\n\n\n"
            "def every(texts):\n    return [code(text, fold=folded) for text in texts]\n",
            "shop/single.py": "from shop.codes import code, folded\n\n\n"
            "def single(text):\n    return code(text)\n\n\n"
            "def several(texts):\n    from shop.lists import every\n\n    return every(texts)\n",
            "tests/test_single.py": "from shop.single import single\n\n\n"
            "def test_one():\n    assert single('AB') == ('ab', True)\n\n\n"
            "def test_other():\n    assert single('cD') == ('cd', True)\n",
        }
    )
    result = project.search()
    best = result.candidates[0]
    assert best.path == "shop/single.py" and b"return code(text, fold=folded)" in best.patched
    assert project.unchanged()


def test_a_search_is_not_continued_when_what_is_lent_has_changed() -> None:
    def digest(text: str) -> str:
        sources, lent = _read({"pkg/own.py": "x = 1\n"}), _read({"pkg/other.py": text})
        return order_digest(SearchFacts(sources, Suspicion({}), Failure(), TestSelector((), ()), lent), (), ())

    assert digest("y = 1\n") == digest("y = 1\n") != digest("y = 2\n")
