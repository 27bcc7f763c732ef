"""What CodePilot costs, beside others, measured in one run each.

`python -m benchmarks.execution --write docs/benchmarks.md` (the execution plane) and
`python -m benchmarks.engine --write docs/benchmarks-engine.md` (the durable engine) run everything and write the
tables; `--size quick` has less to say. Every measured thing runs in a process of its own (`drivers/`), which does its
own timing; all take turns, round after round, so that whatever else the machine does hits all alike.

`python -m benchmarks.repair --write docs/benchmarks-repair.md` measures the repair search: candidates a second, when
the first are tried, when a repair is there, and memory, on three kinds of project; `benchmarks.context` what finding
context costs, and `benchmarks.turns` what the platform adds to an agent's turn.
"""
