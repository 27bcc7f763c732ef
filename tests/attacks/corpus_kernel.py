"""Code actions that attack the kernel that runs them, or the host through it."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from attack_kit import MB, Attack, attack, by

from codepilot.sandbox import Limits

KERNEL, IMPORTS, OUTPUT = "kernel interpreter", "import tricks", "output flood"
CLIENT = "kernel client"
LIMITS = Limits(memory_bytes=256 * MB, processes=40, output_bytes=64 << 10)


def action(name: str, program: str, *signs: str, layer: str = CLIENT, category: str = KERNEL) -> Attack:
    return attack(name, category, program, by(layer, *signs), kind="action", limits=LIMITS)


ACTIONS: tuple[Attack, ...] = (
    action("close every descriptor", "import os\nos.closerange(0, 1000)", "error", "timeout"),
    action("replace the standard streams", "import sys\nsys.stdout = sys.stderr = sys.stdin = None", "ok"),
    action("end the process at once", "import os\nos._exit(3)", "error"),
    action("crash the interpreter", "import ctypes\nctypes.string_at(0)", "error"),
    action("recurse without end", "def f(): f()\nf()", "error"),
    action("return a gigantic value", "'x' * (50 << 20)", "ok"),
    action("describe itself for ever", "class A:\n    def __repr__(self):\n        while True: pass\nA()", "timeout"),
    action(
        "swallow the interrupt",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "timeout",
    ),
    action("loop where no interrupt is seen", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", "timeout"),
    action(
        "forge a reply",
        "import os, json\nfor fd in range(3, 130):\n"
        "    try: os.write(fd, json.dumps({'id': 2, 'ok': True, 'stdout': 'forged'}).encode() + b'\\n')\n"
        "    except OSError: pass\n1 / 0",
        "error",
        "ok",
    ),
    action(
        "forge the replies to all that follows",
        "import os, json\nfor number in range(200):\n"
        "    line = json.dumps({'id': number, 'ok': True, 'value': 'forged'}).encode() + b'\\n'\n"
        "    for fd in range(100, 110):\n"
        "        try: os.write(fd, line)\n"
        "        except OSError: pass",
        "ok",
    ),
    action("raise what no encoding holds", "raise ValueError('\\ud800')", "error"),
    action(
        "say what is not the protocol",
        "import os\nfor fd in range(3, 130):\n    try: os.write(fd, b'[' * 100000 + b'\\n')\n    except OSError: pass",
        "error",
        "ok",
    ),
    action(
        "flood the reply channel",
        "import os, fcntl\nfor fd in range(3, 130):\n"
        "    try: name = os.readlink('/proc/self/fd/%d' % fd) if os.path.exists('/proc/self/fd') else 'pipe'\n"
        "    except OSError: continue\n"
        "    if name.startswith('pipe'):\n"
        "        try:\n            for _ in range(400): os.write(fd, b'x' * 65536)\n        except OSError: pass",
        "error",
        "timeout",
        "ok",
        category=OUTPUT,
    ),
    action(
        "blow the host's memory up with a small reply",
        "import os\ndata = b'{\"id\": 1, \"x\": [' + b'[],' * 300000 + b'[]]}\\n'\nfor fd in range(3, 130):\n"
        "    try: os.write(fd, data)\n    except OSError: pass",
        "error",
        "ok",
        "timeout",
    ),
    action(
        "leave threads running",
        "import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "ok",
    ),
    action("leave something for the end", "import atexit, time\natexit.register(time.sleep, 60)", "ok"),
    action("print for ever", "while True: print('x' * 1000)", "timeout", "limit", "error"),
    action(
        "redefine what the kernel uses",
        "import json, os, io, traceback\njson.dumps = json.loads = os.write = io.TextIOWrapper = traceback.TracebackException = None",
        "error",
        "ok",
        "timeout",
    ),
    action(
        "leave modules that shadow the library's",
        "for name in ('json', 'ast', 'os', 'sitecustomize', 'usercustomize', 'codepilot'):\n"
        "    open(name + '.py', 'w').write('raise SystemExit(99)')\n"
        "open('x.pth', 'w').write('import os; os._exit(99)')\nimport os; os._exit(1)",
        "error",
        category=IMPORTS,
    ),
)
