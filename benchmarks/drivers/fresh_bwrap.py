"""The plain way to isolate: bubblewrap with a fresh Python for every action. No seccomp, no limits, no supervision."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.drivers.loop import ACTIONS, base_python, serve

_FLAGS = (
    "--unshare-all --uid 1000 --gid 1000 --die-with-parent --new-session --cap-drop ALL --clearenv --ro-bind /usr /usr "
    "--symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp"
)


class FreshBubblewrap:
    def __init__(self) -> None:
        binary = shutil.which("bwrap") or "bwrap"
        self._directory = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
        tree = str(Path(self._directory.name).resolve())
        shown = [] if sys.base_prefix.startswith("/usr") else ["--ro-bind", sys.base_prefix, sys.base_prefix]
        self._command = [binary, *_FLAGS.split(), *shown, "--bind", tree, "/work", "--chdir", "/work", *base_python()]

    def act(self, name: str) -> str:
        done = subprocess.run([*self._command, "-c", ACTIONS[name]], capture_output=True, text=True, check=False)
        if done.returncode and name != "raise":
            raise RuntimeError(done.stderr)
        return done.stdout + done.stderr

    def stop(self) -> None:
        self._directory.cleanup()


def main() -> None:
    message = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout
    serve(FreshBubblewrap, 0.0, message.split()[-1])


if __name__ == "__main__":
    main()
