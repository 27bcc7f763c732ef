"""The Agent Client Protocol, version 1: Gemini CLI, OpenCode, and any other agent that speaks it.

The messages are those of the package `agent-client-protocol`, which is imported when an agent starts. Files and
commands stay the agent's own business inside the sandbox: no policy rests on calls of the client's side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from codepilot.agents.cli.failures import failure, kind_of, lost_session
from codepilot.agents.cli.line_agent import Answered, LineAgent, Outgoing, Read, Send
from codepilot.agents.cli.parsing import bounded, details_of, in_tree, mapping, message_text, number_of, text_of
from codepilot.agents.cli.programs import (
    Program,
    find_command,
    first_endpoint,
    found,
    login_file,
    model_environment,
    shared_login,
    version_of,
)
from codepilot.agents.cli.protocol import (
    AgentMessage,
    AgentStart,
    Failed,
    Feature,
    Permission,
    PlanShown,
    Probe,
    RunningAgent,
    SessionOpened,
    Text,
    ToolCall,
    ToolResult,
    TurnEnded,
    UsageSeen,
)
from codepilot.core.contract import JsonObject
from codepilot.core.events import Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import HomeFile
from codepilot.models.gateway import Dialect, ModelEndpoint

if TYPE_CHECKING:
    from acp import schema
    from pydantic import BaseModel

    from codepilot.core.permit import Kind

FEATURES: frozenset[Feature] = frozenset(
    ("interactive_mode", "working_directory", "pause_resume", "messages", "acknowledgement")
)
PACKAGE = "agent-client-protocol"
_VERSION = 1
_NO_METHOD = -32601
_NEEDS_LOGIN = -32000
_STEERING = "_session/steering"
_MOST_CALLS = 1_000
"""Tool calls that are remembered, the newest."""
_IDLE = ("available_commands_update", "current_mode_update", "config_option_update", "session_info_update")
"""Updates that say nothing about the turn."""
_LOST = ("session/resume", "session/load")
_STOPS: Mapping[str, tuple[FailureKind, str]] = {
    "refusal": (FailureKind.MODEL_REFUSED, "the model refused to go on"),
    "max_tokens": (FailureKind.MODEL_BAD_REPLY, "the model's reply was cut off at its longest"),
    "max_turn_requests": (FailureKind.STUCK, "it made as many requests as it may in one turn"),
}


class AcpConversation:
    """The dialect's `Conversation`."""

    def __init__(self, name: str, prompt: str, directory: str, resume: str | None = None) -> None:
        from acp import schema

        self.session_id: str | None = None
        self._schema = schema
        self._name = name
        self._prompt = prompt
        self._directory = directory
        self._resume = resume
        self._numbers = 0
        self._asked: dict[int, tuple[str, str, tuple[str, ...]]] = {}
        """Requests that are not answered: method, and the text and names of the messages that they carry."""
        self._running = True
        self._replaying = False
        self._steers = False
        self._held: list[tuple[str, str]] = []
        """Messages that wait for the turn to end."""
        self._unseen: tuple[str, ...] = ()
        """Messages that were sent and not taken in yet."""
        self._open: dict[str, tuple[JsonValue, schema.RequestPermissionRequest, set[str]]] = {}
        self._calls: dict[str, _Call] = {}
        self._denied: set[str] = set()
        self._words = ""
        self._replied = False
        """True if the turn under way had words or tools."""

    @property
    def busy(self) -> bool:
        return self._running or bool(self._held) or bool(self._asked)

    def open(self) -> Sequence[JsonObject]:
        capabilities = self._schema.ClientCapabilities(
            fs=self._schema.FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
        )
        client = self._schema.Implementation(name="codepilot", version="1")
        return [
            self._request(
                "initialize",
                self._schema.InitializeRequest(
                    protocol_version=_VERSION, client_capabilities=capabilities, client_info=client
                ),
            )
        ]

    def read(self, line: JsonObject) -> Iterable[Read]:
        method, params = line.get("method"), line.get("params")
        try:
            if method is None:
                return self._answered(line)
            if method == "session/update":
                return self._updated(self._schema.SessionNotification.model_validate(params))
            if method == "session/request_permission":
                return self._permission(line["id"], self._schema.RequestPermissionRequest.model_validate(params))
        except ValidationError:
            pass  # a kind of update that this version of the protocol does not have
        if "id" in line and method is not None:
            error: JsonObject = {"code": _NO_METHOD, "message": f"{method} is not supported"}
            return [Send({"jsonrpc": "2.0", "id": line["id"], "error": error})]
        return ()

    def answer(self, permission_id: str, allow: bool, message: str) -> Sequence[JsonObject]:
        request = permission_id.rpartition(":")[0]
        if request not in self._open:
            return ()
        number, asked, questions = self._open[request]
        questions.discard(permission_id)
        if allow and questions:
            return ()
        del self._open[request]
        if not allow:
            self._denied.add(asked.tool_call.tool_call_id)
            if message:
                self._held.append((f"[CodePilot] That was refused: {message}", ""))
        return [_chosen(number, asked.options, allow), *(self._steer() if not allow else ())]

    def encode(self, message: AgentMessage) -> Outgoing | None:
        if message.type in ("pause_request", "resume"):
            return None
        self._numbers += 1
        key = f"codepilot-{self._numbers}"
        self._held.append((message_text(message), key))
        if self._running:
            return Outgoing(tuple(self._steer()), key)
        return Outgoing((self._next_turn(),), key)

    def interrupt(self) -> Sequence[JsonObject]:
        if self.session_id is None:
            return ()
        waiting = [_cancelled(number) for number, _, _ in self._open.values()]
        self._open.clear()
        cancel = self._schema.CancelNotification(session_id=self.session_id)
        return [{"jsonrpc": "2.0", "method": "session/cancel", "params": _plain(cancel)}, *waiting]

    def explain(self, words: str) -> FailureKind | None:
        return kind_of(words)

    def _request(self, method: str, params: BaseModel, text: str = "", keys: tuple[str, ...] = ()) -> JsonObject:
        self._numbers += 1
        self._asked[self._numbers] = (method, text, keys)
        return {"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": _plain(params)}

    def _turn(self, text: str, keys: tuple[str, ...] = ()) -> JsonObject:
        self._running, self._replied, self._unseen = True, False, keys
        return self._request("session/prompt", self._prompted(text), text, keys)

    def _next_turn(self) -> JsonObject:
        held, self._held = self._held, []
        return self._turn("\n\n".join(text for text, _ in held), tuple(key for _, key in held if key))

    def _prompted(self, text: str) -> schema.PromptRequest:
        block = self._schema.TextContentBlock(type="text", text=text)
        return self._schema.PromptRequest(session_id=self.session_id or "", prompt=[block])

    def _steer(self) -> list[JsonObject]:
        """Send waiting messages within the running turn, if the agent accepts that."""
        if not self._steers or self.session_id is None or not self._held:
            return []
        held, self._held = self._held, []
        lines = []
        for text, key in held:
            steer = self._prompted(text)
            steer.field_meta = {"steering": {"idleBehavior": "promptRequired"}}
            lines.append(self._request(_STEERING, steer, text, (key,) if key else ()))
        return lines

    def _answered(self, line: JsonObject) -> Iterable[Read]:
        number = line.get("id")
        if not isinstance(number, int) or number not in self._asked:
            return ()
        method, text, keys = self._asked.pop(number)
        if "error" in line:
            return self._refused(method, text, keys, mapping(line["error"]))
        result = mapping(line.get("result"))
        match method:
            case "initialize":
                return self._initialized(self._schema.InitializeResponse.model_validate(result))
            case "session/new" | "session/resume" | "session/load":
                self._replaying = False
                self.session_id = self._resume or text_of(result.get("sessionId"))
                return [SessionOpened(self.session_id), Send(self._turn(self._prompt))]
            case "session/prompt":
                return self._stopped(self._schema.PromptResponse.model_validate(result), result)
            case "_session/steering" if result.get("outcome") != "injected":
                self._held[:0] = [(text, keys[0] if keys else "")]
                return [] if self._running else [Send(self._next_turn())]
            case "_session/steering":
                return [Answered(key) for key in keys]
        return ()

    def _initialized(self, response: schema.InitializeResponse) -> Iterable[Read]:
        steering = mapping((response.field_meta or {}).get("steering"))
        self._steers = bool(steering.get("supported"))
        if self._resume is None:
            fresh = self._schema.NewSessionRequest(cwd=self._directory, mcp_servers=[])
            return [Send(self._request("session/new", fresh))]
        able = response.agent_capabilities or self._schema.AgentCapabilities()
        if able.session_capabilities is not None and able.session_capabilities.resume is not None:
            again = self._schema.ResumeSessionRequest(cwd=self._directory, session_id=self._resume, mcp_servers=[])
            return [Send(self._request("session/resume", again))]
        if able.load_session:
            self._replaying = True
            load = self._schema.LoadSessionRequest(cwd=self._directory, session_id=self._resume, mcp_servers=[])
            return [Send(self._request("session/load", load))]
        words = "it cannot go on with a session"
        return [Failed(lost_session(failure(self._name, words, FailureKind.AGENT_CRASHED)))]

    def _refused(self, method: str, text: str, keys: tuple[str, ...], error: Mapping[str, JsonValue]) -> Iterable[Read]:
        if method == _STEERING:
            self._steers = False
            self._held[:0] = [(text, keys[0] if keys else "")]
            return [] if self._running else [Send(self._next_turn())]
        code, data = error.get("code"), error.get("data")
        parts = (text_of(error.get("message")), data if isinstance(data, str) else json.dumps(data) if data else "")
        words = " ".join(part for part in parts if part).removeprefix("Internal error: ") or "an error"
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        if code == _NEEDS_LOGIN:
            return [Failed(failure(self._name, words, FailureKind.MODEL_AUTH))]
        if method in _LOST:
            return [Failed(lost_session(failure(self._name, words, FailureKind.AGENT_CRASHED)))]
        kind = kind_of(words) or kind_of("", status)  # some agents call every error 500
        return [Failed(failure(self._name, words, kind, status=status))]

    def _stopped(self, response: schema.PromptResponse, result: Mapping[str, JsonValue]) -> Iterable[Read]:
        self._running = False
        events: list[Read] = [*self._spoken(), *self._seen(), *self._unreported()]
        if (used := _usage(response, result)).tokens:
            events.append(UsageSeen(used))
        if response.stop_reason in _STOPS:
            kind, words = _STOPS[response.stop_reason]
            return [*events, Failed(failure(self._name, words, kind))]
        if response.stop_reason == "end_turn" and not self._replied:
            return [*events, Failed(failure(self._name, "the model's reply was empty", FailureKind.MODEL_BAD_REPLY))]
        events.append(TurnEnded())
        if self._held:
            events.append(Send(self._next_turn()))
        return events

    def _updated(self, notification: schema.SessionNotification) -> Iterable[Read]:
        if self._replaying:
            return ()
        update = notification.update
        events: list[Read] = self._seen() if update.session_update not in _IDLE else []
        match update:
            case self._schema.AgentMessageChunk():
                piece = update.content.text if isinstance(update.content, self._schema.TextContentBlock) else ""
                self._words, self._replied = bounded(self._words + piece), self._replied or bool(piece)
                return [*events, Text(bounded(piece), final=False)] if piece else events
            case self._schema.ToolCallStart() | self._schema.ToolCallProgress():
                self._replied = True
                return [*events, *self._spoken(), *self._tool(update)]
            case self._schema.AgentPlanUpdate():
                return [*events, PlanShown(tuple(entry.content for entry in update.entries))]
        return events

    def _tool(self, update: schema.ToolCallStart | schema.ToolCallProgress) -> Iterable[Read]:
        call = self._call(update.tool_call_id)
        call.learn(update, self._directory)
        events: list[Read] = call.shown() if update.status in ("in_progress", "completed", "failed") else []
        if update.status in ("completed", "failed") and not call.ended:
            call.ended = True
            denied = call.number in self._denied
            text = bounded("\n".join(filter(None, map(_text, update.content or ()))))
            events.append(ToolResult(call.number, update.status == "completed" and not denied, text, denied))
        return events

    def _permission(self, number: JsonValue, asked: schema.RequestPermissionRequest) -> Iterable[Read]:
        call = self._call(asked.tool_call.tool_call_id)
        call.learn(asked.tool_call, self._directory)
        self._replied = True
        operation, subjects = call.meaning
        request = json.dumps(number)
        questions = [f"{request}:{place}" for place in range(len(subjects))]
        self._open[request] = (number, asked, set(questions))
        details = details_of(dict(mapping(asked.tool_call.raw_input)))
        return [
            *self._spoken(),
            *call.shown(),
            *(
                Permission(question, operation, bounded(subject), details, call.kind)
                for question, subject in zip(questions, subjects, strict=True)
            ),
        ]

    def _call(self, number: str) -> _Call:
        """What is known of a tool call."""
        call = self._calls.setdefault(number, _Call(number))
        while len(self._calls) > _MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        return call

    def _unreported(self) -> list[Read]:
        """The calls that were refused, from agents that do not report their end."""
        refused = [self._calls[number] for number in self._denied if number in self._calls]
        self._denied.clear()
        return [ToolResult(call.number, ok=False, denied=True) for call in refused if not call.ended]

    def _spoken(self) -> list[Read]:
        """The words that came in pieces, as a whole."""
        words, self._words = self._words, ""
        return [Text(words)] if words.strip() else []

    def _seen(self) -> list[Read]:
        keys, self._unseen = self._unseen, ()
        return [Answered(key) for key in keys]


