"""Interactive work: the agent writes files itself while the platform watches, freezes, checks and rolls back."""

from codepilot.engine.interactive.opening import (
    is_interactive,
    last_state,
    strategy_of,
    supervised,
)

__all__ = ["is_interactive", "last_state", "strategy_of", "supervised"]
