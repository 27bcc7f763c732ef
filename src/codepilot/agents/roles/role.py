"""A role: its purpose, its prompt, its output and the parameters of its model calls."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template

from pydantic import JsonValue

from codepilot.agents.protocol import StepContext
from codepilot.agents.transcript import bounded
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State
from codepilot.core.memory import MemoryKind
from codepilot.core.task import Capability
from codepilot.models import BYTES_PER_TOKEN, Message

Sections = dict[str, str]
ROOMY = 32_000
"""A model with a context of at least this many tokens gets the role's whole context."""
SHOWN_SHARE = 0.2
"""The most of a smaller model's context that is shown of the repository."""
SECTION_SHARE = 0.15
"""The most of a smaller model's context that one section of the task may have."""
LEAST_REPLY = 512
FRAME = Path(__file__).with_name("frame.md")


def _nothing(context: StepContext) -> JsonObject:
    return {}


def _as_given(value: JsonObject) -> JsonObject:
    return value


@dataclass(frozen=True)
class Names:
    """The skills and roles that a plan may name."""

    skills: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()


def _fits(made: Contract, names: Names) -> list[str]:
    return []


@dataclass(frozen=True)
class Limits:
    """Parameters of model calls that replace the role's own."""

    temperature: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True)
class Role:
    """One way of working, found by its name.

    `state` is the one that it plays; all of IMPLEMENT may have parts of a plan. `skills` names those it has, None for
    all that its capability allows. `outline_tokens` and `context_tokens` say how much it is shown of the repository
    before it has read anything. `filled` gives the fields of the output that the platform knows better than a
    model, `check` what is wrong with an output beyond its schema, `recalls` which memories of other runs it is shown,
    `quirks` whether it is shown what is peculiar about the repository,
    and `unreadable` the output of a model that gives none that can be read, where that is an answer too.
    """

    name: str
    purpose: str
    output: type[Contract]
    temperature: float
    max_tokens: int
    template: Path
    inputs: Callable[[StepContext], Sections]
    state: State = State.IMPLEMENT
    capability: Capability = Capability.READ_ONLY
    outline_tokens: int = 0
    context_tokens: int = 0
    skills: tuple[str, ...] | None = None
    recalls: MemoryKind | None = None
    quirks: bool = False
    given: tuple[str, ...] = ()
    filled: Callable[[StepContext], JsonObject] = _nothing
    check: Callable[[Contract, Names], list[str]] = _fits
    unreadable: Callable[[str], JsonObject] | None = None
    reads: Callable[[JsonObject], JsonObject] = _as_given
    """Brings other shapes of the result into this role's."""

    def within(self, limits: Limits) -> Role:
        """The role, asked as someone wants it to be."""
        temperature = self.temperature if limits.temperature is None else limits.temperature
        max_tokens = self.max_tokens if limits.max_tokens is None else limits.max_tokens
        return replace(self, temperature=temperature, max_tokens=max_tokens)

    def completed(self, value: JsonObject, context: StepContext) -> JsonObject:
        """The model's object with the platform's fields in place of the model's."""
        value, filled = self.reads(value), self.filled(context)
        own = {_plain(name) for name in (*self.given, *filled)}
        return {**{name: item for name, item in value.items() if _plain(name) not in own}, **filled}

    def fitting(self, room: int | None) -> Role:
        """The role for a model that takes in `room` tokens: a small one is shown less and gives shorter replies."""
        shown = self.outline_tokens + self.context_tokens
        if room is None or room >= ROOMY:
            return self
        share = min(1.0, room * SHOWN_SHARE / shown) if shown else 1.0
        return replace(
            self,
            max_tokens=min(self.max_tokens, max(LEAST_REPLY, room // 4)),
            outline_tokens=int(self.outline_tokens * share),
            context_tokens=int(self.context_tokens * share),
        )

    def form(self) -> str:
        """The form of a result. It is no JSON, so that a model cannot give it as its own."""
        asked = {name: schema for name, schema in self.fields().items() if '{"type": "null"}' not in json.dumps(schema)}
        fields = ", ".join(f'"{name}": {_kind(schema)}' for name, schema in asked.items())
        return f"<result>{{{fields}}}</result>"

    def fields(self) -> JsonObject:
        """The fields a result may have, each with its schema."""
        held = json.loads(self.schema()).get("properties")
        return held if isinstance(held, dict) else {}

    def schema(self) -> str:
        """The fields a result may have, as JSON Schema without decoration."""
        schema: JsonObject = self.output.model_json_schema(by_alias=False)
        for part in ("properties", "required"):
            held = schema.get(part)
            if isinstance(held, dict):
                schema[part] = {name: item for name, item in held.items() if name not in self.given}
            elif isinstance(held, list):
                schema[part] = [name for name in held if name not in self.given]
        return json.dumps(_undecorated(_reachable(schema)), ensure_ascii=False)


def opening(
    role: Role, context: StepContext, tools: str, part: Sections | None = None, room: int | None = None
) -> tuple[Message, ...]:
    """The system message and the task message of a role's conversation; `part` describes its place in a plan.

    For a model that takes in few tokens (`room`) each section is cut.
    """
    system = Template(_text(FRAME)).substitute(
        name=role.name,
        purpose=role.purpose,
        network=_reached(context),
        guidance=_text(role.template).strip(),
        tools=tools,
        schema=role.schema(),
        example=_example(context),
        result=role.form(),
    )
    most = int(room * BYTES_PER_TOKEN * SECTION_SHARE) if room is not None and room < ROOMY else sys.maxsize
    sections = {"Task": context.run.task.goal.natural, **role.inputs(context), **(part or {})}
    cut = {title: bounded(text.strip(), most) for title, text in sections.items() if text.strip()}
    task = "\n\n".join(f"# {title}\n{text}" for title, text in cut.items())
    return Message(role="system", content=system), Message(role="user", content=task)


def _example(context: StepContext) -> str:
    """A first action that is useful in this task, since weak models repeat what they are shown."""
    files = [test.partition("::")[0] for test in context.targets if "::" in test]
    return f"print(read_file({files[0]!r}))" if files else "print(list_files())"


def _kind(schema: JsonValue) -> str:
    """A field's kind for the form of a result."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(schema, dict) and isinstance(names := schema.get("enum"), list):
        return " or ".join(f'"{name}"' for name in names)
    return f"<{kind}>" if isinstance(kind, str) else "<value>"


def _reached(context: StepContext) -> str:
    hosts = ", ".join(context.run.task.hosts)
    return f"Of the network there is only {hosts}." if hosts else "There is no network."


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _reachable(schema: JsonObject) -> JsonObject:
    """The schema without definitions that nothing refers to."""
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return schema
    rest = {name: item for name, item in schema.items() if name != "$defs"}
    kept: JsonObject = {}
    text = json.dumps(rest)
    while True:
        found = {name: item for name, item in definitions.items() if f'"#/$defs/{name}"' in text and name not in kept}
        if not found:
            return {**rest, "$defs": kept} if kept else rest
        kept.update(found)
        text += json.dumps(found)


def _undecorated(value: JsonValue, names: bool = False) -> JsonValue:
    """Titles, defaults and closedness say nothing to a model. Property names are left alone."""
    if isinstance(value, list):
        return [_undecorated(item) for item in value]
    if not isinstance(value, dict):
        return value
    noise = set() if names else {"title", "default", "additionalProperties", "description"}
    return {
        name: _undecorated(item, names=not names and name in ("properties", "$defs"))
        for name, item in value.items()
        if name not in noise
    }
