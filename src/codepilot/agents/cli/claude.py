"""Claude Code: `claude -p`, JSON lines both ways. A hook asks our policy before every tool; no setting changes that."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import JsonValue

from codepilot.agents.cli.failures import failure, kind_of, lost_session
from codepilot.agents.cli.line_agent import Answered, LineAgent, Outgoing, Read, Send
from codepilot.agents.cli.parsing import (
    amount_of,
    bounded,
    details_of,
    in_tree,
    items,
    mapping,
    message_text,
    number_of,
    text_of,
)
from codepilot.agents.cli.programs import Program, find_command, found, login_file, shared_login, version_of
from codepilot.agents.cli.protocol import (
    AgentMessage,
    AgentStart,
    Failed,
    Feature,
    Permission,
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
from codepilot.core.failures import FailureKind
from codepilot.executor import StartProcess
from codepilot.models.gateway import Dialect

if TYPE_CHECKING:
    from codepilot.core.permit import Kind

FEATURES: frozenset[Feature] = frozenset(
    ("interactive_mode", "working_directory", "pause_resume", "messages", "acknowledgement")
)
LOGIN = ".claude/.credentials.json"
"""Where a login lies, in the user's HOME and in the session's."""
_UNWANTED = (
    "AskUserQuestion,EnterPlanMode,ExitPlanMode,EnterWorktree,ExitWorktree"
    ",CronCreate,CronDelete,CronList,ScheduleWakeup"
)
"""Tools that need a person at a terminal, or outlive the session."""
_ARGUMENTS = (
    *("-p", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json"),
    *("--permission-prompt-tool", "stdio", "--permission-mode", "default", "--replay-user-messages"),
    *("--disallowedTools", _UNWANTED),
)
_ENVIRONMENT = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
}
_NO_SESSION = "No conversation found"
_HOOK_SEC = 86_400
"""How long a tool may wait for an answer: a person may have to give it."""
_COMMANDS = ("Bash", "PowerShell", "Monitor")
_FILES = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}


class ClaudeConversation:
    """The dialect's `Conversation`. `new_id` names a message: a name that the session knows already is ignored."""

    def __init__(
        self, prompt: str, directory: str, new_id: Callable[[], str] = lambda: str(uuid.uuid4()), name: str = "claude"
    ) -> None:
        self.session_id: str | None = None
        self._name = name
        self._prompt = prompt
        self._directory = directory
        self._new_id = new_id
        self._requests = 0
        self._running = True
        self._queued: set[str] = set()
        """Messages that it has not taken in."""
        self._reports_queue = False
        """True if this version says when it takes a message in."""
        self._hooks: set[str] = set()
        self._inputs: dict[str, JsonValue] = {}
        self._tools: dict[str, str] = {}
        """The open requests for permission: the tool call that each is about."""
        self._allowed: set[str] = set()
        self._interrupted = False
        self._cost = 0.0
        self._resets_at: float | None = None

    @property
    def busy(self) -> bool:
        return self._running or bool(self._queued)

    def open(self) -> Sequence[JsonObject]:
        hooks: JsonObject = {"PreToolUse": [{"matcher": "", "hookCallbackIds": ["tool"], "timeout": _HOOK_SEC}]}
        return [self._request({"subtype": "initialize", "hooks": hooks}), _user(self._prompt, self._new_id())]

    def read(self, line: JsonObject) -> Iterable[Read]:
        match line.get("type"):
            case "system":
                return self._system(line)
            case "assistant":
                return self._assistant(line)
            case "user":
                return self._user(line)
            case "control_request":
                return self._asked(line)
            case "command_lifecycle":
                self._reports_queue = True
                return self._taken(text_of(line.get("command_uuid")), text_of(line.get("state")))
            case "rate_limit_event":
                info = mapping(line.get("rate_limit_info"))
                if info.get("status") == "rejected":
                    self._resets_at = number_of(info.get("resetsAt")) or None
            case "result":
                return self._result(line)
        return ()

    def answer(self, permission_id: str, allow: bool, message: str) -> Sequence[JsonObject]:
        if permission_id not in self._inputs:
            return ()
        given, tool = self._inputs.pop(permission_id), self._tools.pop(permission_id)
        if permission_id in self._hooks:
            self._hooks.discard(permission_id)
            if allow:
                self._allowed.add(tool)
            return [_hooked(permission_id, allow, message)]
        return [_permitted(permission_id, given, allow, message)]

    def encode(self, message: AgentMessage) -> Outgoing | None:
        if message.type in ("pause_request", "resume"):
            return None
        key = self._new_id()
        self._queued.add(key)
        return Outgoing((_user(message_text(message), key),), key)

    def interrupt(self) -> Sequence[JsonObject]:
        self._interrupted = True
        return [self._request({"subtype": "interrupt"})]

    def explain(self, words: str) -> FailureKind | None:
        return kind_of(words)

    def _request(self, request: JsonObject) -> JsonObject:
        self._requests += 1
        return {"type": "control_request", "request_id": f"codepilot-{self._requests}", "request": request}

    def _system(self, line: JsonObject) -> Iterable[Read]:
        if line.get("subtype") != "init" or not (session := text_of(line.get("session_id"))):
            return ()
        known, self.session_id = self.session_id, session
        return () if known == session else [SessionOpened(session, text_of(line.get("model")))]

    def _assistant(self, line: JsonObject) -> Iterable[Read]:
        message = mapping(line.get("message"))
        if message.get("model") == "<synthetic>":
            return ()  # the program's own words about a failure, which the result repeats
        events: list[Read] = []
        for block in items(message.get("content")):
            if block.get("type") == "text" and not line.get("parent_tool_use_id") and block.get("text"):
                events.append(Text(bounded(text_of(block.get("text")))))
            elif block.get("type") == "tool_use":
                tool = text_of(block.get("name"))
                _, subject = _meaning(tool, mapping(block.get("input")), self._directory)
                events.append(ToolCall(tool, bounded(subject), text_of(block.get("id"))))
        return events

    def _user(self, line: JsonObject) -> Iterable[Read]:
        if line.get("isReplay"):
            return self._taken(text_of(line.get("uuid")), "started") if not self._reports_queue else ()
        denied = {
            text_of(one.get("id"))
            for one in items(line.get("tool_result_meta"))
            if mapping(one.get("permission_decision")).get("decision") == "reject"
        }
        events: list[Read] = []
        for block in items(mapping(line.get("message")).get("content")):
            if block.get("type") == "tool_result":
                tool, refused = text_of(block.get("tool_use_id")), text_of(block.get("tool_use_id")) in denied
                ok = not block.get("is_error") and not refused
                events.append(ToolResult(tool, ok, bounded(_text(block.get("content"))), refused))
        return events

    def _asked(self, line: JsonObject) -> Iterable[Read]:
        request, number = mapping(line.get("request")), text_of(line.get("request_id"))
        if request.get("subtype") == "hook_callback":
            given = mapping(request.get("input"))
            tool, arguments = text_of(given.get("tool_name")), mapping(given.get("tool_input"))
            call = text_of(given.get("tool_use_id"))
            self._hooks.add(number)
        elif request.get("subtype") == "can_use_tool":
            tool, arguments = text_of(request.get("tool_name")), mapping(request.get("input"))
            call = text_of(request.get("tool_use_id"))
            if call in self._allowed:
                return [Send(_permitted(number, dict(arguments), True, ""))]
        else:
            error: JsonObject = {"subtype": "error", "request_id": number, "error": "not supported"}
            return [Send({"type": "control_response", "response": error})]
        self._inputs[number], self._tools[number] = dict(arguments), call
        operation, subject = _meaning(tool, arguments, self._directory)
        return [Permission(number, operation, bounded(subject), details_of(dict(arguments)), tool)]

    def _taken(self, message: str, state: str) -> Iterable[Read]:
        if state not in ("started", "cancelled", "completed") or message not in self._queued:
            return ()
        self._queued.discard(message)
        if state != "started":
            return ()
        self._running = True
        return [Answered(message)]

    def _result(self, line: JsonObject) -> Iterable[Read]:
        self._running = False
        if not self._reports_queue:
            self._queued.clear()
        interrupted, self._interrupted = self._interrupted, False
        if not line.get("is_error") or (interrupted and not line.get("api_error_status")):
            return [UsageSeen(self._usage(line)), TurnEnded()]
        words = text_of(line.get("result")) or _joined(line.get("errors")) or "an error"
        if line.get("terminal_reason") == "max_turns" or line.get("subtype") == "error_max_turns":
            kind: FailureKind | None = FailureKind.BUDGET_EXCEEDED
        elif line.get("stop_reason") == "refusal":
            kind = FailureKind.MODEL_REFUSED
        else:
            kind = FailureKind.CONTEXT_EXCEEDED if line.get("terminal_reason") == "prompt_too_long" else None
        status = number_of(line.get("api_error_status")) or None
        failed = failure(self._name, words, kind, reset_at=self._resets_at, status=status)
        return [Failed(lost_session(failed) if words.startswith(_NO_SESSION) else failed)]

    def _usage(self, line: JsonObject) -> Usage:
        used = mapping(line.get("usage"))
        total = amount_of(line.get("total_cost_usd"), self._cost)
        spent, self._cost = max(0.0, total - self._cost), total
        cached, written = number_of(used.get("cache_read_input_tokens")), used.get("cache_creation_input_tokens")
        taken_in = number_of(used.get("input_tokens")) + cached + number_of(written)
        output = number_of(used.get("output_tokens"))
        return Usage(
            turns=number_of(line.get("num_turns")),
            tokens=taken_in + output,
            cost_usd=spent,
            input_tokens=taken_in,
            output_tokens=output,
            cached_tokens=cached,
        )


