"""One open workspace: its directory, what code inside sees, and everything that runs in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from weakref import WeakSet

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.idempotency import IdempotencyCache
from codepilot.executor.network import Network
from codepilot.executor.protocol import CreateWorkspace, WorkspaceInfo
from codepilot.sandbox import Answer, DiskAccount, Kernel, Limits, Mount, Process, Sandbox, SandboxSpec
from codepilot.workspace import ObjectStore, Workspace

_ASK_AGAIN_SEC = 0.05

AnswerFor = Callable[[str, JsonObject, str], JsonValue]
"""Calls a skill that runs on this side, by name and arguments, for code in the workspace of a name."""


class WorkspaceSession:
    """Commands run side by side, code actions take turns, and operations that replace files take the lock."""

    def __init__(
        self,
        home: Path,
        request: CreateWorkspace,
        sandbox: Sandbox,
        limits: Limits,
        prelude: str,
        durable: bool = False,
        answer: AnswerFor | None = None,
        network: Network | None = None,
    ) -> None:
        self.request = request
        self.lock = threading.RLock()
        self._objects = ObjectStore.open(Path(request.objects))
        self.workspace = Workspace(home / request.workspace, self._objects)
        self._sandbox = sandbox
        self._limits = limits
        self._prelude = prelude
        self.answer = _answering(answer, request.workspace) if answer is not None else None
        self._kernel: Kernel | None = None
        self._processes: list[Process] = []
        self._running: set[threading.Event] = set()
        self._quiesced = False
        self._quiet = threading.Condition()
        self.answers = IdempotencyCache(self.workspace.path / "answers.db" if durable else None)
        self._reopened = False
        self.network = network or Network(self.workspace.path / "network", sandbox.level)
        self._former: WeakSet[Kernel] = WeakSet()
        self._disk_account: DiskAccount | None = None

    @property
    def inside(self) -> Path:
        """The path of the tree inside; its real path at levels that cannot remap."""
        if self.request.at is not None and self._sandbox.remaps:
            return Path(self.request.at)
        return self.workspace.tree_path

    def info(self, created: bool) -> WorkspaceInfo:
        return WorkspaceInfo(
            workspace=self.request.workspace,
            path=str(self.workspace.tree_path),
            inside=str(self.inside),
            level=self._sandbox.level,
            created=created,
        )

    def attach(self, request: CreateWorkspace) -> None:
        """The same workspace asked for again; a kernel that saw it differently is ended."""
        with self.lock:
            if request != self.request:
                self._retire_kernel()
                self.network.withdraw()
                self.request = request

    def materialised(self, created: bool) -> None:
        """Count the growth of the workspace from now on."""
        if created or self._disk_account is None:
            with suppress(FileNotFoundError):  # half removed
                self._disk_account = DiskAccount(self.workspace.made_at, known=created)

    def spec(self, env: Mapping[str, str] | None = None, cwd: str = ".") -> SandboxSpec:
        return SandboxSpec(
            workspace=Mount(self.workspace.tree_path, self.inside, writable=True),
            mounts=tuple(Mount(Path(mount.source), Path(mount.target)) for mount in self.request.mounts),
            cwd=self.inside / _relative(cwd),
            env={**self.request.env, **(env or {})},
            proxy=self.network.socket_for(self.request.hosts),
            disk_account=self._disk_account,
        )

    def kernel(self) -> Kernel:
        with self.lock:
            if self._kernel is None:
                python = self.request.kernel_python
                self._kernel = Kernel(self._sandbox, self.spec(), self._limits, python, self._prelude, self.answer)
            return self._kernel

    def stop_kernel(self) -> None:
        """End the kernel; the next result says that its variables are gone."""
        for kernel in (*self._former, *([self._kernel] if self._kernel is not None else [])):
            kernel.stop(lost=True)

    def _retire_kernel(self) -> None:
        """End the kernel for good, but keep track of it: an action that holds it may start it once more."""
        if self._kernel is not None:
            self._reopened = self._reopened or self._kernel.running
            self._former.add(self._kernel)
            self.stop_kernel()
            self._kernel = None

    def used(self, kernel: Kernel) -> None:
        """An action is done with a kernel. The last action of a retired kernel ends it."""
        if kernel is not self._kernel and not kernel.busy:
            kernel.stop()

    def adopt(self, start: Callable[[], Process]) -> Process:
        """Start a process that ends with the workspace at the latest."""
        with self.lock:
            process = start()
            self._processes = [known for known in self._processes if known.running]
            self._processes.append(process)
        return process

    @contextmanager
    def running(self) -> Iterator[threading.Event]:
        """A command or an action runs in this block, which never takes the lock; the event asks a command to stop."""
        cancel = threading.Event()
        with self._quiet:
            self._quiet.wait_for(lambda: not self._quiesced)
            self._running.add(cancel)
        try:
            yield cancel
        finally:
            with self._quiet:
                self._running.discard(cancel)
                self._quiet.notify_all()

    @contextmanager
    def quiesced(self) -> Iterator[None]:
        """End everything in the workspace; nothing starts in it until the block ends."""
        with self.lock:
            with self._quiet:
                self._quiesced = True
            try:
                self.end()
                yield
            finally:
                with self._quiet:
                    self._quiesced = False
                    self._quiet.notify_all()

    def interrupt(self) -> None:
        """Stop the code action and the commands that are running. Processes are left running."""
        self._cancel()
        kernel = self._kernel
        if kernel is not None:
            kernel.interrupt()

    def end(self) -> None:
        """Nothing runs in the workspace any more when this returns."""
        with self.lock:
            for process in self._processes:
                process.kill()
            self._processes.clear()
            ended = False
            while not ended:  # The next waiting action may start the kernel again.
                self._cancel()
                self.stop_kernel()
                with self._quiet:
                    ended = self._quiet.wait_for(lambda: not self._running, _ASK_AGAIN_SEC)
            self.stop_kernel()

    def _cancel(self) -> None:
        with self._quiet:
            for cancel in self._running:
                cancel.set()

    def close(self) -> None:
        self.end()
        self.network.close()
        self.answers.close()
        self.workspace.close()
        self._objects.close()

    def reopened(self) -> None:
        """The executor has restarted; the kernel's variables are gone."""
        self._reopened = True

    def was_reopened(self) -> bool:
        """True once after the executor restarted."""
        was, self._reopened = self._reopened, False
        return was


def _answering(answer: AnswerFor, workspace: str) -> Answer:
    return lambda skill, arguments: answer(skill, arguments, workspace)


def _relative(cwd: str) -> PurePosixPath:
    path = PurePosixPath(cwd)
    if path.is_absolute() or ".." in path.parts:
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"the working directory {cwd!r} is not inside the workspace", path=cwd
        )
    return path
