"""Names of new modules, by the rules of each ecosystem."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from codepilot.core.scaffold import Ecosystem, Scaffold


@pytest.mark.parametrize(
    ("ecosystem", "name", "package"),
    [
        ("maven", "order-history", "com.example.orderhistory"),
        ("python", "Order.History", "order_history"),
        ("npm", "@shop/order-history", ""),
    ],
)
def test_a_module_has_a_package_by_its_name(ecosystem: str, name: str, package: str) -> None:
    wanted = Scaffold(ecosystem=Ecosystem(ecosystem), name=name)
    assert (wanted.import_name, wanted.folder) == (package, name.rpartition("/")[2])


@pytest.mark.parametrize(
    ("ecosystem", "name", "package"),
    [
        ("maven", "Order", ""),
        ("maven", "../up", ""),
        ("maven", "-x", ""),
        ("maven", "order", "org.class.x"),
        ("maven", "order", "Org.shop"),
        ("maven", "2x", ""),
        ("python", "class", ""),
        ("python", "json", ""),
        ("python", "a/b", ""),
        ("python", "2fast", ""),
        ("python", "x", "a.b"),
        ("python", "..", ""),
        ("npm", "UPPER", ""),
        ("npm", "node_modules", ""),
        ("npm", ".hidden", ""),
        ("npm", "@a/b/c", ""),
        ("npm", "cart", "shop"),
        ("npm", "x" * 300, ""),
        ("python", "naïve", ""),
        ("python", "", ""),
    ],
)
def test_a_name_that_the_build_system_refuses_is_refused(ecosystem: str, name: str, package: str) -> None:
    with pytest.raises(ValidationError):
        Scaffold(ecosystem=Ecosystem(ecosystem), name=name, package=package)
