"""A workspace in the sandbox in which an agent's program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codepilot.agents.cli.protocol import AgentStart
from codepilot.core.events import Usage
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec
from codepilot.models.gateway import Dialect, ModelEndpoint
from codepilot.models.gateway.server import Gateway
from codepilot.models.gateway.upstream import Upstream
from codepilot.sandbox import choose
from codepilot.workspace import Entry, ObjectStore
from model_server import KEY, ModelServer, Script

WORKSPACE = "r-1"


MODELS: Mapping[Dialect, str] = {"anthropic": "claude-sonnet-4-6", "openai": "gpt-5.5", "gemini": "gemini-2.5-pro"}


class Unlimited:
    """A meter for which everything is affordable."""

    def begin(self, model: str, estimate: Usage) -> Unlimited:
        return self

    def quota_is_back(self, at_us: int | None) -> None:
        pass

    def grow(self, used: Usage) -> bool:
        return True

    def end(self, used: Usage | None) -> None:
        pass


@dataclass(frozen=True)
class Place:
    """`shown` is a directory of the host's that code inside sees, read-only."""

    executor: LocalExecutor
    directory: str
    tree: Path
    """The tree as the host sees it."""
    shown: Path

    def start(
        self, prompt: str = "Fix the bug.", environ: Mapping[str, str] | None = None, **fields: object
    ) -> AgentStart:
        return AgentStart(
            start_process=self.executor.start_process,
            workspace=WORKSPACE,
            directory=self.directory,
            prompt=prompt,
            environ=environ or {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            **fields,  # type: ignore[arg-type]
        )

    @contextmanager
    def model(self, script: Script) -> Iterator[tuple[ModelServer, Callable[[Dialect], ModelEndpoint]]]:
        """A scripted model behind the gateway, as programs inside find it."""
        with ModelServer(script) as server:
            bases = {"anthropic": server.url, "openai": f"{server.url}/v1", "gemini": server.url}
            upstreams = [Upstream(dialect, base, KEY) for dialect, base in bases.items()]  # type: ignore[arg-type]
            with Gateway(upstreams, Unlimited()) as gateway:
                inside = self.executor.endpoint(WORKSPACE, "model", str(gateway.socket)).url

                def endpoint(dialect: Dialect) -> ModelEndpoint:
                    base = f"{inside}/v1" if dialect == "openai" else inside
                    return ModelEndpoint(dialect, base, gateway.token, MODELS[dialect])

                yield server, endpoint

    def text(self, path: str) -> str:
        return self.executor.read_file(WORKSPACE, path).decode()


@contextmanager
def opened_place(tmp_path: Path) -> Iterator[Place]:
    shown = tmp_path / "shown"
    shown.mkdir()
    objects = tmp_path / "objects.git"
    with ObjectStore.open(objects) as store:
        tree = store.write_tree({"README": Entry("100644", store.write_blob(b"hello\n"))})
    executor = LocalExecutor(tmp_path / "home", choose("best"))
    request = CreateWorkspace(
        workspace=WORKSPACE,
        objects=str(objects),
        tree=tree,
        at=str(tmp_path / "project"),
        mounts=(MountSpec(source=str(shown), target=str(shown)),),
    )
    try:
        made = executor.create(request)
        yield Place(executor, made.inside, Path(made.path), shown)
    finally:
        executor.close()
