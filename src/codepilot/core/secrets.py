"""The patterns of keys, tokens and passwords, for redaction, review checks and skills."""

import re

# Every repetition that may fail is bounded: hostile text must not take quadratic time.
_KEY_LABEL = "[A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
SHAPES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("a private key", ("-----begin",), rf"-----BEGIN {_KEY_LABEL}.*?(?:-----END {_KEY_LABEL}|\Z)"),
    ("a model provider's key", ("sk-",), r"\bsk-(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{16,}"),
    ("a Stripe key", ("k_live_",), r"\b[rs]k_live_[0-9A-Za-z]{20,}"),
    ("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    ("a GitHub token", ("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("a GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("a Slack token", ("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("an AWS access key", ("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a Google API key", ("aiza",), r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("a Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{20,}"),
    ("a CodePilot token", ("cpt_", "cps_", "cpl_"), r"\bcp[tsl]_[0-9a-f]{12}_[A-Za-z0-9_-]{40,}"),
    ("an npm token", ("npm_",), r"\bnpm_[A-Za-z0-9]{30,}"),
    ("a PyPI token", ("pypi-",), r"\bpypi-[A-Za-z0-9_-]{20,}"),
    (
        "a JSON web token",
        ("eyj",),
        r"\beyJ[A-Za-z0-9_-]{8,512}\.eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,}",
    ),
)
"""The kind of a secret, lowercase hints of which its text contains one, and its pattern."""

SHAPE = re.compile("|".join(pattern for _, _, pattern in SHAPES), re.DOTALL)
SHAPE_HINTS = tuple(hint for _, hints, _ in SHAPES for hint in hints)
URL_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,200}):[^\s/@]{1,500}@")
QUOTED_SECRET = re.compile(
    r"(?i)\b\w{0,60}?(?:secret|token|passw(?:or)?d|passwd|api_?key|access_?key|private_?key|credential)\w{0,60}['\"]?\s{0,20}(?::\s{0,20}\w{1,60}\s{0,20})?[:=]\s{0,20}"
    r"['\"]([^'\"\s]{8,})['\"]"
)
"""A literal that is assigned to a name of a secret; the literal is group 1."""
PLACEHOLDER = re.compile(
    r"(?i)example|placeholder|changeme|dummy|your[_-]|xxx|\*\*\*|<[^>]+>|\$\{|\{\{|%\(|test|fake|sample"
)
"""Placeholders for secrets."""
SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|notify_url")
"""Names of variables whose values are secrets."""

_SHAPES = tuple((kind, re.compile(pattern, re.DOTALL)) for kind, _, pattern in SHAPES)


def known_secrets(line: str) -> list[tuple[str, str]]:
    """The kinds and texts of what has the shape of a secret in a line of code."""
    found = [(kind, match[0]) for kind, pattern in _SHAPES if (match := pattern.search(line))]
    url = URL_PASSWORD.search(line)
    if url and not re.search(r"[{}$<>'\"]", url[0]):
        found.append(("a password in a URL", url[0]))
    return found
