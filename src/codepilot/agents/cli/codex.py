"""Codex: `codex app-server`, JSON-RPC without its version field. Codex asks us before commands and file changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from codepilot.agents.cli.failures import failure, kind_of, lost_session
from codepilot.agents.cli.line_agent import Answered, LineAgent, Outgoing, Read, Send
from codepilot.agents.cli.parsing import bounded, details_of, in_tree, items, mapping, message_text, number_of, text_of
from codepilot.agents.cli.programs import find_command, found, login_file, shared_login, version_of
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
from codepilot.core.failures import Failure, FailureKind
from codepilot.executor import HomeFile
from codepilot.models.gateway import Dialect, ModelEndpoint

if TYPE_CHECKING:
    from codepilot.core.permit import Kind

FEATURES: frozenset[Feature] = frozenset(
    ("interactive_mode", "working_directory", "pause_resume", "messages", "acknowledgement")
)
LOGIN = ".codex/auth.json"
_CONFIG = ".codex/config.toml"
_KEY = "CODEPILOT_MODEL_KEY"
_POLICY: JsonObject = {"approvalPolicy": "untrusted", "sandbox": "danger-full-access"}
"""Codex asks before everything that it does not know as harmless; the walls around it are our sandbox's."""
_NO_METHOD = -32601
_KINDS: Mapping[str, FailureKind] = {
    "unauthorized": FailureKind.MODEL_AUTH,
    "usageLimitExceeded": FailureKind.MODEL_QUOTA,
    "rateLimitExceeded": FailureKind.MODEL_QUOTA,
    "serverOverloaded": FailureKind.MODEL_OVERLOADED,
    "internalServerError": FailureKind.MODEL_OVERLOADED,
    "contextWindowExceeded": FailureKind.CONTEXT_EXCEEDED,
    "cyberPolicy": FailureKind.MODEL_REFUSED,
    "sandboxError": FailureKind.AGENT_CRASHED,
}
_SHELLS = ("bash", "sh", "zsh", "dash")


