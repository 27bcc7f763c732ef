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

GROUP = "codepilot.models"
KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-compatible": "CODEPILOT_MODEL_KEY",
}
URLS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
USUAL = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5.1"}
"""What is asked when a provider's key is there and no model was chosen, the first such provider first."""
EXAMPLES = "anthropic:claude-sonnet-4-6, openai:gpt-5.1 or openai-compatible:http://127.0.0.1:11434/v1#qwen3"
_NEARBY = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Wanted:
    """A model's name taken apart, and what it is made from."""

    spec: str
    kind: str
    name: str
    environ: Mapping[str, str]
    settings: ModelSettings
    retry: Retry
    here: bool
    """Whether it is asked from this machine, which must have the key and the package then."""


def make_model(
    spec: str,
    fallback: str | None = None,
    *,
    environ: Mapping[str, str],
    settings: ModelSettings | None = None,
    retry: Retry | None = None,
    here: bool = True,
) -> Model:
    """The model that `spec` names, with `fallback` behind it. What cannot work is refused here, before it is asked."""
    make = partial(_make, environ=environ, settings=settings or ModelSettings(), retry=retry or Retry(), here=here)
    return FallbackModel(make(spec), make(fallback)) if fallback else make(spec)


def usual_model(environ: Mapping[str, str], settings: ModelSettings) -> str:
    """The model for somebody who did not choose one."""
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
    """Whether a provider's models could be asked from here; a key is never told."""

    name: str
    variable: str
    key_present: bool
    key_optional: bool
    package: str
    sdk_installed: bool
    url: str | None


def configured_models(environ: Mapping[str, str], settings: ModelSettings) -> tuple[Provider, ...]:
    """What the environment and the configuration give, looked at without importing an SDK."""
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


def settled(spec: str) -> str:
    """`spec` as it means the same wherever it is read: files by their whole path."""
    kind, _, name = spec.partition(":")
    return f"{kind}:{Path(name).expanduser().absolute()}" if kind in ("replay", "scripted") and name else spec


def _make(spec: str, *, environ: Mapping[str, str], settings: ModelSettings, retry: Retry, here: bool) -> Model:
    kind, colon, name = spec.partition(":")
    known: dict[str, Callable[[Wanted], Model]] = {
        "anthropic": _anthropic,
        "openai": _openai,
        "openai-compatible": _compatible,
        "replay": lambda wanted: replayed(Path(wanted.name)),
        "scripted": lambda wanted: scripted(Path(wanted.name)),
    }
    wanted = Wanted(spec, kind, name.strip(), environ, settings, retry, here)
    if redact(spec) != spec:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The model's name {redact(spec)!r} holds what looks like a key or a password.",
            next_action=f"Leave it out, and give keys in the environment: {', '.join(KEYS.values())}.",
        )
    if kind in known and wanted.name:
        return known[kind](wanted)
    from importlib.metadata import entry_points

    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if kind in others and colon:
        return _others(others[kind], wanted)
    raise _unknown(spec, kind, [*known, *others])


def _unknown(spec: str, kind: str, kinds: list[str]) -> CodePilotError:
    if kind in kinds:
        return CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{spec!r} names no model of {kind}.",
            next_action=f"Name it after a colon, for example {EXAMPLES}.",
        )
    close = difflib.get_close_matches(kind.lower(), kinds, 1)
    meant = f"; did you mean {close[0]}:…?" if close else _provider_of(spec)
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"There is no model {spec!r}{meant}",
        next_action=f"Use one of {', '.join(f'{each}:…' for each in kinds)}, for example {EXAMPLES}.",
    )


def _provider_of(spec: str) -> str:
    """A bare name that gives its maker away."""
    for provider, begins in (("anthropic", ("claude",)), ("openai", ("gpt", "o1", "o3", "o4", "codex", "chatgpt"))):
        if ":" not in spec and spec.lower().startswith(begins):
            return f"; did you mean {provider}:{spec}?"
    return "."


def _anthropic(wanted: Wanted) -> Model:
    from codepilot.models.anthropic import AnthropicModel

    _require_package(wanted, AnthropicModel.package)
    url = _url(wanted, wanted.settings.anthropic_url)
    return AnthropicModel(wanted.spec, _prices(wanted), _connection(wanted, url, _key(wanted)))


def _openai(wanted: Wanted) -> Model:
    from codepilot.models.openai import OpenAIModel

    _require_package(wanted, OpenAIModel.package)
    url = _url(wanted, wanted.settings.openai_url)
    return OpenAIModel(wanted.spec, _prices(wanted), _connection(wanted, url, _key(wanted)))


def _compatible(wanted: Wanted) -> Model:
    from codepilot.models.openai import OpenAIModel

    _require_package(wanted, OpenAIModel.package)
    url, _, name = wanted.name.rpartition("#")
    if not url or not name:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{wanted.spec!r} is not openai-compatible:URL#NAME.",
            next_action="For example openai-compatible:http://127.0.0.1:11434/v1#qwen3.",
        )
    _check_url(url, wanted.settings)
    known = wanted.settings.known.get(name, KnownModel())
    connection = _connection(wanted, url, _key(wanted, needed=False))
    return OpenAIModel(wanted.spec, Prices(name, url=url, known=known), connection, compatible=True)


def _others(entry: EntryPoint, wanted: Wanted) -> Model:
    """A model of an installed package: its entry point is a function of the name, the environment and the settings."""
    try:
        made: Model = entry.load()(wanted.name, wanted.environ, wanted.settings)
    except CodePilotError:
        raise
    except Exception as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The model {wanted.spec!r} of an installed package cannot be made: {type(error).__name__}.",
            next_action="Ask the makers of that package, or choose another model.",
        ) from error
    return made


def _prices(wanted: Wanted) -> Prices:
    known = wanted.settings.known.get(wanted.name, KnownModel())
    return Prices(wanted.name, provider=wanted.kind, known=known)


def _connection(wanted: Wanted, url: str | None, key: str | None) -> Connection:
    clean = Redactor({**wanted.environ, "MODEL_KEY": key or ""})
    return Connection(key=key, url=url, timeout_sec=wanted.settings.timeout_sec, retry=wanted.retry, clean=clean)


def _url(wanted: Wanted, configured: str | None) -> str | None:
    url = wanted.environ.get(URLS[wanted.kind], "").strip() or configured
    if url:
        _check_url(url, wanted.settings)
    return url


def _check_url(url: str, settings: ModelSettings) -> None:
    """Code and keys do not leave the machine in clear text unless that was said to be fine."""
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
            f"The address of the model at {host} holds a name or a password, which would be kept with the run.",
            next_action=f"Leave it out, and give a key as {KEYS['openai-compatible']}.",
        )
    if split.scheme == "http" and host not in _NEARBY and not settings.plain_http:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The model at {host} would get your code and its key unencrypted.",
            next_action="Name it by https, or set [models] plain_http = true.",
        )


def _require_package(wanted: Wanted, package: str) -> None:
    if wanted.here and find_spec(package) is None:
        raise sdk_missing(package)


def _key(wanted: Wanted, *, needed: bool = True) -> str | None:
    variable = KEYS[wanted.kind]
    key = wanted.environ.get(variable, "").strip()
    if not key and needed and wanted.here:
        raise CodePilotError(
            FailureKind.MODEL_AUTH,
            f"{wanted.spec} needs a key, and {variable} is not set.",
            next_action=f"Set {variable} in the environment, or choose another model.",
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise CodePilotError(
            FailureKind.MODEL_AUTH,
            f"{variable} has characters that no key has.",
            next_action="Copy the key again, without quotes, spaces or line breaks.",
        )
    return key or None