@dataclass
class _Call:
    """What is known of a tool call, which agents report piece by piece."""

    number: str
    kind: str = "other"
    title: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()
    reported: bool = False
    ended: bool = False

    def learn(
        self, update: schema.ToolCallStart | schema.ToolCallProgress | schema.ToolCallUpdate, directory: str
    ) -> None:
        self.kind = update.kind or self.kind
        self.title = bounded(update.title or self.title)
        given = mapping(update.raw_input)
        command = given.get("command")
        words = " ".join(map(str, command)) if isinstance(command, list) else text_of(command)
        self.command = bounded(words or self.command)
        named = [place.path for place in update.locations or ()]
        named += [one.path for one in update.content or () if one.type == "diff"]
        named += [text_of(given.get(key)) for key in ("file_path", "filePath", "filepath", "path")]
        found = tuple(dict.fromkeys(in_tree(path, directory) for path in named if path))
        self.paths = found or self.paths

    @property
    def meaning(self) -> tuple[Kind, tuple[str, ...]]:
        """What it does, as the policy names it."""
        match self.kind:
            case "execute":
                return "command", (self.command or self.title,)
            case "edit" | "delete" | "move":
                return "path", self.paths or (self.title,)
            case "fetch":
                return "network", (self.title,)
        return "tool", (" ".join((self.kind, *self.paths)) if self.paths else self.title or self.kind,)

    def shown(self) -> list[Read]:
        """The call as an event, once."""
        if self.reported:
            return []
        self.reported = True
        return [ToolCall(self.kind, bounded(", ".join(self.meaning[1])), self.number)]


