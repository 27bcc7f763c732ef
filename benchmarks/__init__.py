"""What CodePilot costs, beside others, measured in one run each: its execution plane, and its durable engine.

`python -m benchmarks.execution --write docs/benchmarks.md` and
`python -m benchmarks.engine --write docs/benchmarks-engine.md` run everything and write the tables; `--size quick` has
less to say. Every measured thing runs in a process of its own (`drivers/`), which does its own timing; all take turns,
round after round, so that whatever else the machine does hits all alike.

`python -m benchmarks.repair --write docs/benchmarks-repair.md` measures the repair search: candidates a second, when
the first are tried, when a repair is there, and memory, on three kinds of project.
"""
