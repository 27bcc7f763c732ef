"""Little repositories for the tests of this room."""

from __future__ import annotations

import hashlib

from codepilot.context import Files

SHOP: dict[str, bytes] = {
    "README.md": b"# Shop\n\nA shop with a basket. `total_price` adds up.\n",
    "CONTRIBUTING.md": b"# Contributing\n\nTests first.\n",
    "pyproject.toml": b'[project]\nname = "shop"\n',
    "shop/__init__.py": b"from .basket import Basket\n",
    "shop/money.py": b"""TAX = 0.2


def rounded(amount):
    return round(amount, 2)


def with_tax(amount):
    return rounded(amount * (1 + TAX))
""",
    "shop/basket.py": b"""from shop.money import with_tax


class Basket:
    def __init__(self):
        self.items = []

    def add(self, item, price):
        self.items.append((item, price))

    def total_price(self):
        return with_tax(sum(price for _, price in self.items))
""",
    "shop/stock.py": b"""class Stock:
    def take(self, item):
        return item
""",
    "shop/checkout.py": b"""from shop import Basket


def pay(basket: Basket):
    return basket.total_price()
""",
    "tests/test_basket.py": b"""import pytest

from shop import Basket


def test_empty():
    assert Basket().total_price() == 0


class TestTotal:
    @pytest.mark.parametrize("price", [1, 2])
    def test_one(self, price):
        basket = Basket()
        basket.add("tea", price)
        assert basket.total_price() == price * 1.2
""",
}

TRACE = """Traceback (most recent call last):
  File "/somewhere/else/tests/test_basket.py", line 15, in test_one
    assert basket.total_price() == price * 1.2
  File "/somewhere/else/shop/basket.py", line 12, in total_price
    return with_tax(sum(price for _, price in self.items))
  File "/usr/lib/python3.11/random.py", line 3, in choice
  File "/somewhere/else/shop/money.py", line 9, in with_tax
    return rounded(amount * (1 + TAX))
TypeError: bad
"""


def files_of(sources: dict[str, bytes]) -> Files:
    return Files({path: hashlib.sha256(data).hexdigest() for path, data in sources.items()}, sources.get)
