"""However much text a tree holds, each operation on it takes bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_CODE = """
import sys
from pathlib import Path
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Entry, ObjectStore, Workspace

def peak():
    found = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(found[0].split()[1]) >> 10

home = Path(sys.argv[1])
objects = ObjectStore.open(home / "objects")
base = objects.write_tree({"a": Entry("100644", objects.write_blob(b"a"))})
workspace = Workspace(home / "one", objects)
workspace.create(base)
line = b"a line of text that goes on and on, %09d\\n"
for name in ("x", "y"):
    with (workspace.tree_path / name).open("wb") as file:
        for start in range(0, 2_200_000, 1000):
            file.write(b"".join(line % number for number in range(start, start + 1000)))
before = peak()
taken = workspace.snapshot()
try:
    workspace.diff(base)
except CodePilotError as error:
    assert error.kind is FailureKind.POLICY_VIOLATION, error
else:
    raise AssertionError("a diff of so much text must be refused")
other = Workspace(home / "two", objects)
other.create(base)
there = other.import_snapshot(workspace.export_snapshot(taken.id))
other.restore(there.id)
assert (other.tree_path / "x").stat().st_size == (workspace.tree_path / "x").stat().st_size
print(peak() - before)
"""


def test_two_hundred_megabytes_of_text_cost_little_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _CODE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150
