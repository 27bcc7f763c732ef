"""Generates small projects with one bug each, on which the repair search is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A project, its failing test, and the wrong line with its repair; none if nothing repairs it."""

    files: dict[str, str]
    target: str
    wrong: str
    right: str | None
    path: str

    def beyond_repair(self, old: str, new: str) -> Program:
        """The same project, whose failing test asks for what no edit gives: the search tries all it can think of."""
        path = self.target.partition("::")[0]
        assert old in self.files[path]
        return Program(
            {**self.files, path: self.files[path].replace(old, new)}, self.target, self.wrong, None, self.path
        )


_FUNCTION = '''\
def merged(spans):
    """Overlapping spans made one."""
    result = []
    waiting = sorted(spans)
    while waiting:
        start, end = waiting.pop(0)
        while waiting and waiting[0][0] < end:
            other = waiting.pop(0)
            if other[1] > end:
                end = other[1]
        result.append((start, end))
    return result
'''
_FUNCTION_TESTS = """\
import pytest

from spans import merged


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([], []),
        ([(1, 2)], [(1, 2)]),
        ([(1, 4), (2, 3)], [(1, 4)]),
        ([(5, 7), (1, 3)], [(1, 3), (5, 7)]),
        ([(1, 3), (2, 5), (8, 9)], [(1, 5), (8, 9)]),
        ([(0, 9), (1, 2), (3, 4)], [(0, 9)]),
    ],
)
def test_merged(spans, wanted):
    assert merged(spans) == wanted


def test_touching():
    assert merged([(1, 2), (2, 3)]) == [(1, 3)]
"""


def function() -> Program:
    """One function with loops, plain tests with parameters."""
    files = {"spans.py": _FUNCTION, "test_spans.py": _FUNCTION_TESTS}
    return Program(files, "test_spans.py::test_touching", "waiting[0][0] < end", "waiting[0][0] <= end", "spans.py")


_CLASS = '''\
class Account:
    """Money in cents, and what happened to it."""

    def __init__(self, owner, limit=0):
        self.owner = owner
        self.limit = limit
        self.entries = []

    @property
    def balance(self):
        return sum(amount for amount, _ in self.entries)

    def deposit(self, amount, text=""):
        if amount <= 0:
            raise ValueError("nothing to deposit")
        self.entries.append((amount, text))
        return self

    def withdraw(self, amount, text=""):
        if amount <= 0:
            raise ValueError("nothing to withdraw")
        if self.balance - amount < self.limit:
            raise ValueError("not enough money")
        self.entries.append((-amount, text))
        return self

    def statement(self):
        lines, total = [], 0
        for number, (amount, text) in enumerate(self.entries, 1):
            total += amount
            lines.append(f"{number} {text} {amount} {total}")
        return lines
'''
_CLASS_TESTS = """\
import pytest

from bank.account import Account


class TestAccount:
    @pytest.mark.parametrize("amount", [1, 5, 100, 99999])
    def test_deposit(self, account, amount):
        before = account.balance
        assert account.deposit(amount).balance == before + amount

    @pytest.mark.parametrize("amount", [0, -1, -100])
    def test_nothing(self, account, amount):
        with pytest.raises(ValueError):
            account.deposit(amount)
        with pytest.raises(ValueError):
            account.withdraw(amount)

    @pytest.mark.parametrize("amount", [1, 50, 100])
    def test_withdraw(self, account, amount):
        assert account.withdraw(amount).balance == 100 - amount

    def test_empty(self, account):
        with pytest.raises(ValueError):
            account.withdraw(1000)

    def test_credit(self, trusted):
        assert trusted.withdraw(150, "car").balance == -50

    def test_statement(self, account):
        assert account.withdraw(30, "book").statement() == ["1 first 100 100", "2 book -30 70"]
"""
_FIXTURES = """\
import pytest

from bank.account import Account


@pytest.fixture
def account():
    return Account("Ada").deposit(100, "first")


@pytest.fixture
def trusted(account):
    account.limit = 200
    return account
"""


