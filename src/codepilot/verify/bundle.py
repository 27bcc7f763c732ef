"""The bundle: the finished change with its proof in one directory; and the record of a run without a change.

`provenance.json` holds the digest of every other file, and `bundle.sha256` the digest of the provenance. The run's log
holds that last digest too, so that even a consistently rewritten bundle is detected.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from codepilot.core.approval import ApprovalRequested
from codepilot.core.artifacts import RegressionTest
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Event, State, Verdict
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskSpec
from codepilot.telemetry import Clean, Report, redact, report, report_json, rfc3339, timeline, transcript
from codepilot.telemetry.report import SCHEMA_VERSION, ReportedFailure
from codepilot.workspace import is_url

PATCH = "patch.diff"
BASE_DIFF = "base.diff"
REPORT = "report.json"
TRANSCRIPT = "transcript.jsonl"
TIMELINE = "timeline.json"
PROVENANCE = "provenance.json"
SEAL = "bundle.sha256"
PAYLOAD = (PATCH, BASE_DIFF, REPORT, TRANSCRIPT, TIMELINE)

MAX_FILE_BYTES = 1 << 30


class FileDigest(Contract):
    sha256: str
    size_bytes: int


class Versions(Contract):
    """The versions of the tools that made the proof."""

    codepilot: str
    python: str
    git: str
    pytest: str | None = None


class SandboxUsed(Contract):
    """The sandbox level of the proof. `unsandboxed` states explicitly that there was none."""

    level: str
    unsandboxed: bool


class Provenance(Contract):
    """The origin of a change and the digests of its files: all that is needed to prove it again."""

    schema_version: Literal[1] = 1
    run_id: str
    task: TaskSpec
    base_commit: str
    base_dirty: bool
    base_tree: str
    patched_tree: str
    targets: tuple[str, ...]
    signature: str
    suite: Literal["full", "partial", "none"]
    verdict: Literal["confirmed", "plausible"] | None
    confidence: float
    agreement: float | None = None
    """The search's estimate, if it found the change."""
    versions: Versions
    commands: tuple[tuple[str, ...], ...]
    sandbox: SandboxUsed
    created_at: str
    checkout: str | None = None
    regression_test: RegressionTest | None = None
    """The test that was attached to the change, or the reason for none."""
    files: dict[str, FileDigest] = {}

    def redacted(self, clean: Clean) -> Provenance:
        """A copy without secrets in its prose. The fields that the proof needs are unchanged."""
        task, test = self.task, self.regression_test
        prose = {
            "goal": task.goal.model_copy(update={"natural": clean(task.goal.natural)}),
            "constraints": tuple(map(clean, task.constraints)),
            "evaluation": task.evaluation.model_copy(
                update={"acceptance_hint": clean(task.evaluation.acceptance_hint)}
            ),
            "repo": clean(task.repo) if is_url(task.repo) else task.repo,
        }
        reason = test and test.model_copy(update={"reason": clean(test.reason)})
        return self.model_copy(update={"task": task.model_copy(update=prose), "regression_test": reason})


@dataclass(frozen=True)
class BundleContents:
    """The contents of a bundle. `write_bundle` adds the digests of the files to `provenance`."""

    patch: bytes
    base_diff: bytes
    report: JsonObject
    transcript: bytes
    timeline: JsonObject
    provenance: Provenance


@dataclass(frozen=True)
class BundleInfo:
    path: Path
    sha256: str


def sandbox_used(level: str) -> SandboxUsed:
    return SandboxUsed(level=level, unsandboxed=level == "none")


# Writing --------------------------------------------------------------------------------------------


def write_bundle(directory: Path, contents: BundleContents) -> BundleInfo:
    """Write the bundle to `directory` atomically. Equal contents give equal bytes."""
    files = _files(contents)
    write_directory(directory, files)
    return BundleInfo(path=directory, sha256=_digest(files[PROVENANCE]).sha256)


def write_directory(directory: Path, files: Mapping[str, bytes]) -> None:
    """Replace `directory` by one that holds exactly `files`. A crash leaves the old one, none, or the new one."""
    if _holds(directory, files):
        return
    fresh = directory.with_name(f".{directory.name}.writing")
    old = directory.with_name(f".{directory.name}.replaced")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        _discard(fresh)
        fresh.mkdir()
        for name, data in files.items():
            _write_synced(fresh / name, data)
        _sync(fresh)
        _discard(old)
        if directory.exists():
            directory.rename(old)
        fresh.rename(directory)
        _sync(directory.parent)
        _discard(old)
    except OSError as error:
        kind = FailureKind.DISK_FULL if error.errno == errno.ENOSPC else FailureKind.ARTIFACT_STORE_UNAVAILABLE
        raise CodePilotError(kind, f"The files of {directory} could not be written: {error}") from error


def _holds(directory: Path, files: Mapping[str, bytes]) -> bool:
    """True if the directory holds exactly these files. It is then left alone, because a reader may use it."""
    try:
        return {path.name: path.read_bytes() for path in directory.iterdir()} == dict(files)
    except OSError:
        return False


