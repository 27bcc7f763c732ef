"""What a test needs of the machine. A user's machine may lack it, with the reason given; CI may not."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from codepilot.core.failures import CodePilotError
from codepilot.sandbox import Sandbox, Wanted, choose


def lacking(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def level(name: Wanted) -> Sandbox:
    """The sandbox level of this name."""
    try:
        return choose(name)
    except CodePilotError as error:
        lacking(str(error))