def classes() -> Program:
    """A class in a package, tests in a class with fixtures and parameters."""
    files = {
        "src/bank/__init__.py": "",
        "src/bank/account.py": _CLASS,
        "tests/conftest.py": _FIXTURES,
        "tests/test_account.py": _CLASS_TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\npythonpath = ['src']\n",
    }
    target = "tests/test_account.py::TestAccount::test_credit"
    return Program(files, target, "< self.limit:", "< -self.limit:", "src/bank/account.py")


def package(modules: int = 500, tests: int = 2000, wrong: int = 7) -> Program:
    """Many modules that import and call each other, with many tests, and one bug in one of them."""
    files = {"shop/__init__.py": ""}
    for number in range(modules):
        files.setdefault(f"shop/part{number % 20}/__init__.py", "")
        files[f"shop/part{number % 20}/module{number}.py"] = _module(number, number == wrong)
    each = 20
    for number in range(tests // each):
        files[f"tests/test_modules{number}.py"] = _module_tests(number, modules, each)
    files["pyproject.toml"] = "[tool.pytest.ini_options]\ntestpaths = ['tests']\npythonpath = ['.']\n"
    path = f"shop/part{wrong % 20}/module{wrong}.py"
    return Program(files, f"tests/test_modules0.py::test_discount_{wrong}", "price - rate", "price - cut", path)


def _module(number: int, wrong: bool) -> str:
    """A few functions and a class; each module but the first uses one before it."""
    before = number // 2
    uses = f"from shop.part{before % 20}.module{before} import Basket{before}\n\n\n" if number else ""
    inner = f"Basket{before}(self.rate).priced(prices)" if number else "[price + self.rate for price in prices]"
    return f'''\
{uses}def total(prices):
    found = 0
    for price in prices:
        if price > 0:
            found += price
    return found


def discounted(price, rate):
    if rate < 0 or rate > 100:
        raise ValueError("a rate is between 0 and 100")
    cut = price * rate // 100
    return price - {"rate" if wrong else "cut"}


class Basket{number}:
    """Prices of one customer, in cents."""

    def __init__(self, rate=0):
        self.rate = rate
        self.prices = []

    def add(self, price, count=1):
        for _ in range(count):
            self.prices.append(price)
        return self

    def priced(self, prices):
        return {inner}

    def sum(self):
        return total([discounted(price, self.rate) for price in self.prices])
'''


def _module_tests(number: int, modules: int, each: int) -> str:
    """Tests of the modules that fall to this file, five kinds for each of four modules."""
    kinds = 5
    own = [(number * (each // kinds) + at) * 7 % modules if number else at + 4 for at in range(each // kinds)]
    rows = ["import pytest", ""]
    for one in dict.fromkeys(own):
        rows.append(f"from shop.part{one % 20} import module{one}")
    for at, one in enumerate(own):
        name = f"{one}" if own.index(one) == at else f"{one}_{at}"
        rows += [
            *("", "", f"def test_add_{name}():"),
            f"    assert module{one}.Basket{one}().add(5, 3).prices == [5, 5, 5]",
            *("", "", f"def test_sum_{name}():"),
            f"    assert module{one}.Basket{one}().add(100, 2).add(50).sum() == 250",
            *("", "", f"def test_discount_{name}():"),
            f"    assert module{one}.discounted(200, 50) == 100",
            f"    assert module{one}.Basket{one}(10).add(1000, 2).sum() == 1800",
            *("", "", f"def test_rate_{name}():"),
            "    with pytest.raises(ValueError):",
            f"        module{one}.discounted(200, 101)",
            *("", "", f"def test_priced_{name}():"),
            f"    assert module{one}.Basket{one}(3).priced([1, 2]) == [4, 5]",
        ]
    return "\n".join(rows) + "\n"
