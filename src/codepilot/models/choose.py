"""From a model's name to the model: `anthropic:NAME`, `openai:NAME`, `openai-compatible:URL#NAME`, `replay:FILE`, …

Keys come from the environment alone. Other packages add kinds of models by the entry point group `codepilot.models`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from codepilot.core.events import Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import KnownModel, ModelSettings
from codepilot.models.connection import Connection, Retry
from codepilot.models.errors import sdk_missing
from codepilot.models.fallback import FallbackModel
from codepilot.models.prices import Prices
from codepilot.models.protocol import Model
from codepilot.models.scripted import replayed, scripted
from codepilot.telemetry.redact import Redactor, redact

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from codepilot.models.sdk import SdkModel

GROUP = "codepilot.models"
KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-compatible": "CODEPILOT_MODEL_KEY",
}
URLS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
USUAL = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5.1"}
"""The model of each provider that is used if no model is chosen. The first provider with a key wins."""
EXAMPLES = "anthropic:claude-sonnet-4-6, openai:gpt-5.1 or openai-compatible:http://127.0.0.1:11434/v1#qwen3"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ModelSpec:
    """A model's parsed name and the settings it is made with."""

    text: str
    kind: str
    name: str
    environ: Mapping[str, str]
    settings: ModelSettings
    retry: Retry
    here: bool
    """True if this machine calls the model, and so needs its key and package."""


def make_model(
    spec: str,
    fallback: str | None = None,
    *,
    environ: Mapping[str, str],
    settings: ModelSettings | None = None,
    retry: Retry | None = None,
    here: bool = True,
) -> Model:
    """The model that `spec` names, with `fallback` behind it. Raises if it cannot be called."""
    make = partial(_make, environ=environ, settings=settings or ModelSettings(), retry=retry or Retry(), here=here)
    return FallbackModel(make(spec), make(fallback)) if fallback else make(spec)


def usual_model(environ: Mapping[str, str], settings: ModelSettings) -> str:
    """The model to use if the user chose none."""
    if settings.default:
        return settings.default
    for provider, name in USUAL.items():
        if environ.get(KEYS[provider], "").strip():
            return f"{provider}:{name}"
    raise CodePilotError(
        FailureKind.INVALID_SPEC,
        "No model is chosen and there is no key for one in the environment.",
        next_action=f"Set {KEYS['anthropic']} or {KEYS['openai']}, or choose with --model: {EXAMPLES}.",
    )


@dataclass(frozen=True)
class Provider:
    """A provider's configuration on this machine, without the key."""

    name: str
    variable: str
    key_present: bool
    key_optional: bool
    package: str
    sdk_installed: bool
    url: str | None


def configured_models(environ: Mapping[str, str], settings: ModelSettings) -> tuple[Provider, ...]:
    """The providers as configured, found without importing an SDK."""
    urls = {"anthropic": settings.anthropic_url, "openai": settings.openai_url}
    return tuple(
        Provider(
            name=name,
            variable=variable,
            key_present=bool(environ.get(variable, "").strip()),
            key_optional=name == "openai-compatible",
            package=name.partition("-")[0],
            sdk_installed=find_spec(name.partition("-")[0]) is not None,
            url=redact(environ.get(URLS.get(name, ""), "").strip() or urls.get(name) or "") or None,
        )
        for name, variable in KEYS.items()
    )


def plain_name(model: str) -> str:
    """A model's name without its provider, as the programs of that provider take it."""
    kind, _, name = model.partition(":")
    return name if kind in ("anthropic", "openai", "gemini", "google") and name else model


def settled(spec: str) -> str:
    """`spec` with absolute file paths, so that it means the same in any directory."""
    kind, _, name = spec.partition(":")
    return f"{kind}:{Path(name).expanduser().absolute()}" if kind in ("replay", "scripted") and name else spec


def _make(name: str, *, environ: Mapping[str, str], settings: ModelSettings, retry: Retry, here: bool) -> Model:
    kind, colon, rest = name.partition(":")
    known: dict[str, Callable[[ModelSpec], Model]] = {
        "anthropic": _official,
        "openai": _official,
        "openai-compatible": _compatible,
        "replay": lambda spec: replayed(Path(spec.name)),
        "scripted": lambda spec: scripted(Path(spec.name)),
    }
    parsed = ModelSpec(name, kind, rest.strip(), environ, settings, retry, here)
    if redact(name) != name:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The model's name {redact(name)!r} seems to contain a key or a password.",
            next_action=f"Leave it out, and give keys in the environment: {', '.join(KEYS.values())}.",
        )
    if kind in known and parsed.name:
        return known[kind](parsed)
    from importlib.metadata import entry_points

    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if kind in others and colon:
        return _from_package(others[kind], parsed)
    raise _unknown(name, kind, [*known, *others])


