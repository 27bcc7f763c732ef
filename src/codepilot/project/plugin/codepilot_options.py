"""A pytest plugin for what a project's configuration names and no installed plugin knows: it changes nothing then.

Projects ask for coverage, parallel runs or time limits in their configuration. Where the plugin is not installed,
pytest would refuse to start over an option that no test depends on. Pytest 6 and newer, standard library alone.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codepilot.project.plugin import codepilot_django as django
else:
    import codepilot_django as django

FLAG, VALUE, MAYBE = "flag", "value", "maybe"
OPTIONS: dict[str, dict[str, str]] = {
    "pytest_cov": {
        "--cov": MAYBE,
        "--cov-report": MAYBE,
        "--cov-config": VALUE,
        "--cov-fail-under": VALUE,
        "--cov-context": VALUE,
        "--cov-branch": FLAG,
        "--cov-append": FLAG,
        "--cov-reset": FLAG,
        "--no-cov": FLAG,
        "--no-cov-on-fail": FLAG,
    },
    "xdist": {"-n": VALUE, "--numprocesses": VALUE, "--dist": VALUE, "--maxprocesses": VALUE},
    "pytest_timeout": {"--timeout": VALUE, "--timeout-method": VALUE},
    "pytest_asyncio": {"--asyncio-mode": VALUE},
    "pytest_rerunfailures": {"--reruns": VALUE, "--reruns-delay": VALUE},
    "pytest_randomly": {"--randomly-seed": VALUE},
    "pytest_random_order": {"--random-order": FLAG, "--random-order-bucket": VALUE, "--random-order-seed": VALUE},
    "pytest_benchmark": {"--benchmark-disable": FLAG, "--benchmark-skip": FLAG},
    "pytest_html": {"--html": VALUE, "--self-contained-html": FLAG},
    "pytest_flake8": {"--flake8": FLAG},
    "pytest_mypy": {"--mypy": FLAG},
    "pytest_black": {"--black": FLAG},
    "pytest_isort": {"--isort": FLAG},
    "pytest_pycodestyle": {"--pycodestyle": FLAG},
    "pytest_pydocstyle": {"--pydocstyle": FLAG},
    "pytest_pylint": {"--pylint": FLAG},
    "pytest_subtests": {"--no-subtests-shortletter": FLAG},
}
SETTINGS = {
    "pytest_asyncio": ("asyncio_mode", "asyncio_default_fixture_loop_scope", "asyncio_default_test_loop_scope"),
    "pytest_timeout": ("timeout", "timeout_method", "timeout_func_only"),
    "pytest_env": ("env",),
    "pytest_mock": ("mock_use_standalone_module", "mock_traceback_monkeypatch"),
    "pytest_flake8": ("flake8-ignore", "flake8-max-line-length", "flake8-max-complexity"),
    "pytest_django": ("DJANGO_SETTINGS_MODULE", "python_paths"),
}
USUAL_FILES = ("test_*.py", "*_test.py")
"""Where pytest looks for tests if the project does not say. Django and namespace packages have `tests.py` too."""
MARKS = {
    "pytest_cov": ("no_cover",),
    "pytest_timeout": ("timeout",),
    "pytest_rerunfailures": ("flaky",),
    "pytest_asyncio": ("asyncio",),
    "pytest_benchmark": ("benchmark",),
    "xdist": ("xdist_group",),
}


def _absent(plugin: str) -> bool:
    try:
        return importlib.util.find_spec(plugin) is None
    except (ImportError, ValueError):
        return False


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("codepilot")
    for plugin, options in OPTIONS.items():
        for option, kind in options.items() if _absent(plugin) else ():
            more: dict[str, Any] = {"action": "store_true"} if kind == FLAG else {"action": "append", "default": []}
            if kind == MAYBE:
                more.update(nargs="?", const="")
            try:
                group._addoption(option, dest="codepilot_" + option.strip("-").replace("-", "_"), **more)
            except ValueError:  # Something else that is installed knows it.
                continue
    for plugin, names in SETTINGS.items():
        for name in names if _absent(plugin) else ():
            try:
                parser.addini(name, "of a plugin that is not installed", default="")
            except ValueError:
                continue


def pytest_load_initial_conftests(early_config: Any) -> None:
    """Prepare Django before the project's modules are imported, if no plugin does."""
    if not early_config.pluginmanager.hasplugin("django") and not early_config.pluginmanager.hasplugin("pytest_django"):
        django.prepare()


def pytest_configure(config: Any) -> None:
    if set(config.getini("python_files")) == set(USUAL_FILES):
        config.addinivalue_line("python_files", "tests.py")
    for plugin, names in MARKS.items():
        for name in names if _absent(plugin) else ():
            config.addinivalue_line("markers", name + ": of a plugin that is not installed")
