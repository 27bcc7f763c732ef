"""The pure heart: contracts, state machine, plan graph, budgets, failures. No I/O, no clock, no randomness."""
