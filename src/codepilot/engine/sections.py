"""The sections of a configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

from codepilot.core import DEFAULT_AGENT
from codepilot.core.attempt import Profile
from codepilot.core.contract import Contract
from codepilot.core.interactive import InteractiveSettings
from codepilot.core.memory import MemorySettings
from codepilot.core.model_settings import ModelSettings
from codepilot.core.notify import mistake_in
from codepilot.core.policy import Host, Policy
from codepilot.core.project_settings import ProjectSettings
from codepilot.core.task import Budget

USER_ONLY = {
    "agents": "which agent works on it",
    "executor": "where its code is sent",
    "network": "which of your credentials are used",
    "models": "which models are asked, and where",
    "profiles": "which programs are started",
    "notify": "where the ends of runs are posted",
    "retention": "how long your history is kept",
    "service": "who may use your service",
}
"""Sections that only the user's own configuration may have."""


class SandboxSection(Contract):
    """Where the project's code runs."""

    level: Literal["best", "bubblewrap", "landlock"] = "best"
    """The level; `best` takes the strongest that works here, any other refuses the run if that level does not work."""


class ExecutorSection(Contract):
    """Where code runs; in this process unless an executor is named. Its token comes from the environment alone."""

    url: str | None = None
    """The address of an executor on another machine."""
    plain_http: bool = False
    """True if code and token may travel unencrypted to another machine."""


class CredentialSetting(Contract):
    """A header that the proxy adds to requests for one host; its value stays in the host's environment."""

    host: Host
    """The host, with its port if that is not 443."""
    header: str
    """The header's name."""
    environment: str
    """The variable that holds the value."""
    prefix: str = ""
    """What stands before the value, for example `Bearer `."""
    tls: bool = True
    """False if the host speaks plain HTTP."""


class NetworkSection(Contract):
    """The proxy through which code inside reaches the hosts of `[policy] hosts`."""

    credentials: tuple[CredentialSetting, ...] = ()
    """Headers that the proxy adds. Code inside never sees them."""


class NotifySection(Contract):
    """Where the ends of runs are posted. The URL may hold a secret and is never shown."""

    url: SecretStr | None = None
    """The webhook that is called when a run ends or waits for you."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr | None) -> SecretStr | None:
        if url is None or not url.get_secret_value():
            return None
        if mistake := mistake_in(url.get_secret_value()):
            raise ValueError(mistake)
        return url


class AgentSettings(Contract):
    """How one agent is run."""

    model: str | None = None
    """The model that it asks; by default its usual one."""
    credentials: Literal["gateway", "share"] = "gateway"
    """`gateway` keeps your keys outside the sandbox; `share` copies the agent's own login into it."""


class AgentsSection(Contract):
    """Which agent works on a task that names none, and how agents are run that are programs of their own."""

    default: str = DEFAULT_AGENT
    """The agent's name: `repair`, `codeact`, `claude`, `codex`, `gemini`, `opencode`, `acp:COMMAND`, `stdio:COMMAND`,
    `pty:COMMAND` or an installed one."""
    fallback: tuple[str, ...] = ()
    """The agents that go on, in this order, when a quota is used up."""
    on_quota: Literal["switch", "wait", "stop"] = "switch"
    """When an agent's quota is used up: `switch` goes on with the next agent of `fallback`, else waits for the reset;
    `wait` always waits; `stop` leaves the run to you."""
    no_progress_sec: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """How long an agent's program may report nothing before it is ended."""
    named: Mapping[str, AgentSettings] = {}
    """How one agent is run, as a table `[agents.NAME]`."""

    @model_validator(mode="before")
    @classmethod
    def _tables(cls, values: Any) -> Any:
        """Take `[agents.NAME]` as `named`."""
        if not isinstance(values, dict):
            return values
        tables = {name: one for name, one in values.items() if isinstance(one, dict) and name != "named"}
        rest = {name: one for name, one in values.items() if name not in tables}
        return {**rest, "named": {**rest.get("named", {}), **tables}} if tables else values

    def of(self, name: str) -> AgentSettings:
        """The settings of one agent."""
        return self.named.get(name, AgentSettings())


Days = Annotated[float, Field(ge=0, le=36_500)]


class RetentionSection(Contract):
    """How long `codepilot gc` keeps what ended runs left; without a number, for ever."""

    bundles_days: Days | None = None
    """Remove the bundles of runs that ended longer ago."""
    history_days: Days | None = None
    """Remove runs that ended longer ago, with all that is theirs."""


class ServiceSection(Contract):
    """Who may use `codepilot serve`, and how much."""

    url: str | None = None
    """The address at which people reach the service, for links; by default the one that it listens on."""
    trusted_header: str | None = None
    """The header in which an identity proxy names the user; without it, everyone needs a token or a session."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """The addresses of that proxy; the header of any other is ignored."""
    proxy_scope: Literal["viewer", "operator", "admin"] = "operator"
    """What users that the proxy names may do."""
    admins: tuple[str, ...] = ()
    """Users of the proxy who may do everything."""
    session_hours: Annotated[float, Field(gt=0, le=8760)] = 12.0
    """How long a browser stays logged in."""
    requests_per_min: Annotated[int, Field(gt=0)] = 1200
    """Requests that one user may make in a minute, on average; a tenth of them at once."""
    streams: Annotated[int, Field(gt=0)] = 2000
    """Live streams that may be open at a time."""
    body_mb: Annotated[int, Field(gt=0, le=256)] = 16
    """The largest body of a request, in MiB."""
    upload_mb: Annotated[int, Field(gt=0)] = 1024
    """The largest base that a client may send, in MiB."""
    traces: str | None = None
    """Where workers send OpenTelemetry traces of ended runs: an OTLP receiver over HTTP, `http://127.0.0.1:4318`."""
    repository_hosts: tuple[Host, ...] = ()
    """Hosts that repository URLs may name although they are private: `git.internal`, `10.0.0.5:8443`."""

    @field_validator("traces")
    @classmethod
    def _is_http(cls, traces: str | None) -> str | None:
        if traces and not re.fullmatch(r"https?://[^\s/@]+(/[^\s?#]*)?", traces):
            raise ValueError(
                "give http://HOST:PORT or https://HOST:PORT; headers with keys are in OTEL_EXPORTER_OTLP_HEADERS"
            )
        return traces or None


def _known_budget(key: str) -> str:
    if key not in Budget.model_fields:
        raise ValueError(f"there is no budget {key!r}; use one of {', '.join(sorted(Budget.model_fields))}")
    return key


class Sections(Contract):
    """The sections of a configuration file."""

    model_config = ConfigDict(hide_input_in_errors=True)

    project: ProjectSettings = ProjectSettings()
    sandbox: SandboxSection = SandboxSection()
    budget: Mapping[Annotated[str, AfterValidator(_known_budget)], int | float] = {}
    policy: Policy = Policy()
    agents: AgentsSection = AgentsSection()
    profiles: Mapping[str, Profile] = {}
    """Programs on a terminal, or changes to what is known of one: its command, its prompts, how it fails."""
    interactive: InteractiveSettings = InteractiveSettings()
    locks: Mapping[str, tuple[str, ...]] = {}
    """Names for files that one run at a time may change, each with patterns of paths."""
    executor: ExecutorSection = ExecutorSection()
    network: NetworkSection = NetworkSection()
    models: ModelSettings = ModelSettings()
    memory: MemorySettings = MemorySettings()
    notify: NotifySection = NotifySection()
    retention: RetentionSection = RetentionSection()
    service: ServiceSection = ServiceSection()