class AcpAdapter:
    """`acp:COMMAND`: an agent of any name. It finds its models by the usual variables."""

    dialect: Dialect | None = None
    features = FEATURES

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        self.name = name
        self._argv = tuple(argv)

    def probe(self, environ: Mapping[str, str]) -> Probe:
        return _probed(find_command(self._argv, environ), environ, None)

    def start(self, start: AgentStart) -> RunningAgent:
        program = found(find_command(self._argv, start.environ), self.name)
        return _running(self.name, program, start, (), model_environment(start))


class GeminiAdapter:
    name = "gemini"
    dialect: Dialect | None = "gemini"
    features = FEATURES
    login = ".gemini/oauth_creds.json"

    def probe(self, environ: Mapping[str, str]) -> Probe:
        return _probed(find_command((self.name,), environ), environ, self.login)

    def start(self, start: AgentStart) -> RunningAgent:
        program = found(find_command((self.name,), start.environ), self.name)
        endpoint = start.endpoint("gemini") if start.endpoint is not None else None
        environment = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
        if endpoint is not None:
            environment |= {"GEMINI_API_KEY": endpoint.api_key, "GOOGLE_GEMINI_BASE_URL": endpoint.base_url}
        kind = "gemini-api-key" if endpoint is not None else "oauth-personal"
        files = [HomeFile(path=".gemini/settings.json", content=json.dumps(_gemini_settings(kind)).encode())]
        if endpoint is None:
            files.append(shared_login(start.environ, self.login, self.name))
        model = start.model or (endpoint.model if endpoint is not None else "")
        arguments = ("--acp", *(("-m", model) if model else ()))
        return _running(self.name, program, start, arguments, environment, files)


