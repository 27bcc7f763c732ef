"""The programs that run inside the sandbox, bundled as one input for a Python that has none of CodePilot's files.

They are compiled here for a Python like our own: compiling them inside would be a third of the start-up time.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Sequence
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path

_INSIDE = Path(__file__).with_name("inside")
WORKER = (
    *("coverage", "calling", "module_state", "behaviour", "typed_inputs", "suites", "children", "step_budget"),
    *("grammar", "enumeration", "holes", "angelic_search", "worker_state", "code_swap", "baseline_traces", "trials"),
    *("evidence", "worker"),
)
"""The modules of the repair worker, each after those it imports; the last one has `main`."""
DISTINGUISH = ("coverage", "calling", "behaviour", "typed_inputs", "suites", "recorded_calls", "ambient", "distinguish")
"""The modules that search for distinguishing inputs."""
SPREAD = ("coverage", "calling", "behaviour", "typed_inputs", "suites", "outside", "spread")
"""The modules that compare a change with its base on further inputs."""
BOOT = """import os, sys
if "" in sys.path:
    sys.path.remove("")
import json, marshal, types
from _frozen_importlib_external import MAGIC_NUMBER
def take(n):
    data = b""
    while len(data) < n:
        piece = os.read(0, n - len(data))
        if not piece:
            raise SystemExit(1)
        data += piece
    return data
magic, parts = json.loads(take(int(take(8))))
compiled = take(int(take(8)))
codes = marshal.loads(compiled) if bytes.fromhex(magic) == MAGIC_NUMBER else [None] * len(parts)
package = sys.modules["codepilot_inside"] = types.ModuleType("codepilot_inside")
package.__path__ = []
for (name, source), code in zip(parts, codes):
    module = sys.modules[name] = types.ModuleType(name)
    module.__package__ = "codepilot_inside"
    exec(code or compile(source, "<" + name + ">", "exec"), module.__dict__)
os.chdir(os.environ.get("CODEPILOT_FOLDER") or ".")
sys.path.insert(0, os.getcwd())
module.main()
"""
"""Loads a bundle from standard input as a package, before the project's own files can shadow the standard library."""


def bundle(modules: Sequence[str]) -> bytes:
    """The input that `BOOT` reads first: the modules as source, and as bytecode for a Python of our own version."""
    sources = json.dumps([MAGIC_NUMBER.hex(), [part[:2] for part in map(_part, modules)]]).encode()
    compiled = marshal.dumps([_part(module)[2] for module in modules])
    return b"".join(b"%08d%b" % (len(piece), piece) for piece in (sources, compiled))


@cache
def _part(module: str) -> tuple[str, str, object]:
    name = f"codepilot_inside.{module}"
    source = (_INSIDE / f"{module}.py").read_text("utf-8")
    return name, source, compile(source, f"<{name}>", "exec", dont_inherit=True)
