"""A scripted model for the real command-line agents: each gets the same steps in the tools that it offers itself.

    script = AgentScript(Write("hello.txt", "hello\n"), Bash("wc -c hello.txt"), "All done.")
    with ModelServer(script) as server: ...

A step comes after as many results of tools as there are steps before it, so a retry asks for the same step again.
Any answer of the server may stand for a step too: `HttpError(529)`, `Hang()`, `Cut("half a re")`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from model_answers import Answer, Call
from model_server import Request

SIDE = '{"title": "Scripted", "isNewTopic": false}'
"""The answer to what an agent asks in addition to its work: a title, a summary."""
_CWD = (
    r"<cwd>([^<]+)</cwd>",
    r"Primary working directory: ([^\s\\\"]+)",
    r"[Ww]orking directory:? ([^\s\\\"]+)",
    r"Workspace Directories:\*{0,2}\s*(?:\\n)?\s*-? ?([^\s\\\"]+)",
)


@dataclass(frozen=True)
class Write:
    path: str
    content: str


@dataclass(frozen=True)
class Edit:
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Bash:
    command: str


Step = Write | Edit | Bash | Answer
Tools = Mapping[str, Mapping[str, Any]]


class AgentScript:
    """`answered` counts the calls that were part of the work, by step. A request past the last step gets that again."""

    def __init__(self, *steps: Step, side: Answer = SIDE, at: Callable[[Request], int] | None = None) -> None:
        self._steps = steps
        self._side = side
        self._at = at or results
        self.answered: dict[int, int] = {}

    def __call__(self, request: Request) -> Answer:
        tools = offered(request)
        if not tools:
            return self._side
        number = min(self._at(request), len(self._steps) - 1)
        self.answered[number] = self.answered.get(number, 0) + 1
        step = self._steps[number]
        return called(step, tools, _cwd(request)) if isinstance(step, Write | Edit | Bash) else step


def results(request: Request) -> int:
    """How many results of tools the conversation has."""
    body = request.body
    match request.api:
        case "anthropic":
            return sum(block.get("type") == "tool_result" for block in _blocks(body.get("messages"), "content"))
        case "responses":
            return sum(str(item.get("type")).endswith("_call_output") for item in _objects(body.get("input")))
        case "gemini":
            return sum("functionResponse" in part for part in _blocks(body.get("contents"), "parts"))
        case _:
            return sum(message.get("role") == "tool" for message in _objects(body.get("messages")))


def offered(request: Request) -> Tools:
    """The tools of a request, by name."""
    body = request.body
    found = dict(_named(body.get("tools")))
    for item in _objects(body.get("input")):
        found.update(_named(item.get("tools")))
    return found


def called(step: Write | Edit | Bash, tools: Tools, cwd: str) -> Answer:
    """The step as a call of a tool that the agent offers."""
    if isinstance(step, Bash):
        return _shell(step.command, tools)
    absolute = step.path if step.path.startswith("/") or not cwd else f"{cwd.rstrip('/')}/{step.path}"
    if isinstance(step, Write):
        known: dict[str, dict[str, str]] = {
            "Write": {"file_path": absolute, "content": step.content},
            "write_file": {"file_path": absolute, "content": step.content},
            "write": {"filePath": absolute, "content": step.content},
        }
        lines = "\n".join(f"+{line}" for line in step.content.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {step.path}\n{lines}\n*** End Patch"
    else:
        known = {
            "Edit": {"file_path": absolute, "old_string": step.old, "new_string": step.new},
            "replace": {"file_path": absolute, "old_string": step.old, "new_string": step.new, "instruction": "edit"},
            "edit": {"filePath": absolute, "oldString": step.old, "newString": step.new},
        }
        hunk = "\n".join([*(f"-{line}" for line in step.old.splitlines()), *(f"+{x}" for x in step.new.splitlines())])
        patch = f"*** Begin Patch\n*** Update File: {step.path}\n@@\n{hunk}\n*** End Patch"
    for name, arguments in known.items():
        if name in tools:
            return Call(name, arguments)
    if "apply_patch" in tools:
        return _patch(patch, tools["apply_patch"])
    if "exec" in tools:
        return _program(f"const r = await tools.apply_patch({json.dumps(patch)});\ntext(JSON.stringify(r));")
    raise AssertionError(f"no tool writes files among {sorted(tools)}")


def _shell(command: str, tools: Tools) -> Answer:
    described = {"command": command, "description": "a scripted command"}
    known: dict[str, dict[str, Any]] = {
        "Bash": described,
        "exec_command": {"cmd": command},
        "shell_command": {"command": command},
        "shell": {"command": ["bash", "-lc", command]},
        "run_shell_command": described,
        "bash": described,
    }
    for name, arguments in known.items():
        if name in tools:
            return Call(name, arguments)
    if "exec" in tools:
        return _program(f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}});\ntext(r.output);")
    raise AssertionError(f"no tool runs commands among {sorted(tools)}")


def _patch(patch: str, tool: Mapping[str, Any]) -> Call:
    if tool.get("type") == "custom":
        return Call("apply_patch", patch, custom=True)
    return Call("apply_patch", {"patchText" if "patchText" in json.dumps(tool) else "input": patch})


def _program(source: str) -> Call:
    """Codex may offer one tool that runs a program of calls."""
    return Call("exec", source, custom=True)


def _named(tools: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for tool in _objects(tools):
        if "functionDeclarations" in tool:
            yield from _named(tool["functionDeclarations"])
        elif isinstance(tool.get("function"), Mapping):
            yield from _named([tool["function"]])
        elif tool.get("type") == "namespace":
            yield from _named(tool.get("tools"))
        elif "name" in tool:
            yield str(tool["name"]), tool


def _cwd(request: Request) -> str:
    for pattern in _CWD:
        if (match := re.search(pattern, request.text)) is not None:
            return match[1].rstrip(".")
    return ""


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _blocks(messages: Any, name: str) -> list[Mapping[str, Any]]:
    return [block for message in _objects(messages) for block in _objects(message.get(name))]