class OpenCodeAdapter:
    name = "opencode"
    dialect: Dialect | None = None
    features = FEATURES
    login = ".local/share/opencode/auth.json"

    def probe(self, environ: Mapping[str, str]) -> Probe:
        return _probed(find_command((self.name,), environ), environ, self.login)

    def start(self, start: AgentStart) -> RunningAgent:
        program = found(find_command((self.name,), start.environ), self.name)
        endpoint = first_endpoint(start) if start.endpoint is not None else None
        files = () if endpoint is not None else (shared_login(start.environ, self.login, self.name),)
        environment = {
            "OPENCODE_CONFIG_CONTENT": json.dumps(_opencode_settings(endpoint, start.model)),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        return _running(self.name, program, start, ("acp",), environment, files)


def _running(
    name: str,
    program: Program,
    start: AgentStart,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[HomeFile] = (),
) -> RunningAgent:
    if find_spec("acp") is None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{name} needs the package {PACKAGE!r}, which is not installed.",
            f"Install it into CodePilot's environment: pip install {PACKAGE}",
        )
    process = start.start_process(program.process(start, arguments, environment, files))
    return LineAgent(name, process, AcpConversation(name, start.prompt, start.directory, start.resume), FEATURES)


def _probed(program: Program, environ: Mapping[str, str], login: str | None) -> Probe:
    probe = program.probe(FEATURES, version_of(program), login is not None and login_file(environ, login) is not None)
    if probe.found and find_spec("acp") is None:
        return replace(probe, works=(), problem=f"the package {PACKAGE!r} is not installed")
    return probe


