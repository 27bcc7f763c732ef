"""Pure code: contracts, pipelines, state machine, plan graph, policy, budgets, failures. No I/O, clock, randomness."""

DEFAULT_AGENT = "repair"
"""The agent of a task that names none."""
