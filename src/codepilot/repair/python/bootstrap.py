"""The code that a process inside begins with: parts of ours, compiled here for a Python that is like our own.

Compiling them inside would be a third of what starting such a process costs, and many are started.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Sequence
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path

_INSIDE = Path(__file__).with_name("inside")
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
for (name, source), code in zip(parts, codes):
    module = sys.modules[name] = types.ModuleType(name)
    exec(code or compile(source, "<" + name + ">", "exec"), module.__dict__)
sys.path.insert(0, os.getcwd())
module.main()
"""
"""Loads a parcel from standard input, before the project's own files can be taken for the library's."""


def parcel(parts: Sequence[str]) -> bytes:
    """What `BOOT` reads first: the parts as source, and as code for those whose Python this can be."""
    told = json.dumps([MAGIC_NUMBER.hex(), [part[:2] for part in map(_part, parts)]]).encode()
    compiled = marshal.dumps([_part(part)[2] for part in parts])
    return b"".join(b"%08d%b" % (len(piece), piece) for piece in (told, compiled))


@cache
def _part(name: str) -> tuple[str, str, object]:
    module = f"codepilot_repair_{name}"
    source = (_INSIDE / f"{module}.py").read_text("utf-8")
    return module, source, compile(source, f"<{module}>", "exec", dont_inherit=True)