def _files(contents: BundleContents) -> dict[str, bytes]:
    files = {
        PATCH: contents.patch,
        BASE_DIFF: contents.base_diff,
        REPORT: pretty(contents.report),
        TRANSCRIPT: contents.transcript,
        TIMELINE: pretty(contents.timeline),
    }
    digests = {name: _digest(data) for name, data in files.items()}
    provenance = contents.provenance.model_copy(update={"files": digests})
    files[PROVENANCE] = pretty(provenance.model_dump(mode="json"))
    files[SEAL] = _seal(files[PROVENANCE])
    return files


def pretty(document: object) -> bytes:
    """Indented JSON with the keys in the order of the document."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _digest(data: bytes) -> FileDigest:
    return FileDigest(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


def _seal(provenance: bytes) -> bytes:
    return f"{_digest(provenance).sha256}  {PROVENANCE}\n".encode()


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)


# Checking -------------------------------------------------------------------------------------------


def check_bundle(directory: Path, expected: str | None = None) -> Provenance:
    """Check every byte; raise with the name of the first file that is missing, extra or altered.

    `expected` is the digest in the run's log. With it, a consistently rewritten bundle is detected too.
    """
    present = _listing(directory)
    _refuse_odd(directory, present)
    sealed = _read(directory, SEAL)
    raw = _read(directory, PROVENANCE)
    if sealed != _seal(raw):
        named = re.fullmatch(rb"[0-9a-f]{64}  provenance\.json\n", sealed)
        raise _altered(PROVENANCE if named else SEAL, "does not match its seal" if named else "is not a seal")
    provenance = _parse(raw)
    for name in PAYLOAD:
        recorded = provenance.files.get(name)
        if recorded is None or recorded != _digest(_read(directory, name)):
            raise _altered(name, "is not the file that was proved")
    if expected is not None and _digest(raw).sha256 != expected:
        raise _altered(PROVENANCE, "is consistent in itself, but it is not the one that the run wrote")
    return provenance


def read_payload(directory: Path, name: str, provenance: Provenance) -> bytes:
    """Read one file and check its digest again, in case it was replaced since `check_bundle`."""
    data = _read(directory, name)
    if provenance.files.get(name) != _digest(data):
        raise _altered(name, "is not the file that was proved")
    return data


def _listing(directory: Path) -> Mapping[str, os.stat_result]:
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There is no bundle at {directory}.",
            "Pass the bundle's directory, as `codepilot show RUN` prints it.",
        ) from error


def _refuse_odd(directory: Path, present: Mapping[str, os.stat_result]) -> None:
    known = {*PAYLOAD, PROVENANCE, SEAL}
    if not known & set(present):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{directory} is not a bundle: it holds no {PROVENANCE}.",
            "Pass the bundle's directory, as `codepilot show RUN` prints it.",
        )
    for name in sorted(set(present) - known):
        raise _altered(name, "does not belong to the bundle")
    for name in sorted(known):
        if name not in present:
            raise _altered(name, "is missing")
        if not stat.S_ISREG(present[name].st_mode):
            raise _altered(name, "is not a regular file")
        if present[name].st_size > MAX_FILE_BYTES:
            raise _altered(name, "is larger than any bundle's file")


def _read(directory: Path, name: str) -> bytes:
    try:
        handle = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _altered(name, f"cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def _parse(raw: bytes) -> Provenance:
    try:
        return Provenance.model_validate_json(raw)
    except ValidationError as error:
        raise _altered(PROVENANCE, "is not a provenance that this version can read") from error


def _altered(name: str, what: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.PROOF_FAILED,
        f"The bundle's {name!r} {what}.",
        "Do not use this bundle; run the task again, or take the bundle from where it was written.",
        file=name,
    )


# The record of a run --------------------------------------------------------------------------------


def write_record(
    directory: Path, run: Run, events: Sequence[Event], document: Report | None = None, clean: Clean = redact
) -> None:
    """Write report, transcript and timeline atomically and without secrets. Writing twice gives equal bytes."""
    files = {
        REPORT: pretty(report_json(document or report(run), clean)),
        TRANSCRIPT: transcript(events, clean),
        TIMELINE: pretty(timeline(run, events, clean)),
    }
    write_directory(directory, files)


class Notice(Contract):
    """The webhook's body: a stable format for programs. Times are RFC 3339."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    task_id: str
    status: State
    verdict: Verdict | None
    confidence: float
    failure: ReportedFailure | None
    goal: str
    repo: str
    iterations: int
    duration_sec: float
    at: str
    approval: ApprovalRequested | None = None
    """What a person is asked, if that is what the run waits for."""
    link: str | None = None
    """Where this one request can be answered without signing in, until it expires."""


def notice(run: Run, redact: Callable[[str], str], link: str | None = None) -> Notice:
    """The webhook's body for an ended run. It depends on the run and the link alone."""
    shared = report_json(report(run), redact)
    return Notice.model_validate(
        {name: shared[name] for name in Notice.model_fields if name in shared}
        | {
            "run_id": run.run_id,
            "link": link,
            "task_id": run.task.task_id,
            "goal": redact(run.task.goal.natural),
            "repo": redact(run.task.repo),
            "at": rfc3339(run.updated_at),
        }
    )
