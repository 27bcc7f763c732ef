"""What an agent's program is asked to do in a step: the role's own sections, in words that suit any program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import Template

from codepilot.agents.prompt_context import load_memories
from codepilot.agents.protocol import StepContext
from codepilot.agents.roles import BUILD_ROLES, ROLES, Role
from codepilot.agents.roles.answerer import ANSWERER
from codepilot.agents.step_conversation import StepConversation
from codepilot.core.events import State
from codepilot.core.task import TaskKind

GO_ON = (
    "You were interrupted. The files are as your last finished action left them; check them before you go on. Then"
    " finish the task that you were given."
)
_HERE = Path(__file__).parent


def prompt_for(context: StepContext, before: str = "") -> str:
    """The whole task, with what is known about the repository. `before` says what another agent left behind."""
    role, guidance = _role(context.run.task.kind)
    step = StepConversation(context)
    load_memories(role, step, None)
    context = step.context
    sections = {"Task": context.run.task.goal.natural, **role.inputs(context), "So far": before}
    parts = [f"# {title}\n{text.strip()}" for title, text in sections.items() if text.strip()]
    frame = _template("prompt.md").substitute(
        purpose=role.purpose,
        directory=context.directory(),
        guidance=_template(guidance).substitute(tests=_tests(context)).strip(),
        network=_network(context),
    )
    return "\n\n".join([frame.strip(), *parts])


def with_messages(prompt: str, messages: Sequence[str]) -> str:
    """The prompt with what people wrote to the agent before it was started again."""
    if not messages:
        return prompt
    listed = "\n".join(f"- {text}" for text in messages)
    return f"{prompt}\n\n# Messages of the user\nThe user wrote this earlier in this run. It still holds.\n{listed}"


def _role(kind: TaskKind) -> tuple[Role, str]:
    if kind is TaskKind.QUESTION:
        return ANSWERER, "answer.md"
    if kind is TaskKind.BUILD:
        return BUILD_ROLES[State.IMPLEMENT], "build.md"
    return ROLES[State.IMPLEMENT], "implement.md"


def _tests(context: StepContext) -> str:
    """How the tests are run, as far as one command says it."""
    project = context.project
    if project.language == "python":
        runner = "pytest" if project.runner == "pytest" else project.runner
        return f"`{project.interpreter.executable} -m {runner}`"
    return f"by {project.runner}"


def _network(context: StepContext) -> str:
    hosts = ", ".join(context.run.task.hosts)
    return f"Of the network you reach only {hosts}." if hosts else "There is no network."


@cache
def _template(name: str) -> Template:
    return Template((_HERE / name).read_text(encoding="utf-8"))
