"""Settings: the user's file, the repository's file, the environment and flags; later ones win.

A repository may be stricter than its user, never looser: no weaker sandbox level, no longer list of hosts, no executor
elsewhere, no more money, no memory that the user does not want. `level = "none"` counts only as a flag.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from codepilot.core import DEFAULT_AGENT
from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.interactive import InteractiveSettings
from codepilot.core.memory import MemorySettings
from codepilot.core.notify import secrets_in
from codepilot.core.pipeline import pipeline_of
from codepilot.core.policy import Policy, tightened
from codepilot.core.project_settings import TOML_BYTES, parse_toml
from codepilot.core.task import LONGEST_COMMAND_SEC, Budget, TaskKind
from codepilot.engine.sections import USER_ONLY, Sections
from codepilot.store import Home
from codepilot.telemetry import Redactor

if TYPE_CHECKING:
    from codepilot.sandbox import Credential

FILE_NAME = "codepilot.toml"
ENV_PREFIX = "CODEPILOT_"
TOKEN_VARIABLE = "CODEPILOT_EXECUTOR_TOKEN"
STORE_VARIABLE = "CODEPILOT_STORE"
ARTIFACTS_VARIABLE = "CODEPILOT_ARTIFACTS"


class Settings(Sections):
    """Everything that is configured, as one value: made where a command or program begins, and passed down.

    Nothing below reads the environment of the process; what is needed of it is in `environ`.
    """

    model_config = ConfigDict(hide_input_in_errors=True, ignored_types=(cached_property,))

    home: Home
    store: str | None = None
    """The store that is named; None means the home's own."""
    artifacts: str | None = None
    """The place for artifacts that is named; None means the home's own."""
    environ: Mapping[str, str] = Field(default={}, repr=False, exclude=True)
    """The environment: keys of models and buckets, PATH, VIRTUAL_ENV."""
    _user: Mapping[str, Mapping[str, Any]] = PrivateAttr(default_factory=dict)
    _flags: Mapping[str, Mapping[str, Any]] = PrivateAttr(default_factory=dict)

    @classmethod
    def load(
        cls,
        repo: Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> Self:
        """Read the chain. A mistake in a file is an error that names the file and the key.

        `environ` is this process's environment by default. `flags` are `home`, `store`, `artifacts`, and sections with
        their keys; they win over everything else.
        """
        values = dict(os.environ if environ is None else environ)
        own, given = user_file(values), dict(flags or {})
        user: dict[str, dict[str, Any]] = {}
        if own is not None and own.is_file():
            _merge(user, _validate(_read(own), str(own)).model_dump(exclude_unset=True))
            _validate(user, str(own))
        places = _places(values, given)
        return cls._chain(repo, user, given, places)

    @classmethod
    def for_reading(cls) -> Self:
        """The settings for commands that only read. A mistake in a file does not stop them: the home, the store and the
        artifacts are named by the environment.
        """
        try:
            return cls.load()
        except CodePilotError:
            return cls(**_places(dict(os.environ), {}))

    def agent_with_model(self) -> str:
        """The agent for tasks that need a model: the default one if it has a model, else codeact."""
        return self.agents.default if self.agents.default != DEFAULT_AGENT else "codeact"

    def for_repository(self, root: Path | None) -> Self:
        """The same settings with those of a repository's own file, or without any repository's."""
        places = {name: getattr(self, name) for name in ("home", "store", "artifacts", "environ")}
        return self._chain(root, self._user, self._flags, places)

    @classmethod
    def _chain(
        cls,
        repo: Path | None,
        user: Mapping[str, Mapping[str, Any]],
        flags: Mapping[str, Mapping[str, Any]],
        places: Mapping[str, Any],
    ) -> Self:
        merged: dict[str, dict[str, Any]] = {}
        _merge(merged, user)
        source = None if repo is None else repo / FILE_NAME
        if source is not None and source.is_file():
            sections = _validate(_read(source), str(source))
            _merge(merged, _tightened(sections.model_dump(exclude_unset=True), sections, merged, str(source)))
            _validate(merged, str(source))
        _merge(merged, _from_environment(places["environ"]))
        _merge(merged, flags)
        found = _validate(merged, "the environment")
        made = cls(**{name: getattr(found, name) for name in Sections.model_fields}, **places)
        made._user, made._flags = user, flags
        return made

    def policy_sources(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """The policy in the user's file, and the environment's variables for it by their keys."""
        policy_variables = _from_environment(self.environ).get("policy", {})
        return self._user.get("policy", {}), {key: f"{ENV_PREFIX}POLICY_{key.upper()}" for key in policy_variables}

    @property
    def file(self) -> Path | None:
        """The user's own configuration file, whether it is there or not."""
        return user_file(self.environ)

    @staticmethod
    def check_budget(kind: TaskKind, limits: Mapping[str, Any]) -> Budget:
        """A kind's budget with these limits; raises if they are nonsense."""
        return make_budget(kind, limits)

    @property
    def executor_token(self) -> str | None:
        return self.environ.get(TOKEN_VARIABLE)

    def credentials(self) -> tuple[Credential, ...]:
        """What the proxy adds to requests, with the values that the environment has."""
        from codepilot.sandbox import Credential

        return tuple(Credential(**vars(one), environ=self.environ) for one in self.network.credentials)

    @property
    def notify_url(self) -> str | None:
        """Where the ends of runs are notified."""
        return None if self.notify.url is None else self.notify.url.get_secret_value()

    @cached_property
    def redact(self) -> Redactor:
        """Removes from text the secrets of the environment and of the notification URL."""
        return Redactor(self.environ, secrets_in(self.notify_url or ""))


def make_budget(kind: TaskKind, *layers: Mapping[str, Any]) -> Budget:
    """The kind's defaults with every layer on top; unknown keys and nonsense are refused by name."""
    values = pipeline_of(kind).budget.model_dump()
    known = sorted(values)
    for layer in layers:
        for key, value in layer.items():
            if key not in values:
                raise CodePilotError(
                    FailureKind.INVALID_SPEC,
                    f"There is no budget called {key!r}.",
                    next_action=f"Use one of: {', '.join(known)}.",
                )
            values[key] = value
    try:
        budget = Budget.model_validate(values)
    except ValidationError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The budget cannot be used: {first_mistake(error)}.",
            next_action="Give a positive number, for example --budget wall_sec=600.",
        ) from error
    if budget.command_sec > LONGEST_COMMAND_SEC:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The budget cannot be used: command_sec is {budget.command_sec:g}, and no command may take longer than a"
            f" day ({LONGEST_COMMAND_SEC:g} s).",
            next_action="Give less; wall_sec bounds the run as a whole.",
        )
    return budget


