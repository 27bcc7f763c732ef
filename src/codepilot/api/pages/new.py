"""The form for a new task of any kind, checked as it is filled in."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from codepilot.agents import agent_names
from codepilot.api.access import Fields, Operator
from codepilot.api.pages.notices import see_noticed
from codepilot.api.pages.render import render
from codepilot.api.routes.tasks import submit_document
from codepilot.api.service import Service, service_of
from codepilot.core.access import Principal, Scope
from codepilot.core.failures import CodePilotError
from codepilot.core.scaffold import Ecosystem, name_problem
from codepilot.core.task import InteractionMode
from codepilot.store import RunFilter
from codepilot.views.board import short_repo

router = APIRouter(include_in_schema=False)

KINDS = {
    "bugfix": ("Fix a test", "A failing test is repaired, and the change is proved."),
    "change": ("Change", "Any edit, under tests that must pass and commands that must succeed afterwards."),
    "build": ("Build", "From a description to tested code in a new directory."),
    "scaffold": ("New module", "A module with a build file, source, tests and a CI stub. It needs no model."),
    "prove": ("Judge a change", "A change that anybody made is judged by the same gates. No agent works on it."),
    "question": ("Question", "An answer about the repository, with the places that it rests on. Nothing is changed."),
}
_GOALS = {
    "bugfix": ("What is wrong, in words", "May be left empty: the failing test says it."),
    "change": ("What should be true after the change", ""),
    "build": ("What should be built", "10 to 500 characters, for example: a command that converts CSV to JSON."),
    "scaffold": ("What the module does", "May be left empty. With a model it is written, else it is a working start."),
    "prove": ("What the change is for", "May be left empty."),
    "question": ("What you want to know", "For example: where are totals rounded?"),
}
_DEFAULT_GOALS = {"bugfix": "Repair the failing test", "prove": "Judge the change", "scaffold": "Make the module"}
_INTERACTIONS = {
    InteractionMode.ASK_BEFORE_RISKY: "Before anything risky",
    InteractionMode.ASK_EVERY_STEP: "At every step",
    InteractionMode.FULL_AUTONOMY: "Never",
}
_MODES = {
    "": "As configured",
    "deterministic": "At the end of the agent's step",
    "interactive": "While it works",
}
_LANGUAGES = ("python", "node", "java")
_NAMES = (
    *("goal", "repo", "ref", "tests", "accept", "constraints", "diff", "changed", "language", "ecosystem", "name"),
    *("agent", "model", "interaction", "execution_mode", "cost_usd", "wall_sec"),
)
_CHOSEN = {
    "interaction": InteractionMode.ASK_BEFORE_RISKY.value,
    "language": "python",
    "ecosystem": Ecosystem.PYTHON.value,
}
_MOST_GIVEN = 4_000
"""Characters of a field that an address may give."""
_LOOKED_AT, _MOST_REPOSITORIES = 100, 20
_WITHOUT_REPOSITORY = ("build", "scaffold")
"""Kinds that make a directory of their own; a module joins a repository if one is named."""


@router.get("/new")
def new(request: Request, who: Operator, kind: Annotated[str, Query(max_length=20)] = "bugfix") -> Response:
    """The form; what the address gives of its fields is filled in."""
    given = {name: text[:_MOST_GIVEN] for name, text in request.query_params.items() if name in _NAMES}
    values = _values({**_CHOSEN, **given})
    return _form(request, who, kind if kind in KINDS else "bugfix", values)


@router.post("/new")
async def submit(request: Request, who: Operator, fields: Fields) -> Response:
    kind = fields.get("kind", "")
    if kind not in KINDS:
        kind = "bugfix"
    values = _values(fields)
    errors, problem = mistakes(kind, values), ""
    if not errors:
        try:
            document = json.dumps(document_of(kind, values))
            key = _key(fields.get("once", ""), document)
            begun = await run_in_threadpool(submit_document, service_of(request), who, document, key)
            return see_noticed(request, f"/runs/{begun.run_id}", "The task was submitted.")
        except CodePilotError as error:
            problem = " ".join(filter(None, [str(error.failure.message), error.failure.advice]))
    return await run_in_threadpool(_form, request, who, kind, values, errors, problem, 422)


def _key(once: str, document: str) -> str | None:
    """A form that is sent twice, by a second click or by going back, submits one task."""
    return f"form-{hashlib.sha256(f'{once}:{document}'.encode()).hexdigest()}" if once else None


def _values(fields: Mapping[str, str]) -> dict[str, str]:
    values = {name: fields.get(name, "").replace("\r\n", "\n") for name in _NAMES}
    values["execution_mode"] = values["execution_mode"] if values["execution_mode"] in _MODES else ""
    return values | {"ecosystem": values["ecosystem"] if values["ecosystem"] in list(Ecosystem) else Ecosystem.PYTHON}


@router.post("/new/check")
def check(request: Request, who: Operator, fields: Fields) -> Response:
    """What is wrong with each field so far."""
    values = _values(fields)
    kind = fields.get("kind", "")
    return JSONResponse(mistakes(kind, values) if kind in KINDS else {})


def _form(
    request: Request,
    who: Principal,
    kind: str,
    values: Mapping[str, str],
    errors: Mapping[str, str] | None = None,
    problem: str = "",
    status: int = 200,
) -> Response:
    settings = service_of(request).pilot.settings
    agents = [(name, name) for name in agent_names() if name != "template"]
    usual = settings.agents.default if kind == "bugfix" else settings.agent_with_model()
    return render(
        request,
        who,
        "new",
        active="New task",
        status=status,
        kinds=[(name, text[0]) for name, text in KINDS.items()],
        kind=kind,
        once=secrets.token_hex(16),
        about=KINDS[kind][1],
        problem=problem,
        errors=errors or {},
        values={**values, "agent": values["agent"] or usual},
        goal_label=_GOALS[kind][0],
        goal_help=_GOALS[kind][1],
        languages=[(one, one) for one in _LANGUAGES] if kind == "build" else (),
        ecosystems=[(one.value, one.value) for one in Ecosystem] if kind == "scaffold" else (),
        agents=agents,
        repositories=_repositories(service_of(request), who),
        modes=list(_MODES.items()),
        interactions=[(one.value, text) for one, text in _INTERACTIONS.items()],
    )


def _repositories(service: Service, who: Principal) -> list[str]:
    """The repositories of the newest runs that this user may name."""
    used = dict.fromkeys(row.repo for row in service.pilot.page(RunFilter(), _LOOKED_AT))
    own = who.scope.allows(Scope.ADMIN)
    return [repo for repo in used if short_repo(repo) and (own or "://" in repo)][:_MOST_REPOSITORIES]


def mistakes(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """What can be seen to be wrong without looking at the repository, by field. Pure."""
    wrong: dict[str, str] = {}
    goal = values["goal"].strip()
    if not goal and kind in ("change", "build", "question"):
        wrong["goal"] = "Say what should be done."
    if kind == "build" and goal and not 10 <= len(goal) <= 500:
        wrong["goal"] = f"Use 10 to 500 characters; these are {len(goal)}."
    if kind not in _WITHOUT_REPOSITORY and not values["repo"].strip():
        wrong["repo"] = "Name a checkout or a URL."
    for name, most in (("cost_usd", 10_000), ("wall_sec", 604_800)):
        if (text := values[name].strip()) and not _within(text, most):
            wrong[name] = f"Give a number between 0 and {most:,}."
    if kind == "scaffold" and (problem := name_problem(Ecosystem(values["ecosystem"]), values["name"].strip())):
        wrong["name"] = problem
    if kind == "prove" and values["diff"].strip() and values["changed"].strip():
        wrong["changed"] = "Give a diff or a branch, not both."
    return wrong


def _within(text: str, most: float) -> bool:
    try:
        return 0 < float(text) <= most
    except ValueError:
        return False


def document_of(kind: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The task document that the fields describe. Pure."""
    listed = ("tests", "accept", "constraints")
    lines = {name: [line.strip() for line in values[name].splitlines() if line.strip()] for name in listed}
    document: dict[str, Any] = {"kind": kind, "goal": values["goal"].strip() or _DEFAULT_GOALS.get(kind, "")}
    for name in ("repo", "ref"):
        if kind != "build" and (given := values[name].strip()):
            document[name] = given
    document |= {name: found for name, found in lines.items() if found}
    budget = {name: float(values[name]) for name in ("cost_usd", "wall_sec") if values[name].strip()}
    if budget:
        document["budget"] = budget
    if kind == "build":
        document["language"] = values["language"]
    if kind == "scaffold":
        wanted = {"ecosystem": values["ecosystem"], "name": values["name"].strip(), "join": "repo" in document}
        document["scaffold"] = wanted
        if not values["model"].strip():
            return document
    if kind == "prove":
        diff, changed = values["diff"], values["changed"].strip()
        document["proposed"] = {"diff": diff} if diff.strip() else {"ref": changed} if changed else {}
        return document
    if kind != "scaffold":
        document["agent"] = values["agent"]
    if kind in ("bugfix", "change", "build") and (mode := values["execution_mode"]):
        document["execution_mode"] = mode
    if values["model"].strip():
        document["model"] = values["model"].strip()
    profile: dict[str, Any] = {"interaction": {"mode": values["interaction"]}} if values["interaction"] else {}
    if kind == "question":
        profile["capability"] = "read_only"
    document["risk_profile"] = profile
    return document
