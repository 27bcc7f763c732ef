"""A service with bounds of a test's choice, started by the fixture `strict`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from codepilot.executor import LocalExecutor
from codepilot.executor.service import ServiceSettings, run_service
from codepilot.sandbox import choose

fields = json.loads(sys.argv[1])
slow = fields.pop("slow_snapshots", None)
sandbox = choose("best")


class Slow(LocalExecutor):
    def snapshot(self, workspace):
        with self._session(workspace).lock:
            while workspace == slow and not (self._home / workspace / "go").exists():
                time.sleep(0.02)
            return super().snapshot(workspace)


run_service(
    ServiceSettings(home=Path(fields.pop("home")), **fields),
    lambda home: Slow(home, sandbox, durable=True),
    lambda url: sys.stdout.write(json.dumps({"url": url}) + "\n") and sys.stdout.flush(),
)
