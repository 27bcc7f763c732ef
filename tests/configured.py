"""Settings as a door makes them, for tests: the environment of the test process, and what the test adds to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from codepilot.engine import Runtime, Settings


def configured(environ: Mapping[str, str] | None = None, **flags: object) -> Settings:
    return Settings.load(None, {**os.environ, **(environ or {})}, flags)


def reconfigured(runtime: Runtime) -> Runtime:
    """The same open runtime with settings that are read anew: the test has changed the environment since."""
    return replace(runtime, settings=configured(home=runtime.home.path))
