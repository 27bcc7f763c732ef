"""Django projects are tested with the settings that they name, with pytest-django or without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from project_kit import find, run, statuses, write

from codepilot.project.django import settings_module

MANAGE = 'import os\nos.environ.setdefault("DJANGO_SETTINGS_MODULE", "site.settings")\n'


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({"manage.py": MANAGE, "site/settings.py": ""}, "site.settings"),
        ({"manage.py": MANAGE}, ""),
        ({"manage.py": MANAGE, "src/site/settings/__init__.py": ""}, "site.settings"),
        (
            {
                "manage.py": MANAGE,
                "site/settings.py": "",
                "runtests.py": "os.environ['DJANGO_SETTINGS_MODULE'] = 'tests.settings'\n",
                "tests/settings.py": "",
            },
            "tests.settings",
        ),
        ({"tox.ini": "[testenv]\nsetenv =\n    A=1\n    DJANGO_SETTINGS_MODULE = t.conf\n", "t/conf.py": ""}, "t.conf"),
        ({"setup.cfg": "[tool:pytest]\nDJANGO_SETTINGS_MODULE = t\n", "t.py": ""}, "t"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\nDJANGO_SETTINGS_MODULE = 't'\n", "t.py": ""}, "t"),
    ],
)
def test_settings_are_found_where_projects_name_them(tmp_path: Path, files: dict[str, str], settings: str) -> None:
    assert settings_module(write(tmp_path, files)) == settings


STAND_IN = {
    "django/__init__.py": """\
        import importlib, os

        ready = []


        def setup():
            ready.append("applications")
        """,
    "django/conf.py": """\
        import importlib, os

        settings = importlib.import_module(os.environ["DJANGO_SETTINGS_MODULE"])
        """,
    "django/test/__init__.py": "",
    "django/test/utils.py": """\
        import django


        class Runner:
            def __init__(self, verbosity, interactive):
                assert not interactive

            def setup_test_environment(self):
                django.ready.append("environment")

            def setup_databases(self):
                django.ready.append("database")


        def get_runner(settings):
            assert settings.NAME == "shop"
            return Runner
        """,
}
"""The part of Django that prepares tests, which is not installed with CodePilot."""


@pytest.mark.parametrize("runner", ["pytest", "unittest"])
def test_applications_and_database_are_there_when_tests_are_collected(tmp_path: Path, runner: str) -> None:
    files = {
        "manage.py": MANAGE.replace("site.", "web."),
        "web/__init__.py": "",
        "web/settings.py": "NAME = 'shop'\n",
        "shop/__init__.py": "",
        "shop/tests.py": """\
            import unittest

            import django

            SEEN = list(django.ready)


            class ShopTest(unittest.TestCase):
                def test_ready(self):
                    self.assertEqual(SEEN, ["applications", "environment", "database"])
            """,
        **STAND_IN,
    }
    root = write(tmp_path, files)
    assert find(root, python=sys.executable).env["DJANGO_SETTINGS_MODULE"] == "web.settings"
    assert list(statuses(run(root, runner=runner)).values()) == ["passed"]
