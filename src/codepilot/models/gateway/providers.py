"""The providers behind the gateway as this machine reaches them: keys from the environment, addresses as configured."""

from __future__ import annotations

from collections.abc import Mapping

from codepilot.core.model_settings import ModelSettings
from codepilot.models.choose import USUAL, check_url
from codepilot.models.gateway.endpoint import Dialect
from codepilot.models.gateway.upstream import Upstream

KEY_NAMES: Mapping[Dialect, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""The variables that hold a dialect's key; the first one that is set counts."""
_URL_NAMES: Mapping[Dialect, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_BASE_URL",),
    "openai": ("OPENAI_BASE_URL",),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
}
_ADDRESSES: Mapping[Dialect, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com",
}
_MODELS: Mapping[Dialect, str] = {
    "anthropic": USUAL["anthropic"],
    "openai": USUAL["openai"],
    "gemini": "gemini-2.5-pro",
}
_PREFIXES: Mapping[str, Dialect] = {
    "anthropic": "anthropic",
    "openai": "openai",
    "gemini": "gemini",
    "google": "gemini",
}
_COMPATIBLE = "openai-compatible"


def upstreams(environ: Mapping[str, str], settings: ModelSettings) -> tuple[Upstream, ...]:
    """The providers that have a key. Without OpenAI's, a compatible server that is the usual model stands in for it."""
    found = []
    for dialect, address in _ADDRESSES.items():
        key = _first(environ, KEY_NAMES[dialect])
        url = (_first(environ, _URL_NAMES[dialect]) or _configured(dialect, settings) or address).rstrip("/")
        if key:
            check_url(url, settings)
            found.append(Upstream(dialect, url, key, settings.known))
    compatible, _, _ = (settings.default or "").removeprefix(f"{_COMPATIBLE}:").rpartition("#")
    if compatible and _uses_compatible(settings) and not any(one.dialect == "openai" for one in found):
        check_url(compatible, settings)
        key = environ.get("CODEPILOT_MODEL_KEY", "").strip() or "none"
        found.append(Upstream("openai", compatible.rstrip("/"), key, settings.known))
    return tuple(found)


def agent_model(dialect: Dialect, settings: ModelSettings) -> str:
    """The model that a program of this dialect asks if its user chose none: the usual one of the settings, or ours."""
    kind, _, name = (settings.default or "").partition(":")
    if dialect == "openai" and _uses_compatible(settings):
        return name.rpartition("#")[2]
    return name if _PREFIXES.get(kind) == dialect and name else _MODELS[dialect]


def _uses_compatible(settings: ModelSettings) -> bool:
    return (settings.default or "").startswith(f"{_COMPATIBLE}:")


def _configured(dialect: Dialect, settings: ModelSettings) -> str:
    urls = {"anthropic": settings.anthropic_url, "openai": settings.openai_url, "gemini": settings.gemini_url}
    return urls[dialect] or ""


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
