"""The code of a process inside is compiled here for a Python like our own; any other reads its source."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import MAGIC_NUMBER

import pytest

from codepilot.repair.python.bootstrap import BOOT, DISTINGUISH, bundle


def pieces() -> tuple[bytes, bytes]:
    whole = bundle(DISTINGUISH)
    end = 8 + int(whole[:8])
    return whole[8:end], whole[end + 8 :]


def starts(reported: bytes, compiled: bytes) -> bool:
    """Whether a process that is given this begins, and ends when it is asked nothing."""
    sent = b"".join(b"%08d%b" % (len(piece), piece) for piece in (reported, compiled))
    done = subprocess.run([sys.executable, "-c", BOOT], input=sent, capture_output=True, timeout=60)
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("same", [True, False])
def test_source_is_read_only_by_another_python(same: bool) -> None:
    reported, compiled = pieces()
    if not same:
        reported = reported.replace(MAGIC_NUMBER.hex().encode(), b"00000000", 1)
    assert starts(reported.replace(b"def main()", b"def gone()"), compiled) is same
    assert starts(reported, b"no code") is not same