def _places(environ: Mapping[str, str], given: dict[str, Any]) -> dict[str, Any]:
    """Home, store and artifacts, which no file names; those that are `given` are taken out of it."""
    return {
        "home": Home(Path(given.pop("home")).absolute()) if "home" in given else Home.default(environ),
        "store": given.pop("store", None) or environ.get(STORE_VARIABLE) or None,
        "artifacts": given.pop("artifacts", None) or environ.get(ARTIFACTS_VARIABLE) or None,
        "environ": environ,
    }


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The user's own configuration file, whether it is there or not."""
    config_home = environ.get("XDG_CONFIG_HOME")
    if config_home:
        return Path(config_home) / "codepilot" / FILE_NAME
    home = environ.get("HOME")
    return Path(home) / ".config" / "codepilot" / FILE_NAME if home else None


def _read(source: Path) -> dict[str, Any]:
    try:
        with source.open("rb") as file:
            return parse_toml(file.read(TOML_BYTES + 1))
    except (ValueError, OSError) as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{source} cannot be read: {error}.",
            next_action="Correct the file and try again.",
        ) from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """`CODEPILOT_BUDGET_WALL_SEC=60` sets `[budget] wall_sec`."""
    found: dict[str, dict[str, Any]] = {}
    for section in Sections.model_fields:
        prefix = f"{ENV_PREFIX}{section.upper()}_"
        for name, value in environ.items():
            if name.startswith(prefix) and name != TOKEN_VARIABLE:
                found.setdefault(section, {})[name.removeprefix(prefix).lower()] = value
    return found