class CodexConversation:
    """The dialect's `Conversation`."""

    def __init__(self, prompt: str, directory: str, resume: str | None = None, name: str = "codex") -> None:
        self.session_id: str | None = None
        self._name = name
        self._prompt = prompt
        self._directory = directory
        self._resume = resume
        self._numbers = 0
        self._asked: dict[int, tuple[str, str, str]] = {}
        """Requests that are not answered: what they want, and the text and name of the message that they carry."""
        self._turn: str | None = None
        self._starting = True
        self._held: list[tuple[str, str]] = []
        """Messages that wait for a turn to be under way."""
        self._changes: dict[str, list[str]] = {}
        """The paths that each change of files names."""
        self._open: dict[str, tuple[JsonValue, set[str]]] = {}
        """Requests for permission: the program's number, and the questions of ours that are open."""
        self._resets_at: float | None = None

    @property
    def busy(self) -> bool:
        return self._starting or self._turn is not None or bool(self._held) or bool(self._asked)

    def open(self) -> Sequence[JsonObject]:
        return [self._request("initialize", {"clientInfo": {"name": "codepilot", "version": "1"}})]

    def read(self, line: JsonObject) -> Iterable[Read]:
        params = mapping(line.get("params"))
        method = line.get("method")
        if method is None:
            return self._answered(line)
        if "id" in line:
            return self._permission(str(method), line["id"], params)
        match method:
            case "turn/started":
                self._turn, self._starting = text_of(mapping(params.get("turn")).get("id")), False
                held, self._held = self._held, []
                return [Send(self._steer(text, key)) for text, key in held]
            case "turn/completed":
                return self._ended(mapping(params.get("turn")))
            case "item/started":
                return self._began(mapping(params.get("item")))
            case "item/completed":
                return self._done(mapping(params.get("item")))
            case "item/agentMessage/delta":
                return [Text(bounded(text_of(params.get("delta"))), final=False)]
            case "turn/plan/updated":
                return [PlanShown(tuple(text_of(step.get("step")) for step in items(params.get("plan"))))]
            case "thread/tokenUsage/updated" if self._turn is not None:
                return [UsageSeen(_usage(mapping(mapping(params.get("tokenUsage")).get("last"))))]
            case "account/rateLimits/updated":
                self._resets_at = _reset(mapping(params.get("rateLimits"))) or self._resets_at
        return ()

    def answer(self, permission_id: str, allow: bool, message: str) -> Sequence[JsonObject]:
        request = permission_id.partition(":")[0]
        if request not in self._open:
            return ()
        number, questions = self._open[request]
        questions.discard(permission_id)
        if allow and questions:
            return ()
        del self._open[request]
        lines: list[JsonObject] = [{"id": number, "result": {"decision": "accept" if allow else "decline"}}]
        if message and not allow and self._turn is not None:
            lines.append(self._steer(f"[CodePilot] That was refused: {message}", ""))  # a refusal has no place for it
        return lines

    def encode(self, message: AgentMessage) -> Outgoing | None:
        if message.type in ("pause_request", "resume"):
            return None
        self._numbers += 1
        key, text = f"codepilot-{self._numbers}", message_text(message)
        if self._starting:
            self._held.append((text, key))
            return Outgoing((), key)
        return Outgoing((self._steer(text, key) if self._turn is not None else self._start_turn(text, key),), key)

    def interrupt(self) -> Sequence[JsonObject]:
        if self._turn is None:
            return ()
        return [self._request("turn/interrupt", {"threadId": self.session_id, "turnId": self._turn})]

    def explain(self, words: str) -> FailureKind | None:
        return kind_of(words)

    def _request(self, method: str, params: JsonObject, text: str = "", key: str = "") -> JsonObject:
        self._numbers += 1
        self._asked[self._numbers] = (method, text, key)
        return {"id": self._numbers, "method": method, "params": params}

    def _start_turn(self, text: str, key: str = "") -> JsonObject:
        self._starting = True
        return self._request("turn/start", self._input(text, key), text, key)

    def _steer(self, text: str, key: str) -> JsonObject:
        return self._request("turn/steer", {**self._input(text, key), "expectedTurnId": self._turn}, text, key)

    def _input(self, text: str, key: str) -> JsonObject:
        request: JsonObject = {"threadId": self.session_id, "input": [{"type": "text", "text": text}]}
        return {**request, "clientUserMessageId": key} if key else request

    def _answered(self, line: JsonObject) -> Iterable[Read]:
        number = line.get("id")
        if not isinstance(number, int) or number not in self._asked:
            return ()
        method, text, key = self._asked.pop(number)
        if "error" in line:
            return self._refused(method, text, key, text_of(mapping(line["error"]).get("message")))
        result = mapping(line.get("result"))
        if method == "initialize":
            policy: JsonObject = {"cwd": self._directory, **_POLICY}
            if self._resume is None:
                opening = self._request("thread/start", policy)
            else:
                opening = self._request("thread/resume", {"threadId": self._resume, "excludeTurns": True, **policy})
            return [Send({"method": "initialized"}), Send(opening)]
        if method in ("thread/start", "thread/resume"):
            self.session_id = text_of(mapping(result.get("thread")).get("id"))
            opened = SessionOpened(self.session_id, text_of(result.get("model")))
            return [opened, Send(self._start_turn(self._prompt))]
        return ()

    def _refused(self, method: str, text: str, key: str, words: str) -> Iterable[Read]:
        if method == "turn/steer":  # the turn had just ended
            return [Send(self._start_turn(text, key))]
        if method == "turn/interrupt":
            return ()
        kind = kind_of(words) if method == "turn/start" else None
        refused = failure(self._name, words, kind or FailureKind.AGENT_CRASHED)
        if method == "thread/resume":
            refused = lost_session(refused)
        return [Failed(refused)]

    def _began(self, item: Mapping[str, JsonValue]) -> Iterable[Read]:
        number = text_of(item.get("id"))
        match item.get("type"):
            case "commandExecution":
                return [ToolCall("shell", bounded(_plain(text_of(item.get("command")))), number)]
            case "fileChange":
                self._changes[number] = self._paths(item)
                return [ToolCall("apply_patch", bounded(", ".join(self._changes[number])), number)]
            case "mcpToolCall":
                return [ToolCall(text_of(item.get("tool")), text_of(item.get("server")), number)]
            case "webSearch":
                return [ToolCall("web_search", bounded(text_of(item.get("query"))), number)]
        return ()

    def _done(self, item: Mapping[str, JsonValue]) -> Iterable[Read]:
        number, status = text_of(item.get("id")), item.get("status")
        match item.get("type"):
            case "userMessage":
                key = text_of(item.get("clientId"))
                return [Answered(key)] if key else ()
            case "agentMessage":
                return [Text(bounded(text_of(item.get("text"))))]
            case "commandExecution" | "fileChange" | "mcpToolCall" | "webSearch":
                self._changes.pop(number, None)
                ok = status in ("completed", None) and item.get("exitCode") in (0, None)
                text = bounded(text_of(item.get("aggregatedOutput")))
                return [ToolResult(number, ok, text, denied=status == "declined")]
        return ()

    def _permission(self, method: str, number: JsonValue, params: Mapping[str, JsonValue]) -> Iterable[Read]:
        details = details_of(dict(params))
        if method == "item/commandExecution/requestApproval":
            host = text_of(mapping(params.get("networkApprovalContext")).get("host"))
            command = _plain(text_of(params.get("command")))
            asked: list[tuple[Kind, str]] = [("host", host) if host else ("command", command)]
            tool = "shell"
        elif method == "item/fileChange/requestApproval":
            paths = self._changes.get(text_of(params.get("itemId")), [])
            root = text_of(params.get("grantRoot"))
            asked = [("path", path) for path in paths or [in_tree(root, self._directory) or "."]]
            tool = "apply_patch"
        else:
            error: JsonObject = {"code": _NO_METHOD, "message": f"{method} is not supported"}
            return [Send({"id": number, "error": error})]
        request = str(number)
        questions = [f"{request}:{place}" for place in range(len(asked))]
        self._open[request] = (number, set(questions))
        return [
            Permission(question, operation, bounded(subject), details, tool)
            for question, (operation, subject) in zip(questions, asked, strict=True)
        ]

    def _ended(self, turn: Mapping[str, JsonValue]) -> Iterable[Read]:
        self._turn, self._starting = None, False
        if turn.get("status") == "failed":
            return [Failed(self._failure(mapping(turn.get("error"))))]
        held, self._held = self._held, []
        again = [Send(self._start_turn("\n\n".join(text for text, _ in held), held[-1][1]))] if held else []
        return [TurnEnded(), *again]

    def _failure(self, error: Mapping[str, JsonValue]) -> Failure:
        words, info = text_of(error.get("message")), error.get("codexErrorInfo")
        name = info if isinstance(info, str) else next(iter(mapping(info)), "")
        status = number_of(mapping(mapping(info).get(name)).get("httpStatusCode")) or None
        spoken = kind_of(words, status)
        kind = spoken if spoken is FailureKind.BUDGET_EXCEEDED else _KINDS.get(name, spoken)
        return failure(self._name, words, kind, reset_at=self._resets_at, status=status)

    def _paths(self, item: Mapping[str, JsonValue]) -> list[str]:
        found: dict[str, None] = {}
        for change in items(item.get("changes")):
            for path in (change.get("path"), mapping(change.get("kind")).get("move_path")):
                if text_of(path):
                    found[in_tree(text_of(path), self._directory)] = None
        return list(found)


