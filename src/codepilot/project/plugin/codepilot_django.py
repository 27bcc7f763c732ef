"""Prepares a Django project for its tests where pytest-django does not: applications and a test database.

Standard library alone; Django is the project's own.
"""

from __future__ import annotations

import importlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "DJANGO_SETTINGS_MODULE"


def prepare() -> None:
    """Do what `manage.py test` does before it collects, if the project names its settings."""
    if not os.environ.get(VARIABLE):
        return
    try:
        modules = [importlib.import_module(name) for name in ("django", "django.conf", "django.test.utils")]
    except ImportError:  # the tests say what is missing
        return
    django, conf, utils = modules
    django.setup()
    runner: Any = utils.get_runner(conf.settings)(verbosity=0, interactive=False)
    runner.setup_test_environment()
    try:
        runner.setup_databases()
    except Exception:  # noqa: BLE001 - without its database server only the tests that use one fail
        return
