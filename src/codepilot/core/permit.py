"""Whether an agent's action may happen: one pure rule for commands, imports, calls, paths and hosts.

A reader (command rules, static check, tree validation, proxy) turns what the agent wants into an `Action` and names the
rule it breaks; `permit` decides. Standard library only: this source also travels into the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, Protocol

    Effect = Literal["allow", "sanitise", "ask", "deny"]
    Kind = Literal["command", "import", "call", "path", "host"]

    class Rules(Protocol):
        """What `permit` reads of a policy."""

        @property
        def imports(self) -> str: ...

        @property
        def hosts(self) -> Sequence[str]: ...


LADDER = ("read_only", "write_with_diff", "write_and_run_tests", "full_shell")
SOURCE_KINDS = ("import", "call")
"""Actions that are read from source code; `imports = "off"` allows them all."""


@dataclass(frozen=True)
class Action:
    """Something an agent wants to do. `rule` is the rule that it breaks, empty if it breaks none."""

    kind: Kind
    subject: str
    """The command, module, function, path or host, as the agent wrote it."""
    rule: str = ""
    reason: str = ""
    """Why the rule exists and what to do instead."""
    lifted_by: str = ""
    """The capability from which on the rule does not apply."""
    needs_network: bool = False
    """The rule applies only to a task without a network."""
    advisory: bool = False
    """Only a strict policy denies it; any other allows it and tells the agent the reason."""


@dataclass(frozen=True)
class Decision:
    """What happens to an action, and why. `score` is its risk, from 0 (none) to 1 (forbidden)."""

    effect: Effect
    action: Action
    rule: str = ""
    reason: str = ""
    score: float = 0.0


def permit(policy: Rules, capability: str, interaction: str, action: Action) -> Decision:
    """Decide whether `action` may happen under `policy`, for a task with this capability and interaction mode."""
    lifted = bool(action.lifted_by) and LADDER.index(capability) >= LADDER.index(action.lifted_by)
    unread = action.kind in SOURCE_KINDS and policy.imports == "off"
    online = action.needs_network and bool(policy.hosts)
    if not action.rule or lifted or unread or online:
        return Decision("allow", action)
    if action.advisory and policy.imports != "strict":
        effect: Effect = "ask" if interaction == "ask_every_step" else "allow"
        return Decision(effect, action, action.rule, action.reason, 0.5)
    return Decision("deny", action, action.rule, action.reason, 1.0)
