"""Profiles: everything that is known about an agent's program, by name. The only place that knows one.

Those below are shipped. Packages add some by the entry point `codepilot.profiles`, and the user's `[profiles.NAME]`
changes single fields of any of them or makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from codepilot.core.attempt import AUTH, QUOTA, Profile
from codepilot.core.failures import CodePilotError, FailureKind

GROUP = "codepilot.profiles"

_CODEX = """
check_for_update_on_startup = false
model_provider = "codepilot"
sandbox_mode = "danger-full-access"
[features]
plugins = false
[analytics]
enabled = false
[model_providers.codepilot]
name = "codepilot"
base_url = "{OPENAI_BASE_URL}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 1
stream_max_retries = 1
[projects."{directory}"]
trust_level = "trusted"
"""
_GEMINI = """{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false},
 "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 2}}
"""
_OPENCODE = """{"autoupdate": false, "share": "disabled",
 "permission": {"edit": "ask", "bash": "ask", "webfetch": "ask"},
 "provider": {"anthropic": {"options": {"baseURL": "{env:ANTHROPIC_BASE_URL}/v1"}},
              "google": {"options": {"baseURL": "{env:GOOGLE_GEMINI_BASE_URL}/v1beta"}}}}
"""

SHIPPED: Mapping[str, Profile] = {
    one.name: one
    for one in (
        Profile(
            name="claude",
            adapter="claude",
            command=("claude", "--permission-mode", "manual"),
            auth_regex=(*AUTH, r"run /login", r"oauth token"),
            quota_regex=(*QUOTA, r"hit your (?:usage |session |weekly )?limit", r"\(429\)"),
            permission_regex={
                "press_1": (r"do you want to (?:create|proceed|make|overwrite)", r"1\. Yes, I trust this folder"),
                "press_up": (r"\S No, exit$",),
            },
            keys={"press_1": "1", "press_up": "\x1b[A\r"},
            env={
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_TELEMETRY": "1",
            },
            files={
                ".claude.json": '{"hasCompletedOnboarding": true, "customApiKeyResponses": {"approved": ["{key}"]},'
                ' "projects": {"{directory}": {"hasTrustDialogAccepted": true}}}'
            },
        ),
        Profile(
            name="codex",
            adapter="codex",
            command=("codex", "--no-daemon"),
            auth_regex=(*AUTH, r"missing environment variable"),
            quota_regex=(*QUOTA, r"too many requests", r"hit your usage limit"),
            permission_regex={
                "press_1": (r"trust this folder\?", r"would you like to (?:run|make|apply)"),
                "press_p": (r"\bpress p\b",),
            },
            keys={"press_1": "1", "press_p": "p"},
            files={".codex/config.toml": _CODEX},
        ),
        Profile(
            name="gemini",
            adapter="gemini",
            command=("gemini",),
            permission_regex={"press_1": (r"do you trust this folder", r"(?:apply|allow) .{0,60}\?")},
            keys={"press_1": "1"},
            env={"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"},
            files={".gemini/settings.json": _GEMINI},
        ),
        Profile(
            name="opencode",
            adapter="opencode",
            command=("opencode",),
            permission_regex={"press_1": (r"permission required",)},
            keys={"press_1": "\r"},
            env={
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            },
            files={".config/opencode/opencode.json": _OPENCODE},
        ),
        Profile(
            name="shell",
            command=("/bin/sh", "-c", "{prompt}"),
            permission_regex={"press_1": (r"\bpress 1\b",), "press_p": (r"\bpress p\b",)},
        ),
    )
}


def profile(name: str, configured: Mapping[str, Profile]) -> Profile:
    """The profile of a name, with what the user configured of it; raises if nobody knows it."""
    known, own = _installed().get(name), configured.get(name)
    if own is None and known is None:
        names = ", ".join(profile_names(configured))
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There is no profile {name!r}.",
            next_action=f"Use one of: {names}; or write [profiles.{name}] in your own codepilot.toml.",
        )
    if own is None or known is None:
        return (own or known or Profile()).model_copy(update={"name": name})
    changed = {field: getattr(own, field) for field in own.model_fields_set}
    if "command" in changed:
        changed.setdefault("adapter", "")
    return known.model_copy(update={**changed, "name": name})


def profile_names(configured: Mapping[str, Profile]) -> tuple[str, ...]:
    """The names of all profiles, sorted."""
    return tuple(sorted({*_installed(), *configured}))


@cache
def _installed() -> Mapping[str, Profile]:
    found = dict(SHIPPED)
    for point in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
        loaded = point.load()
        if not isinstance(loaded, Profile):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The profile {point.name!r} ({point.value}) is a {type(loaded).__name__}, not a Profile.",
                next_action="Update or uninstall the package that provides it.",
            )
        found.setdefault(point.name, loaded.model_copy(update={"name": point.name}))
    return found