def _unknown(spec: str, kind: str, kinds: list[str]) -> CodePilotError:
    if kind in kinds:
        return CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{spec!r} names no model of {kind}.",
            next_action=f"Name it after a colon, for example {EXAMPLES}.",
        )
    close = difflib.get_close_matches(kind.lower(), kinds, 1)
    meant = f"; did you mean {close[0]}:…?" if close else _suggestion(spec)
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"There is no model {spec!r}{meant}",
        next_action=f"Use one of {', '.join(f'{each}:…' for each in kinds)}, for example {EXAMPLES}.",
    )


def _suggestion(spec: str) -> str:
    """A suggestion for a bare name whose provider is known by its prefix."""
    for provider, begins in (("anthropic", ("claude",)), ("openai", ("gpt", "o1", "o3", "o4", "codex", "chatgpt"))):
        if ":" not in spec and spec.lower().startswith(begins):
            return f"; did you mean {provider}:{spec}?"
    return "."


def _official(spec: ModelSpec) -> Model:
    _require_package(spec, spec.kind)
    model: type[SdkModel]
    if spec.kind == "anthropic":
        from codepilot.models.anthropic import AnthropicModel

        model, configured = AnthropicModel, spec.settings.anthropic_url
    else:
        from codepilot.models.openai import OpenAIModel

        model, configured = OpenAIModel, spec.settings.openai_url
    url = spec.environ.get(URLS[spec.kind], "").strip() or configured
    if url:
        check_url(url, spec.settings)
    prices = Prices(spec.name, provider=spec.kind, known=spec.settings.known.get(spec.name, KnownModel()))
    return model(spec.text, prices, _connection(spec, url, _key(spec)))


def _compatible(spec: ModelSpec) -> Model:
    from codepilot.models.openai import OpenAIModel

    _require_package(spec, OpenAIModel.package)
    url, _, name = spec.name.rpartition("#")
    if not url or not name:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{spec.text!r} is not openai-compatible:URL#NAME.",
            next_action="For example openai-compatible:http://127.0.0.1:11434/v1#qwen3.",
        )
    check_url(url, spec.settings)
    known = spec.settings.known.get(name, KnownModel())
    connection = _connection(spec, url, _key(spec, needed=False))
    return OpenAIModel(spec.text, Prices(name, url=url, known=known), connection, compatible=True)


def price_of(spec: str, usage: Usage, settings: ModelSettings) -> float | None:
    """What a model asks for this usage, in dollars; None if its price is not known. Recorded replies cost nothing."""
    kind, _, name = spec.partition(":")
    if kind in ("replay", "scripted"):
        return 0.0
    url, _, plain = name.rpartition("#") if kind == "openai-compatible" else ("", "", name)
    if kind not in KEYS:
        return None
    known = settings.known.get(plain, KnownModel())
    priced = Prices(plain, provider=None if url else kind, url=url or None, known=known).priced(usage)
    return None if priced.unpriced_tokens else priced.cost_usd


def _from_package(entry: EntryPoint, spec: ModelSpec) -> Model:
    """A model of an installed package. Its entry point is called with the name, the environment and the settings."""
    try:
        made: Model = entry.load()(spec.name, spec.environ, spec.settings)
    except CodePilotError:
        raise
    except Exception as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The model {spec.text!r} of an installed package cannot be made: {type(error).__name__}.",
            next_action="Report it to that package, or choose another model.",
        ) from error
    return made


def _connection(spec: ModelSpec, url: str | None, key: str | None) -> Connection:
    clean = Redactor({**spec.environ, "MODEL_KEY": key or ""})
    return Connection(key=key, url=url, timeout_sec=spec.settings.timeout_sec, retry=spec.retry, clean=clean)


def check_url(url: str, settings: ModelSettings) -> None:
    """Refuse an address that is malformed, holds a password, or would send code and key unencrypted."""
    try:
        split = urlsplit(url)
        host = split.hostname
    except ValueError:
        split, host = urlsplit(""), None
    if split.scheme not in ("http", "https") or not host:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{redact(url)!r} is not the address of a model.",
            next_action="Give one that begins with https:// or http://, for example http://127.0.0.1:11434/v1.",
        )
    if split.username or split.password:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The address of the model at {host} contains a user name or a password, which the run would record.",
            next_action=f"Leave it out, and give a key as {KEYS['openai-compatible']}.",
        )
    if split.scheme == "http" and host not in _LOOPBACK and not settings.plain_http:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The model at {host} would get your code and its key unencrypted.",
            next_action="Name it by https, or set [models] plain_http = true.",
        )


def _require_package(spec: ModelSpec, package: str) -> None:
    if spec.here and find_spec(package) is None:
        raise sdk_missing(package)


def _key(spec: ModelSpec, *, needed: bool = True) -> str | None:
    variable = KEYS[spec.kind]
    key = spec.environ.get(variable, "").strip()
    if not key and needed and spec.here:
        raise CodePilotError(
            FailureKind.MODEL_AUTH,
            f"{spec.text} needs a key, and {variable} is not set.",
            next_action=f"Set {variable} in the environment, or choose another model.",
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise CodePilotError(
            FailureKind.MODEL_AUTH,
            f"{variable} contains characters that no key has.",
            next_action="Copy the key again, without quotes, spaces or line breaks.",
        )
    return key or None
