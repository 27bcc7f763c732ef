"""The package registries that this machine's own configuration of pip and npm names."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from codepilot.core.failures import CodePilotError, FailureKind

USUAL = ("https://pypi.org/simple",)
USUAL_FILES = ("files.pythonhosted.org",)
USUAL_NPM = "https://registry.npmjs.org/"
ASK_SEC = 60.0
_KEPT = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "default-timeout")


@dataclass(frozen=True)
class Registries:
    """Where packages come from: hosts, directories of this machine, and the installer's variables for inside."""

    hosts: tuple[str, ...]
    folders: tuple[str, ...]
    env: Mapping[str, str]


def npm_registries(npm: Path, environ: Mapping[str, str]) -> Registries:
    """What npm is configured with, in the user's files and in the environment; never in a repository's."""
    configured = {name: _npm_setting(npm, name, environ) for name in ("registry", "cafile")}
    url = configured["registry"] or USUAL_NPM
    _refuse_password(url, "npm's")
    certificate = configured["cafile"]
    folders = (certificate,) if certificate.startswith("/") and Path(certificate).is_file() else ()
    env = {"npm_config_registry": url, **({"npm_config_cafile": certificate} if folders else {})}
    return Registries((_host(url),), folders, env)


def _npm_setting(npm: Path, name: str, environ: Mapping[str, str]) -> str:
    kept = {one: environ[one] for one in environ if one in ("HOME", "PATH") or one.lower().startswith("npm_config_")}
    asked = subprocess.run(
        [str(npm), "config", "get", name],
        capture_output=True,
        text=True,
        timeout=ASK_SEC,
        env=kept,
        cwd="/",
        check=False,
    )
    configured = asked.stdout.strip()
    return "" if configured in ("null", "undefined") or "\n" in configured else configured


def _refuse_password(url: str, whose: str) -> None:
    if "@" in urlsplit(url).netloc:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "The address of a package registry holds a password, which may not enter the sandbox.",
            next_action=f"Put it into [[network.credentials]] of your configuration, the plain address into {whose}.",
        )


def registries(environ: Mapping[str, str]) -> Registries:
    """What pip is configured with, in its files and in the environment."""
    configured = _configured(environ)
    urls = [*configured.get("index-url", "").split(), *configured.get("extra-index-url", "").split()]
    offline = configured.get("no-index", "").lower() in ("1", "true", "yes", "on")
    if not any(configured.get("index-url", "").split()) and not offline:
        urls += USUAL
    links = configured.get("find-links", "").split()
    urls += [one for one in links if one.startswith(("http://", "https://"))]
    for one in urls:
        _refuse_password(one, "pip's")
    hosts = [_host(one) for one in urls]
    if any(one in USUAL for one in urls):
        hosts += USUAL_FILES
    folders = [one for one in links if one.startswith("/") and Path(one).is_dir()]
    certificate = configured.get("cert", "")
    if certificate.startswith("/") and Path(certificate).is_file():
        folders.append(certificate)
    env = {f"PIP_{name.upper().replace('-', '_')}": configured[name] for name in _KEPT if configured.get(name)}
    return Registries(() if offline else tuple(dict.fromkeys(one for one in hosts if one)), tuple(folders), env)


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port else host


def _configured(environ: Mapping[str, str]) -> dict[str, str]:
    """pip's settings by their names; the environment wins. Only pip itself knows where its files are."""
    names = (name for name in environ if name in ("HOME", "PATH") or name.startswith(("PIP_", "XDG_")))
    kept = {name: environ[name] for name in names}
    asked = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        timeout=ASK_SEC,
        env=kept,
        check=False,
    )
    configured: dict[str, str] = {}
    for line in asked.stdout.splitlines():
        name, found, value = line.partition("=")
        section, _, key = name.strip().rpartition(".")
        if found and section in ("global", "install", ":env:"):
            configured[key] = str(ast.literal_eval(value)) if value.startswith(("'", '"')) else value
    return configured | {name: environ[f"PIP_{name.upper().replace('-', '_')}"] for name in _KEPT
                   if f"PIP_{name.upper().replace('-', '_')}" in environ}  # fmt: skip
