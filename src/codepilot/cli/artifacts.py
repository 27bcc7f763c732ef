"""`codepilot artifacts`: what a run has left, and where it can be read."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from codepilot.cli.base import JsonFlag, RunArg, open_runtime
from codepilot.cli.output import say

LONGEST_SEC = 7 * 24 * 3600


def artifacts(
    run_id: RunArg,
    link: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=LONGEST_SEC,
            help="Also say where each can be read: a link for so long on S3, else the file.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the artifacts that a run's events name: diffs, reports, snapshots, transcripts."""
    from codepilot.engine import link_to

    with open_runtime() as runtime:
        found = runtime.store.find(run_id)
        rows = runtime.store.artifacts(found)
        refs = {row.ref for row in rows}
        where = {} if link is None else {ref: link_to(runtime, ref, link) for ref in refs}
    if as_json:
        named = [
            {
                **row.ref.model_dump(mode="json"),
                "uri": row.ref.uri,
                "seq": row.seq,
                "event": row.event,
                "step_id": row.step_id,
                "state": row.state,
                "link": where.get(row.ref),
            }
            for row in rows
        ]
        say(json.dumps({"schema_version": 1, "run_id": found, "artifacts": named}))
        return
    for row in rows:
        told = f"{row.seq:6} {row.event:20} {row.state or '':10} {row.ref.size_bytes:10} {row.ref.uri}"
        say(told if link is None else f"{told} {where[row.ref] or 'gone'}")
    if not rows:
        say("Its events name no artifacts.")
