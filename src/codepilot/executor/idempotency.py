"""Requests with a key are carried out once: asked again they get the same answer, in flight or long given.

With a file the promise outlives this process: a mark is written before a request is carried out and its answer
after, so that a request whose executor died in the middle is never carried out twice in silence.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from codepilot.core.contract import canonical_json
from codepilot.core.failures import CodePilotError
from codepilot.executor.errors import Conflict, Unfinished
from codepilot.executor.journal import Journal
from codepilot.executor.protocol import CodeResult, CommandResult, RunCode, RunCommand

KEPT = 64
KEPT_BYTES = 64 << 20

Answer = TypeVar("Answer", CodeResult, CommandResult)


@dataclass(frozen=True)
class _Known:
    digest: str
    answer: Future[Any] = field(default_factory=Future)


class IdempotencyCache:
    """The answers of one workspace. A request that was refused, or could not begin, may be asked again."""

    def __init__(self, file: Path | None = None) -> None:
        self._journal = Journal(file, KEPT, KEPT_BYTES) if file is not None else None
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def give(self, request: RunCode | RunCommand, kind: type[Answer], carry_out: Callable[[], Answer]) -> Answer:
        """The answer to a request; a second caller with the same key waits for the first one's."""
        key = request.idempotency_key
        if not key:
            return carry_out()
        digest = _digest(request)
        with self._lock:
            known = self._known.get(key) or self._recorded(key, kind)
            if known is None:
                self._record(key, digest, None)
                mine = self._known[key] = _Known(digest)
        if known is not None:
            if known.digest != digest:
                raise Conflict(f"the key {key!r} was used for another request", "Use a key of its own for each.")
            told: Answer = known.answer.result()
            return told
        try:
            answer = carry_out()
        except BaseException as error:
            if _before_it_began(error):
                self._forget(key)
            else:
                self._leave_marked(key)
            mine.answer.set_exception(error)
            raise
        try:
            self._keep(key, digest, answer)
        except BaseException as error:
            self._leave_marked(key)
            mine.answer.set_exception(error)
            raise
        mine.answer.set_result(answer)
        return answer

    def leave(self) -> None:
        """Write nothing more: the directory is about to go."""
        with self._lock:
            self._close()
            self._journal = None

    def close(self) -> None:
        """Let go of the file; it is opened again when it is needed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _keep(self, key: str, digest: str, answer: CodeResult | CommandResult) -> None:
        with self._lock:
            self._record(key, digest, answer)
            if self._journal is not None:
                del self._known[key]
            else:
                self._known.move_to_end(key)
                while len(self._known) > KEPT and next(iter(self._known.values())).answer.done():
                    self._known.popitem(last=False)

    def _forget(self, key: str) -> None:
        with self._lock:
            del self._known[key]
            if self._journal is not None:
                self._journal.write(key, b"", self._known)

    def _leave_marked(self, key: str) -> None:
        """What was done must not be done again, though it has no answer; in memory the failure is the answer."""
        with self._lock:
            if self._journal is not None:
                self._known.pop(key, None)

    def _recorded(self, key: str, kind: type[Answer]) -> _Known | None:
        text = self._journal.read(key) if self._journal is not None else None
        if text is None:
            return None
        document = json.loads(text)
        known = _Known(document["digest"])
        if document["answer"] is None:
            known.answer.set_exception(Unfinished(key))
        elif document["kind"] == kind.__name__:
            known.answer.set_result(kind.model_validate_json(json.dumps(document["answer"])))
        return known

    def _record(self, key: str, digest: str, answer: CodeResult | CommandResult | None) -> None:
        if self._journal is None:
            return
        told = answer.model_dump_json() if answer is not None else "null"
        document = f'{{"digest":"{digest}","kind":"{type(answer).__name__}","answer":{told}}}'
        self._journal.write(key, document.encode(), self._known)


def _before_it_began(error: BaseException) -> bool:
    """Failures are typed, or the system's, when something cannot be started; any other may have come afterwards."""
    return isinstance(error, (CodePilotError, OSError)) or not isinstance(error, Exception)


def _digest(request: RunCode | RunCommand) -> str:
    document = {**request.model_dump(mode="json"), "idempotency_key": type(request).__name__}
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