class ClaudeAdapter:
    name = "claude"
    features = FEATURES
    dialect: Dialect | None = "anthropic"

    def probe(self, environ: Mapping[str, str]) -> Probe:
        program = find_command((self.name,), environ)
        return program.probe(FEATURES, version_of(program), login_file(environ, LOGIN) is not None)

    def start(self, start: AgentStart) -> RunningAgent:
        program = found(find_command((self.name,), start.environ), self.name)
        process = start.start_process(_process(program, start, self.name))
        return LineAgent(self.name, process, ClaudeConversation(start.prompt, start.directory), FEATURES)


def _process(program: Program, start: AgentStart, name: str) -> StartProcess:
    endpoint = start.endpoint("anthropic") if start.endpoint is not None else None
    model = start.model or (endpoint.model if endpoint is not None else "")
    more = [*(("--model", model) if model else ()), *(("--resume", start.resume) if start.resume else ())]
    environment = dict(_ENVIRONMENT)
    if endpoint is not None:
        environment |= {"ANTHROPIC_BASE_URL": endpoint.base_url, "ANTHROPIC_API_KEY": endpoint.api_key}
    files = () if endpoint is not None else (shared_login(start.environ, LOGIN, name),)
    return program.process(start, (*_ARGUMENTS, *more), environment, files)


