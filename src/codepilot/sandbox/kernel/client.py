"""The host's side of a kernel: starts it, sends requests, enforces deadlines and replaces a lost kernel."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.interpreter import base_prefixes, base_python
from codepilot.sandbox.json_lines import JsonLinesClient, ProcessEnded, ProtocolError
from codepilot.sandbox.kernel.host_calls import Answer, HostCalls
from codepilot.sandbox.kernel.replies import CodeError, CodeResult, Lost, OutputFiles, longest_line, result_of
from codepilot.sandbox.limits.supervisor import SupervisedProcess
from codepilot.sandbox.spec import Limits, Mount, Process, Sandbox, SandboxSpec

_SOURCE = Path(__file__).parent.with_name("standalone") / "kernel.py"
_INSIDE = Path("/run/codepilot/kernel.py")
_START_SECONDS = 30.0
_INTERRUPT_SECONDS = 2.0
_NUMBER_BITS = 52
_ENDING_SECONDS = 0.5


class Kernel:
    """A persistent Python inside a sandbox, started when first needed.

    `python` defaults to the interpreter that runs us, without its packages. `prelude` is defined in every fresh
    kernel. After a kernel was lost the next result says `kernel_restarted`: its variables are gone. `answer` calls the
    skills that run on the host; its time counts as the action's.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        spec: SandboxSpec,
        limits: Limits,
        python: str | None = None,
        prelude: str = "",
        answer: Answer | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._limits = replace(limits, wall_sec=math.inf)
        self._prelude = prelude
        self._answer = answer
        self._command, mounts = _command(sandbox, python)
        known = {mount.target for mount in spec.mounts}
        self._spec = replace(spec, mounts=(*spec.mounts, *(mount for mount in mounts if mount.target not in known)))
        self._now = spec.freezer.now if spec.freezer is not None else time.monotonic
        self._process: Process | None = None
        self._output_files: OutputFiles | None = None
        self._client: JsonLinesClient | None = None
        self._was_lost = False
        self._stops = 0
        self._asking = False
        self._interrupted = threading.Event()
        self._busy = threading.Lock()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def busy(self) -> bool:
        """True if an action runs."""
        return self._busy.locked()

    def run(self, code: str, timeout_sec: float = 300.0, answer: Answer | None = None) -> CodeResult:
        """Run one action; actions of one kernel wait for one another. `answer` takes its host calls instead."""
        with self._busy:
            started = self._now()
            self._interrupted.clear()
            stops = self._stops
            result = self._run(code, timeout_sec, stops, HostCalls(answer or self._answer))
            restarted, self._was_lost = self._was_lost, False
            duration = (self._now() - started) * 1000
            return result.model_copy(
                update={"duration_ms": duration, "kernel_restarted": restarted or result.kernel_restarted}
            )

    def _run(self, code: str, timeout_sec: float, stops: int, host_calls: HostCalls) -> CodeResult:
        try:
            process = self._ready()
        except CodePilotError:
            if self._stops == stops:
                raise
            return CodeResult(status="interrupted", kernel_restarted=True)
        if self._stops != stops:
            self._end()
            return CodeResult(status="interrupted", kernel_restarted=True)
        if self._interrupted.is_set():
            return CodeResult(status="interrupted")
        output_files = self._output_files
        try:
            self._asking = True
            _expect(process, True)
            reply, status = self._ask(process, "run", code, timeout_sec, host_calls)
            result = result_of(reply, status, self._limits.output_bytes)
            if result.status == "error" and process.limit is not None:
                raise Lost("it broke a limit")
            return result.model_copy(update={"calls": host_calls.calls(result.calls)})
        except Lost as lost:
            result = self._loss(process, output_files, "stopped" if self._stops != stops else str(lost))
        except Exception as error:  # noqa: BLE001  (the action has run, so whatever happens to its reply is its result)
            result = self._loss(process, output_files, f"its reply cannot be taken ({type(error).__name__})")
        finally:
            self._asking = False
            _expect(process, False)
        return result.model_copy(update={"calls": host_calls.calls(())})

    def interrupt(self) -> None:
        """Stop the action that is running, or about to, if there is one; the variables stay."""
        process = self._process
        if self.busy:
            self._interrupted.set()
            if process is not None and self._asking:
                process.interrupt()

    def stop(self, lost: bool = False) -> None:
        """End the kernel, with the action that may be running. `lost` makes the next result say `kernel_restarted`."""
        self._stops += 1
        self._end(lost)

    def _end(self, lost: bool = False) -> None:
        process, self._process = self._process, None
        output_files, self._output_files = self._output_files, None
        self._was_lost = self._was_lost or (lost and process is not None)
        if process is not None:
            process.kill()
        if output_files is not None:
            output_files.close()

    def _ready(self) -> Process:
        process = self._process
        if process is not None and not process.running:
            self._end(lost=True)
            process = None
        if process is None:
            process = self._process = self._sandbox.start(self._command, self._spec, self._limits)
            self._greet(process)
            self._output_files = OutputFiles(process, self._limits.output_bytes)
        return process

    def _greet(self, process: Process) -> None:
        """Wait for a fresh kernel's first message, and define the skills in it."""
        longest = longest_line(self._limits.output_bytes)
        no_calls = HostCalls(None)
        try:
            self._client = JsonLinesClient(process, longest, 2 * longest, now=self._now)
            self._read_reply(self._client, 0, self._now() + _START_SECONDS, no_calls, interruptible=False)
            if self._prelude:
                reply, _ = self._ask(process, "define", self._prelude, _START_SECONDS, no_calls)
                if not reply.get("ok"):
                    raise Lost(f"the skills could not be defined: {reply.get('error')}")
        except (Lost, ProcessEnded, TimeoutError) as lost:
            process.kill()
            self._process = None
            tail = process.stderr_tail().decode(errors="replace").strip()[-2000:]
            raise CodePilotError(
                FailureKind.SANDBOX_UNAVAILABLE,
                f"the kernel cannot be started ({lost}): {tail}",
                command=self._command,
            ) from lost

    def _ask(
        self, process: Process, op: str, source: str, timeout_sec: float, host_calls: HostCalls
    ) -> tuple[dict[str, Any], Literal["timeout", "interrupted"] | None]:
        """Send a request and wait. Interrupt at the deadline, and give the kernel up if that does not help."""
        assert self._client is not None
        client = self._client
        number = secrets.randbits(_NUMBER_BITS)  # an earlier action cannot forge the reply
        request = {"id": number, "op": op, "source": source, "limit": self._limits.output_bytes}
        deadline = self._now() + timeout_sec
        with _losing():
            client.ask(request, max(deadline, self._now() + _START_SECONDS))
        try:
            reply = self._read_reply(client, number, deadline, host_calls, op == "run")
            return reply, "interrupted" if self._interrupted.is_set() else None
        except TimeoutError:
            interrupted = self._interrupted.is_set()
            process.interrupt()
        try:
            reply = self._read_reply(client, number, self._now() + _INTERRUPT_SECONDS, host_calls)
            return reply, "interrupted" if interrupted else "timeout"
        except TimeoutError as error:
            raise Lost("interrupted" if interrupted else "timeout") from error

    def _read_reply(
        self, client: JsonLinesClient, wanted: int, deadline: float, host_calls: HostCalls, interruptible: bool = True
    ) -> dict[str, Any]:
        """The reply with this id. TimeoutError at the deadline, or soon after an interrupt without effect."""
        obey_until = math.inf

        def check() -> None:
            nonlocal obey_until
            if interruptible and self._interrupted.is_set():
                obey_until = min(obey_until, self._now() + _INTERRUPT_SECONDS)
                if self._now() >= obey_until:
                    raise TimeoutError

        while True:
            try:
                message = client.receive(deadline, check)
            except ProtocolError as error:
                raise Lost(str(error)) from error
            except ProcessEnded as error:
                if self._process is not None:
                    self._process.wait(_ENDING_SECONDS)  # it may live on after closing its pipe
                raise Lost("it ended") from error
            if "note" in message:
                host_calls.note(message["note"])
            elif "call" in message:
                answer = host_calls.reply(message, self._over(deadline, interruptible))
                with _losing():
                    client.send(answer, deadline + _INTERRUPT_SECONDS)
            elif message.get("id") == wanted:
                return message

    def _over(self, deadline: float, interruptible: bool) -> Callable[[], bool]:
        """A function that is true once an answer is useless: the time is up or the action stops."""
        stops = self._stops
        return lambda: self._now() >= deadline or (interruptible and self._interrupted.is_set()) or self._stops != stops

    def _loss(self, process: Process, output_files: OutputFiles | None, why: str) -> CodeResult:
        """The result of an action whose kernel is lost; the next action gets a fresh one."""
        self._end()
        process.kill()
        stdout, stderr = output_files.texts() if output_files is not None else ("", "")
        stderr += process.stderr_tail().decode(errors="replace")
        status: Literal["error", "timeout", "limit", "interrupted"] = "error"
        limit = code = None
        if why == "timeout":
            status, limit = "timeout", "wall"
            kind, message = "Timeout", "the action did not stop when interrupted; the kernel was ended"
        elif why == "stopped":
            status, kind, message = "interrupted", "Interrupted", "the kernel was stopped"
        elif why == "interrupted":
            status, kind = "interrupted", "Interrupted"
            message = "the action did not stop when interrupted; the kernel was ended"
        elif limit := process.limit:
            status, kind, message = (
                "limit",
                "LimitExceeded",
                f"the action broke its {limit} limit; the kernel was ended",
            )
        else:
            code = process.wait(0)
            kind, message = "KernelLost", f"the kernel was lost: {why}" + (f" with exit code {code}" if code else "")
        return CodeResult(
            status=status,
            stdout=stdout,
            stderr=stderr,
            error=CodeError(type=kind, message=message),
            limit=limit,
            exit_code=code,
            kernel_restarted=True,
        )


def _expect(process: Process, busy: bool) -> None:
    if isinstance(process, SupervisedProcess):
        process.expect(busy)


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    """A kernel that does not read its input is lost."""
    try:
        yield
    except (ProcessEnded, TimeoutError) as error:
        raise Lost("it does not read its input") from error


def _command(sandbox: Sandbox, python: str | None) -> tuple[list[str], Sequence[Mount]]:
    """How to start the kernel, and what must be visible for it beyond the spec."""
    inside = _INSIDE if sandbox.remaps else _SOURCE
    mounts = [Mount(_SOURCE, inside)]
    if python is not None:
        return [python, "-X", "utf8", os.fspath(inside)], mounts
    mounts += [Mount(prefix, prefix) for prefix in base_prefixes()]
    return [os.fspath(base_python()), "-I", "-S", "-X", "utf8", os.fspath(inside)], mounts
