"""Processes whose output nobody reads take up no place once their workspace is done with."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from codepilot.executor import StartProcess
from codepilot.executor.service.processes import Processes
from codepilot.executor.wire import StartRemote

NAME = "r-1"
PATIENCE_SEC = 20.0
MUCH = "exec head -c 3000000 /dev/zero"
"""More than is held for a reader, so that it is never written to its end."""


def start(client, script=MUCH):
    return client.start_process(StartProcess(workspace=NAME, argv=("/bin/sh", "-c", script)))


def until_full(process):
    """Until the service has taken all that it takes."""
    time.sleep(0.3)
    assert process.running


@pytest.mark.parametrize("how", ["delete", "release", "restore"])
def test_what_nobody_reads_ends_with_its_workspace(strict, request_for, how):
    service = strict(processes=2, drain_sec=600.0)
    client = service.client()
    for _ in range(3):
        client.create(request_for())
        snapshot = client.snapshot(NAME).snapshot
        until_full(start(client))
        getattr(client, how)(*((NAME, snapshot) if how == "restore" else (NAME,)))
    client.create(request_for())
    for process in [start(client, "cat"), start(client, "cat")]:
        process.kill()
    started = time.monotonic()
    assert service.end() == 0
    assert time.monotonic() - started < PATIENCE_SEC


def test_one_that_ended_unread_ends_with_its_workspace_too(strict, request_for):
    service = strict(processes=2, drain_sec=600.0)
    client = service.client()
    client.create(request_for())
    ended = start(client, "head -c 1100000 /dev/zero")
    deadline = time.monotonic() + PATIENCE_SEC
    while ended.running and time.monotonic() < deadline:
        time.sleep(0.05)
    start(client, "cat").kill()
    client.delete(NAME)
    client.create(request_for())
    for process in [start(client, "cat"), start(client, "cat")]:
        process.kill()
    assert service.end() == 0


class Unended:
    """A process whose output stays open after its end, as when its reader is slow to notice."""

    limit = None

    def __init__(self):
        end, self._held = os.pipe()
        self._popen = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.stdin, self.stdout = self._popen.stdin, os.fdopen(end, "rb")
        self.wait = self._popen.wait

    @property
    def running(self):
        return self._popen.poll() is None

    def stderr_tail(self):
        return b""

    def kill(self):
        self._popen.kill()
        self._popen.wait()

    def forget(self):
        os.close(self._held)


def test_a_killed_process_has_given_up_its_place_by_then():
    processes, one, other = Processes(most=1), Unended(), Unended()
    for name, process in (("aa" * 16, one), ("bb" * 16, other)):
        request = StartRemote(workspace=NAME, argv=("cat",), process=name)
        served = processes.start(request, lambda process=process: process)
        assert processes.running() == 1
        served.kill()
        assert processes.running() == 0
        assert not served.state().running
    for process in (one, other):
        process.forget()