def _tightened(
    layer: dict[str, Any], sections: Sections, so_far: Mapping[str, Mapping[str, Any]], source: str
) -> dict[str, Any]:
    """The settings of a repository's file, made no looser than the user's."""
    for section, why in USER_ONLY.items():
        if section in layer:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{source}: a repository may not choose {why}.",
                next_action=f"Move [{section}] to your own configuration.",
            )
    if "budget" in layer:
        layer["budget"] = _cheaper(sections.budget, so_far.get("budget", {}))
    if "policy" in layer:
        mine = Policy.model_validate(so_far.get("policy", {}))
        wish = mine.model_copy(update=_given(sections.policy))
        layer["policy"] = tightened(mine, wish).model_dump()
    if "interactive" in layer:
        usual = InteractiveSettings.model_validate(so_far.get("interactive", {}))
        asked = usual.model_copy(update=_given(sections.interactive))
        layer["interactive"] = usual.tightened(asked).model_dump()
    if "memory" in layer:
        own = MemorySettings.model_validate(so_far.get("memory", {}))
        wanted = own.model_copy(update=_given(sections.memory))
        layer["memory"] = own.tightened(wanted).model_dump()
    if layer.get("sandbox", {}).get("level", "bubblewrap") != "bubblewrap":
        del layer["sandbox"]["level"]  # any other than the strongest could be weaker than what its reader would get
    return layer


def _given(section: Contract) -> dict[str, Any]:
    """The values that a file sets, as they are: `model_dump` would make plain dictionaries of inner tables."""
    return {name: getattr(section, name) for name in section.model_fields_set}


def _cheaper(budget: Mapping[str, int | float], so_far: Mapping[str, Any]) -> dict[str, int | float]:
    """A repository may lower everything, and raise what its reader has not set, but never money or a review's size."""
    usual = Budget().model_dump(include={"tokens", "cost_usd", "patch_lines"})
    limits = {**usual, **so_far}
    return {key: min(value, limits[key]) if key in limits else value for key, value in budget.items()}


def _merge(into: dict[str, dict[str, Any]], layer: Mapping[str, Any]) -> None:
    for section, values in layer.items():
        if isinstance(values, Mapping):
            into.setdefault(section, {}).update(values)
        else:
            into[section] = values


def _validate(merged: Mapping[str, Any], source: str) -> Sections:
    try:
        return Sections.model_validate(merged)
    except ValidationError as error:
        line = _line_of(source, [str(part) for part in error.errors()[0]["loc"]])
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{source}{f', line {line}' if line else ''}: {first_mistake(error)}.",
            next_action="Correct that setting and try again.",
        ) from error


def first_mistake(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "[key]" and not str(part).startswith("literal["))
    alike = [one for one in error.errors() if one["loc"][:-1] == first["loc"][:-1] and one["type"] == "literal_error"]
    if len(alike) > 1 and str(first["loc"][-1]).startswith("literal["):
        values = ", ".join(str(one["ctx"]["expected"]).replace(" or ", ", ") for one in alike)
        return f"{where}: Input should be one of {values}"
    if first["type"] == "extra_forbidden":
        return f"there is no setting {where}{_meant(first['loc'])}"
    if first["type"] in ("model_type", "model_attributes_type"):
        return f"[{where}] must be a section"
    message = first["msg"].removeprefix("Value error, ")[:300]
    return f"{where}: {message}" if where else message


def document_mistake(error: ValidationError, fields: Iterable[str]) -> str:
    """The first mistake of a JSON document whose own fields are these."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(where, list(fields), 1)
        return f"there is no field {where}" + (f"; did you mean {close[0]}?" if close else ".")
    if first["type"] in ("model_type", "model_attributes_type"):
        return f"{where}: Input should be an object."
    if first["type"] == "tuple_type":
        return f"{where}: Input should be a list."
    return f"{first_mistake(error)}."


def _line_of(source: str, place: list[str]) -> int | None:
    """The line of a configuration file that sets the key at `place`, or opens its table."""
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    table: list[str] = []
    found, depth = None, 0
    for number, line in enumerate((line[:_LONGEST_LINE] for line in lines), 1):
        if header := _HEADER.match(line):
            named = table = _parts(header[1])
        elif setting := _SETTING.match(line):
            named = [*table, *_parts(setting[1])]
        else:
            continue
        if depth < len(named) and named == place[: len(named)]:
            found, depth = number, len(named)
    return found


def _parts(key: str) -> list[str]:
    return [part.strip().strip("\"'") for part in key.split(".")]


_LONGEST_LINE = 1000
_HEADER = re.compile(r"\s*\[+([^\[\]]+)\]+\s*(?:#.*)?$")
_SETTING = re.compile(r"\s*([\w.\"' -]+?)\s*=")


def _meant(place: tuple[int | str, ...]) -> str:
    known: Mapping[str, Any] = Sections.model_fields
    for part in place[:-1]:
        section = known[str(part)].annotation if str(part) in known else None
        known = getattr(section, "model_fields", {})
    close = difflib.get_close_matches(str(place[-1]), list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
