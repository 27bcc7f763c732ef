"""The dashboard's pages: each function takes values and returns HTML. Nothing is looked up here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from markupsafe import escape

from codepilot.views.diff import FileDiff
from codepilot.views.page import PLACE, environment

Scope = Literal["viewer", "operator", "admin"]

PLACES = (
    ("Runs", "/"),
    ("Approvals", "/approvals"),
    ("Landing", "/landing"),
    ("Analytics", "/analytics"),
    ("Workers", "/workers"),
    ("Locks", "/locks"),
    ("Audit", "/audit"),
)


ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 18 18"><rect width="18" height="18" rx="5" fill="#3548c8"/>'
    '<path d="M5 9.5 8 12.5 13.2 6" fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>'
)


@dataclass(frozen=True)
class Frame:
    """What surrounds a page: who looks at it, what they may do, and the token that their forms carry."""

    user: str
    scope: Scope
    csrf: str
    active: str = ""
    waiting: int = 0
    """Requests that wait for an answer."""

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        return PLACES

    @property
    def may_operate(self) -> bool:
        return self.scope != "viewer"


@dataclass(frozen=True)
class Asked:
    """A request for approval, as a panel shows it."""

    run_id: str
    approval_id: str
    title: str
    operation: str
    details: str
    risk: str
    reasons: tuple[str, ...] = ()
    snippet: str = ""
    left: str = ""
    """The time until it is denied."""
    until: int | None = None
    files: Sequence[FileDiff] = ()
    """The change that is asked about, in place of the snippet."""
    link: str = ""
    """The run's title, where the panel stands on another page."""


@dataclass(frozen=True)
class Line:
    """A line of a run's log."""

    at: int
    state: str
    text: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    tone: str = ""
    link: str = ""
    code: bool = False
    number: bool = False


@dataclass(frozen=True)
class Table:
    """A page that is one table; `nothing` is the title and text of an empty one."""

    heading: str
    summary: str
    titles: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    nothing: tuple[str, str]
    following: str = ""
    follow: bool = False
    """True if the page changes with the runs."""


@dataclass(frozen=True)
class Chart:
    """A drawing with the numbers behind it."""

    title: str
    note: str
    drawing: str
    titles: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def render(template: str, frame: Frame, **values: Any) -> str:
    """A page of the dashboard; `values` are what its template names."""
    return environment().get_template(f"{template}.html").render(frame=frame, **values)


def render_table(frame: Frame, table: Table) -> str:
    return render("table", frame, **vars(table))


def message_page(heading: str, *lines: str, tone: str = "", sign_in: bool = False, **values: Any) -> str:
    """A page for somebody without a session: an error, a way in, or one request to answer."""
    given = {"asked": None, "address": "", "place": "/", "code": "", "request_id": "", **values}
    link = values.get("link", "")
    given["link"] = escape(link if link.isascii() and link.isprintable() else "")  # a form sends it unredacted
    template = environment().get_template("message.html")
    return template.render(heading=heading, lines=lines, tone=tone, sign_in=sign_in, **given)


def welcome_page(name: str, place: str = "/") -> str:
    """What a browser gets that has just signed in; it goes on to the page that was wanted."""
    unused = dict.fromkeys(("tone", "asked", "address", "link", "code", "request_id", "sign_in"), "")
    lines = ("Your page opens in a moment.",)
    return (
        environment()
        .get_template("welcome.html")
        .render(heading=f"Welcome, {name}", lines=lines, place=place, **unused)
    )


@cache
def stylesheet() -> str:
    """The style of every page of the dashboard."""
    return "".join((PLACE / name).read_text(encoding="utf-8") for name in ("style.css", "dashboard.css"))


@cache
def script() -> str:
    """The script that keeps pages up to date; every page works without it."""
    return (PLACE / "dashboard.js").read_text(encoding="utf-8")
