"""What CodePilot's execution plane costs, beside others, measured in one run.

`python -m benchmarks.execution --write docs/benchmarks.md` runs everything and writes the tables; `--quick` takes
under a minute. Every measured thing runs in a process of its own (`drivers/`), which does its own timing; `execution`
takes them in turns, round after round, so that whatever else the machine does hits all alike.
"""
