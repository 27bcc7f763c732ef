"""A service in process, its users, and a little project with one bug."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from codepilot.api.access import COOKIE as COOKIE
from codepilot.core.access import Scope
from codepilot.core.approval import ApprovalRequested
from codepilot.core.events import EventDraft, EventType, RunBlocked
from codepilot.core.failures import Failure, FailureKind
from codepilot.engine import CodePilot

OPEN: dict[str, Any] = {"service": {"requests_per_min": 60_000}}


CODE = """def area(width, height):
    return width + height
"""
TESTS = """import unittest

from shapes import area


class ShapesTest(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(3, 4), 12)
        self.assertEqual(area(2, 2), 4)
        self.assertEqual(area(1, 5), 5)
"""


def make_checkout(project: Path) -> Path:
    project.mkdir()
    (project / "shapes.py").write_text(CODE)
    (project / "test_shapes.py").write_text(TESTS)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *arguments], cwd=project, check=True, capture_output=True)
    return project


@dataclass
class Site:
    """A service and clients of it."""

    pilot: CodePilot
    client: TestClient

    def as_(self, scope: Scope = Scope.ADMIN, name: str = "ann") -> dict[str, str]:
        """The header of a new token."""
        return {"Authorization": f"Bearer {self.pilot.create_token(name, scope).secret}"}

    def browser(self) -> dict[str, str]:
        """A logged-in owner: the session's cookie is in the client, the CSRF token in these headers."""
        self.client.get("/login", params={"link": self.pilot.login_link()})
        return {"X-CSRF-Token": self.client.get("/v1/me").json()["csrfToken"]}

    def submit(self, repo: Path, **more: object) -> httpx2.Response:
        task = {"type": "BUGFIX", "repoUrl": str(repo), "prompt": "area multiplies", **more}
        return self.client.post("/v1/tasks", json=task, headers=self.as_())


def ask(site: Site, run_id: str, **more: Any) -> ApprovalRequested:
    """Let a run that no worker has wait for an answer."""
    store = site.pilot._runtime.store
    usual = {"operation": "network", "details": "pypi.org", "reasons": ("<b>why",)}
    request = ApprovalRequested(approval_id="a-1", expires_at=store.now() + 10**8, **{**usual, **more})
    failure = Failure(kind=FailureKind.DENIED, message="A person has to approve.", details={"approval_id": "a-1"})
    run = store.load(run_id)
    drafts = [
        EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt)
        for kind, data in (
            (EventType.APPROVAL_REQUESTED, request),
            (EventType.RUN_BLOCKED, RunBlocked(failure=failure)),
        )
    ]
    store.control(run_id, lambda run: drafts)
    return request
