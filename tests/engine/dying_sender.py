"""A sender's process that dies the moment its receiver has answered, before that is on record."""

from __future__ import annotations

import os
import signal
import sys

from codepilot.engine import Runtime, Settings
from codepilot.engine.webhook import Answer, WebhookClient, WebhookSender


class Deadly(WebhookClient):
    def post(self, key: str, body: bytes, seconds: float) -> Answer:
        super().post(key, body, seconds)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")


if __name__ == "__main__":
    with Runtime.open(Settings.load(flags={"home": sys.argv[1]})) as runtime:
        WebhookSender(runtime, Deadly(sys.argv[2])).send_due()
