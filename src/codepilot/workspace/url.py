"""URLs of repositories: what counts as one, and what in it must never be kept or shown. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEMES = re.compile(r"(?:https?|ssh|git|git\+ssh|file)://[^\s]+", re.IGNORECASE)
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!//)\S+")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::\d*)?")


def is_url(text: str) -> bool:
    """Whether this names a repository elsewhere, not a path."""
    return bool(_SCHEMES.fullmatch(text) or _SCP.fullmatch(text))


def has_password(url: str) -> bool:
    """Whether the URL itself carries a secret: a password, or over HTTP any user part, since that may be a token."""
    scheme, mark, _ = url.partition("://")
    user = _user_part(url) if mark else ""
    return ":" in unquote(user) or (bool(user) and scheme.lower() in ("http", "https"))


def shown_url(url: str) -> str:
    """The URL as a message may hold it: nothing of what stands before its host."""
    return url.replace(f"{_user_part(url)}@", "", 1)


def without_user(text: str, url: str) -> str:
    """What was said about a URL, as a message may hold it."""
    text = text.replace(url, shown_url(url))
    if user := _user_part(url):
        text = text.replace(f"{user}@", "")
    return re.sub(r"://[^/\s]*@", "://", text)


def _user_part(url: str) -> str:
    """What stands before the host. A password with an unescaped slash in it is taken for what it was meant to be."""
    _, mark, rest = url.partition("://")
    if not mark:
        return url.partition("@")[0] if _SCP.fullmatch(url) else url.rpartition("@")[0]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return authority.rpartition("@")[0]
    return "" if _HOST.fullmatch(authority) else rest.rpartition("@")[0]
