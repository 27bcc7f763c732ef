"""Pages as HTML: the templates, their style sheet, and the policy that lets a page load nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from codepilot.core.events import Event
from codepilot.core.run import Run
from codepilot.telemetry import Clean, redact
from codepilot.views import text
from codepilot.views.run import run_page

PLACE = Path(__file__).parent / "templates"


def bundle_page(run: Run, events: Sequence[Event], clean: Clean = redact) -> str:
    """A run as one self-contained page: it runs no script and requests nothing.

    `clean` removes secrets from prose; the diff is shown as it is.
    """
    page = run_page(run, events, clean)
    template, style = environment().get_template("bundle.html"), _style()
    about = {
        "style": Markup(style),
        "policy": content_policy(style),
        "bars": (),
        "following": "",
        "dashboard": False,
        "tree": None,
    }
    return template.render(page=page, run=run, clean=clean, **about)


def content_policy(style: str) -> str:
    """The Content-Security-Policy of a page with this inline style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@pass_context
def _shown(context: Context, value: object) -> object:
    """Every value that a template prints, unless it is HTML already: without secrets and without invisible characters.

    Jinja escapes the result.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return text.visible(context.get("clean", redact)(value))
    return value


@cache
def _style() -> str:
    return (PLACE / "style.css").read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates. Everything that they print is escaped, cleaned of secrets, and visible."""
    environment = Environment(
        loader=FileSystemLoader(PLACE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "duration": text.duration,
        "money": text.money,
        "sentence": text.sentence,
        "label": text.label,
        "rfc3339": text.rfc3339,
        "clock": text.clock,
        "ago": text.ago,
        "fenced": text.fenced,
    }
    environment.globals |= {"counted": text.counted}
    return environment
