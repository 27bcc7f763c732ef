"""Measures CodePilot and its peers.

`python -m benchmarks.execution --write docs/benchmarks.md` (the execution plane) and
`python -m benchmarks.engine --write docs/benchmarks-engine.md` (the durable engine) run everything and write the
tables; `--size quick` takes less time and gives less precise figures. Every contestant runs in a process of its own
(`drivers/`), which does its own timing. Contestants take turns, round after round, so that other
load affects all of them equally.

`python -m benchmarks.repair --write docs/benchmarks-repair.md` measures the repair search on three kinds of
project: candidates a second, time to the first candidate and to the repair, and memory. `benchmarks.context` measures
the cost of finding context, and `benchmarks.turns` the platform's share of an agent's turn. `benchmarks.interactive`
measures checkpoints next to aop's, the freeze and the watch; `benchmarks.service` pages, the API and live streams.
"""
