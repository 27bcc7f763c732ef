"""A courier's process that dies the moment its receiver has answered, before that is on record."""

from __future__ import annotations

import os
import signal
import sys

from codepilot.engine import Runtime
from codepilot.engine.courier import Courier
from codepilot.engine.receiver import Answer, Receiver


class Deadly(Receiver):
    def post(self, key: str, body: bytes, seconds: float) -> Answer:
        super().post(key, body, seconds)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")


if __name__ == "__main__":
    with Runtime.open({"CODEPILOT_HOME": sys.argv[1]}) as runtime:
        Courier(runtime, Deadly(sys.argv[2])).round()