def _gemini_settings(kind: str) -> JsonObject:
    return {
        "security": {"auth": {"selectedType": kind}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2},
    }


_OPENCODE_PACKAGES: Mapping[Dialect, str] = {
    "anthropic": "@ai-sdk/anthropic",
    "openai": "@ai-sdk/openai-compatible",
    "gemini": "@ai-sdk/google",
}


def _opencode_settings(endpoint: ModelEndpoint | None, model: str) -> JsonObject:
    settings: JsonObject = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "ask", "bash": "ask", "webfetch": "ask"},
    }
    if endpoint is None:
        return {**settings, "model": model} if model else settings
    name = model or endpoint.model
    versions = {"anthropic": "/v1", "openai": "", "gemini": "/v1beta"}
    options: JsonObject = {"baseURL": endpoint.base_url + versions[endpoint.dialect], "apiKey": endpoint.api_key}
    provider: JsonObject = {
        "npm": _OPENCODE_PACKAGES[endpoint.dialect],
        "name": "CodePilot",
        "options": options,
        "models": {name: {"name": name}},
    }
    chosen = f"codepilot/{name}"
    return {**settings, "model": chosen, "small_model": chosen, "provider": {"codepilot": provider}}


def _plain(value: BaseModel) -> JsonObject:
    plain: JsonObject = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain


def _chosen(number: JsonValue, options: Sequence[schema.PermissionOption], allow: bool) -> JsonObject:
    """The answer to a permission request: never for longer than this once, unless there is no other way to say no."""
    wanted = ("allow_once",) if allow else ("reject_once", "reject_always")
    option = next((one.option_id for kind in wanted for one in options if one.kind == kind), None)
    if option is None:
        return _cancelled(number)
    outcome: JsonObject = {"outcome": "selected", "optionId": option}
    return {"jsonrpc": "2.0", "id": number, "result": {"outcome": outcome}}


def _cancelled(number: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": number, "result": {"outcome": {"outcome": "cancelled"}}}


def _text(
    content: schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent,
) -> str:
    return text_of(getattr(content.content, "text", "")) if content.type == "content" else ""


def _usage(response: schema.PromptResponse, result: Mapping[str, JsonValue]) -> Usage:
    """What the turn used, as far as the agent says so."""
    if response.usage is not None:
        taken_in, output = response.usage.input_tokens, response.usage.output_tokens
        cached = response.usage.cached_read_tokens or 0
    else:
        counted = mapping(mapping(mapping(result.get("_meta")).get("quota")).get("token_count"))
        taken_in, output = number_of(counted.get("input_tokens")), number_of(counted.get("output_tokens"))
        cached = 0
    return Usage(turns=1, tokens=taken_in + output, input_tokens=taken_in, output_tokens=output, cached_tokens=cached)