def _meaning(tool: str, arguments: Mapping[str, JsonValue], directory: str) -> tuple[Kind, str]:
    """What a tool does, as the policy names it."""
    if tool in _COMMANDS and (command := text_of(arguments.get("command"))):
        return "command", command
    if tool in _FILES:
        return "path", in_tree(text_of(arguments.get(_FILES[tool])), directory)
    if tool == "WebFetch":
        return "host", _host(text_of(arguments.get("url")))
    if tool == "WebSearch":
        return "network", text_of(arguments.get("query"))
    path = text_of(arguments.get("file_path")) or text_of(arguments.get("path")) or text_of(arguments.get("pattern"))
    return "tool", f"{tool} {in_tree(path, directory)}".strip()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def _user(text: str, number: str) -> JsonObject:
    content: JsonValue = [{"type": "text", "text": text}]
    return {"type": "user", "uuid": number, "message": {"role": "user", "content": content}}


def _hooked(number: str, allow: bool, message: str) -> JsonObject:
    decision: JsonObject = {"hookEventName": "PreToolUse", "permissionDecision": "allow" if allow else "deny"}
    if message or not allow:
        decision["permissionDecisionReason"] = message or "The policy does not allow it."
    return _reply(number, {"hookSpecificOutput": decision})


def _permitted(number: str, given: JsonValue, allow: bool, message: str) -> JsonObject:
    if allow:
        return _reply(number, {"behavior": "allow", "updatedInput": given})
    return _reply(number, {"behavior": "deny", "message": message or "The policy does not allow it."})


def _reply(number: str, response: JsonObject) -> JsonObject:
    answer: JsonObject = {"subtype": "success", "request_id": number, "response": response}
    return {"type": "control_response", "response": answer}


def _text(content: object) -> str:
    """A tool's result, which is a text or a list of blocks."""
    if isinstance(content, list):
        return "\n".join(text_of(block.get("text")) for block in items(content))
    return text_of(content)


def _joined(errors: object) -> str:
    return " ".join(str(one) for one in errors) if isinstance(errors, list) else ""
