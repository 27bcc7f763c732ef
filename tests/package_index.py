"""A registry of Python packages on loopback, with wheels that are made on the spot."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


class PackageIndex:
    """Serves packages by their names, each a module of that name; `asked` are the paths that were asked for."""

    def __init__(self, packages: Mapping[str, str]) -> None:
        self.asked: list[str] = []
        wheels = {name: _wheel(name, source) for name, source in packages.items()}
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                parts = self.path.strip("/").split("/")
                if parts[0] == "simple" and parts[1] in wheels:
                    link = f'<a href="/files/{parts[1]}-1.0-py3-none-any.whl">{parts[1]}</a>'
                    self._answer(200, "text/html", f"<!DOCTYPE html><html><body>{link}</body></html>".encode())
                elif parts[0] == "files" and (name := parts[1].partition("-")[0]) in wheels:
                    self._answer(200, "application/octet-stream", wheels[name])
                else:
                    self._answer(404, "text/plain", b"")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def environ(self) -> dict[str, str]:
        """pip's configuration of this registry and no other."""
        address = f"127.0.0.1:{self._server.server_port}"
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"http://{address}/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_TRUSTED_HOST": "127.0.0.1",
        }

    def __enter__(self) -> PackageIndex:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _wheel(name: str, source: str) -> bytes:
    made = io.BytesIO()
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(made, "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
        packed.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))
    return made.getvalue()


class NpmRegistry:
    """Serves packages of npm by their names, each one module; `asked` are the paths that were asked for."""

    def __init__(self, packages: Mapping[str, str]) -> None:
        self.asked: list[str] = []
        tarballs = {name: _tarball(name, source) for name, source in packages.items()}
        asked, outer = self.asked, self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                name = self.path.strip("/").removesuffix(".tgz")
                if name not in tarballs:
                    return self._answer(404, b"{}")
                if self.path.endswith(".tgz"):
                    return self._answer(200, tarballs[name])
                shasum = hashlib.sha1(tarballs[name]).hexdigest()
                dist = {"tarball": f"{outer.url}{name}.tgz", "shasum": shasum}
                version = {"name": name, "version": "1.0.0", "dist": dist}
                packument = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
                return self._answer(200, json.dumps(packument).encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    @property
    def environ(self) -> dict[str, str]:
        """npm's configuration of this registry and no other."""
        return {"npm_config_registry": self.url, "npm_config_userconfig": "/dev/null"}

    def __enter__(self) -> NpmRegistry:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _tarball(name: str, source: str) -> bytes:
    made = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": name, "version": "1.0.0", "type": "module", "main": "index.js"}),
        "package/index.js": source,
    }
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()