class CodexAdapter:
    name = "codex"
    features = FEATURES
    dialect: Dialect | None = "openai"

    def probe(self, environ: Mapping[str, str]) -> Probe:
        program = find_command((self.name,), environ)
        return program.probe(FEATURES, version_of(program), login_file(environ, LOGIN) is not None)

    def start(self, start: AgentStart) -> RunningAgent:
        program = found(find_command((self.name,), start.environ), self.name)
        endpoint = start.endpoint("openai") if start.endpoint is not None else None
        files = [HomeFile(path=_CONFIG, content=configuration(start.model, endpoint).encode())]
        if endpoint is None:
            files.append(shared_login(start.environ, LOGIN, self.name))
        environment = {_KEY: endpoint.api_key} if endpoint is not None else {}
        process = start.start_process(program.process(start, ("app-server",), environment, files))
        return LineAgent(self.name, process, CodexConversation(start.prompt, start.directory, start.resume), FEATURES)


def configuration(model: str, endpoint: ModelEndpoint | None) -> str:
    """The program's settings, for this session alone."""
    lines = ["check_for_update_on_startup = false"]
    if model or endpoint is not None:
        lines.append(f"model = {json.dumps(model or (endpoint.model if endpoint is not None else ''))}")
    if endpoint is not None:
        lines.append('model_provider = "codepilot"')
    lines += ["[features]", "plugins = false", "[analytics]", "enabled = false"]
    if endpoint is not None:
        lines += [
            "[model_providers.codepilot]",
            'name = "codepilot"',
            f"base_url = {json.dumps(endpoint.base_url)}",
            'wire_api = "responses"',
            f'env_key = "{_KEY}"',
            "request_max_retries = 1",
            "stream_max_retries = 1",
        ]
    return "\n".join((*lines, ""))


def _plain(command: str) -> str:
    """The command that a shell is given, without the shell."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return command


def _usage(last: Mapping[str, JsonValue]) -> Usage:
    taken_in, output = number_of(last.get("inputTokens")), number_of(last.get("outputTokens"))
    return Usage(
        turns=1,
        tokens=taken_in + output,
        input_tokens=taken_in,
        output_tokens=output,
        cached_tokens=number_of(last.get("cachedInputTokens")),
    )


def _reset(limits: Mapping[str, JsonValue]) -> float | None:
    """When the limits that are used up end, in seconds since 1970."""
    windows = [mapping(limits.get(name)) for name in ("primary", "secondary")]
    spent = [number_of(one.get("resetsAt")) for one in windows if number_of(one.get("usedPercent")) >= 100]
    return max(spent, default=None) or None
