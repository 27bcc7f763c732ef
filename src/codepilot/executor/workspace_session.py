"""One open workspace: its directory, what code inside sees, and everything that runs in it."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from weakref import WeakSet

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.idempotency import IdempotencyCache
from codepilot.executor.network import Network
from codepilot.executor.private_home import prepare, remove_secrets
from codepilot.executor.protocol import CreateWorkspace, EndpointInfo, SessionInfo, StartProcess, WorkspaceInfo
from codepilot.sandbox import (
    Answer,
    DiskAccount,
    Endpoint,
    Freezer,
    Kernel,
    Limits,
    Mount,
    Process,
    Sandbox,
    SandboxSpec,
    not_offered,
)
from codepilot.workspace import ObjectStore, Workspace

_ASK_AGAIN_SEC = 0.05
_PORTS = range(20_000, 30_000)
"""Where endpoints are inside: below the ports that the kernel gives out, above those of usual servers."""

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
        self._mapped_since_ns: int | None = None
        """From when on processes may have written files through mappings of memory."""
        self._mapped: set[int] = set()
        """The files that processes had mapped at some look."""
        self._running: set[threading.Event] = set()
        self._quiesced = False
        self._quiet = threading.Condition()
        self.answers = IdempotencyCache(self.workspace.path / "answers.db" if durable else None)
        self._reopened = False
        self.network = network or Network(self.workspace.path / "network", sandbox.level)
        self._former: WeakSet[Kernel] = WeakSet()
        self._disk_account: DiskAccount | None = None
        self.freezer = Freezer()
        self._endpoints: dict[str, Endpoint] = {}

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
        """Attach to the workspace again; a kernel that was started for another request is ended."""
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

    def moved(self) -> None:
        """Count growth anew: the agent's directory is another one."""
        self._disk_account = DiskAccount(time.time())

    def spec(self, env: Mapping[str, str] | None = None, cwd: str = ".") -> SandboxSpec:
        return SandboxSpec(
            workspace=Mount(self.workspace.tree_path, self.inside, writable=True),
            mounts=tuple(Mount(Path(mount.source), Path(mount.target)) for mount in self.request.mounts),
            cwd=self.inside / _relative(cwd),
            env={**self.request.env, **(env or {})},
            proxy=self.network.socket_for(self.request.hosts),
            disk_account=self._disk_account,
            freezer=self.freezer,
        )

    def start(self, request: StartProcess, limits: Limits) -> Process:
        """Start a process that ends with the workspace at the latest."""
        offer = self._sandbox.offer()
        for name, wanted in (("terminal", request.tty), ("hosts", request.hosts)):
            if wanted and name not in offer.offers:
                raise not_offered(offer, name)
        return self._adopt(lambda: self._start(request, limits))

    def _start(self, request: StartProcess, limits: Limits) -> Process:
        shown = self.spec(request.env, request.cwd)
        mounts = {mount.target: mount for mount in shown.mounts}
        mounts |= {Path(one.target): Mount(Path(one.source), Path(one.target)) for one in request.mounts}
        if request.in_place is not None:
            shown, mounts = _in_place(shown, Path(request.in_place), request.cwd, mounts)
        spec = replace(
            shown,
            mounts=tuple(mounts.values()),
            endpoints=tuple(self._endpoints.values()),
            home=prepare(self._home, request.home_files) if request.home or request.home_files else None,
            terminal=request.tty,
        )
        opened = ExitStack()
        opened.callback(remove_secrets, self._home, request.home_files)
        try:
            proxy = opened.enter_context(self.network.for_command(self.request.hosts, request.hosts))
            return self._sandbox.start(request.argv, replace(spec, proxy=proxy), limits, opened.close)
        except BaseException:
            opened.close()
            raise

    @property
    def _home(self) -> Path:
        return self.workspace.path / "home"

    def endpoint(self, name: str, target: str) -> EndpointInfo:
        offer = self._sandbox.offer()
        if "endpoints" not in offer.offers:
            raise not_offered(offer, "endpoints")
        with self._quiet:
            known = self._endpoints.get(name)
            port = known.port if known is not None else self._free_port(name)
            self._endpoints = {**self._endpoints, name: Endpoint(port, Path(target))}
        return EndpointInfo(name=name, url=f"http://127.0.0.1:{port}", port=port)

    def _free_port(self, name: str) -> int:
        """The same for the same name, after a restart as well, unless another endpoint has it."""
        taken = {endpoint.port for endpoint in self._endpoints.values()}
        first = zlib.crc32(name.encode())
        return next(port for step in range(len(_PORTS)) if (port := _PORTS[(first + step) % len(_PORTS)]) not in taken)

    def session(self) -> SessionInfo:
        home = self._sandbox.home(replace(self.spec(), home=self._home))
        offer = self._sandbox.offer()
        return SessionInfo(workspace=self.request.workspace, home=str(home), offer=offer, frozen=self.freezer.frozen)

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

    def _adopt(self, start: Callable[[], Process]) -> Process:
        """Start a process and keep track of it. It may have to wait for a thaw, so it must not hold the lock."""
        with self.running():
            began_ns = time.time_ns()
            process = start()
            with self._quiet:
                self._mapped_since_ns = self._mapped_since_ns or began_ns
                self._processes = [*(known for known in self._processes if known.running), process]
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

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing runs in this block: what is frozen stays so, anything else is ended."""
        with self.lock:
            with self.freezer.held() as frozen:
                if frozen:
                    yield
                    return
            with self.quiesced():
                yield

    def read_mapped_again(self, *, ended: bool = False) -> None:
        """Trust no status of a file that changed while processes ran; with `ended` only once all of them have ended.

        Until then, those are read again that were mapped at some look. A write through a mapping of memory moves a
        file's status time only the first time.
        """
        with self._quiet:
            since_ns, running = self._mapped_since_ns, any(process.running for process in self._processes)
            if since_ns is None:
                return
            if not running:
                self._mapped_since_ns, self._mapped = None, set()
        if not (ended and running):
            self.workspace.read_again(since_ns)
        elif self.note_mapped():
            self.workspace.read_files_again(self._mapped)

    def note_mapped(self) -> bool:
        """Remember the files that a process can write through its memory now; true if there ever were any."""
        with self._quiet:
            running = any(process.running for process in self._processes)
        if running:
            self._mapped |= self.freezer.mapped_files()
        return bool(self._mapped)

    def interrupt(self) -> None:
        """Stop the code action and the commands that are running. Processes are left running."""
        self._cancel()
        kernel = self._kernel
        if kernel is not None:
            kernel.interrupt()

    def end(self) -> None:
        """Nothing runs in the workspace any more when this returns."""
        with self.lock:
            ended = False
            while not ended:  # The next waiting action may start the kernel again.
                self._cancel()
                self._kill_processes()
                self.stop_kernel()
                self.freezer.thaw()
                with self._quiet:
                    ended = self._quiet.wait_for(lambda: not self._running, _ASK_AGAIN_SEC)
            self._kill_processes()
            self.stop_kernel()

    def _kill_processes(self) -> None:
        with self._quiet:
            processes, self._processes = self._processes, []
        for process in processes:
            process.kill()

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


def _in_place(
    spec: SandboxSpec, directory: Path, cwd: str, mounts: Mapping[Path, Mount]
) -> tuple[SandboxSpec, dict[Path, Mount]]:
    """The same on a directory of the user's. Its git directory is read-only: git would run what is configured there."""
    outside = {target: mount for target, mount in mounts.items() if not target.is_relative_to(directory)}
    if (git := directory / ".git").exists():
        outside[git] = Mount(git, git)
    workspace = Mount(directory, directory, writable=True)
    account = DiskAccount(time.time())
    return replace(spec, workspace=workspace, cwd=directory / _relative(cwd), disk_account=account), outside


def _answering(answer: AnswerFor, workspace: str) -> Answer:
    return lambda skill, arguments: answer(skill, arguments, workspace)


def _relative(cwd: str) -> PurePosixPath:
    path = PurePosixPath(cwd)
    if path.is_absolute() or ".." in path.parts:
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"the working directory {cwd!r} is not inside the workspace", path=cwd
        )
    return path
