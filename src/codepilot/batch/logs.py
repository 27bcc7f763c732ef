"""What an attempt leaves next to the tasks file: its output as bytes and as text, its patch, and its run."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from codepilot.batch.tasks_file import RUNS, open_new, opened_folder, opened_runs, unwritable
from codepilot.core.attempt import KeysSent
from codepilot.telemetry import now_us, rfc3339
from codepilot.workspace import dirfd

MOST_BYTES = 64 << 20
"""More output of an attempt is not kept."""
_MOST_NOTED = 1 << 20
_CUT = b"\n[more output is not kept]\n"
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:<=>?]*[ -/]*[@-~]|[P_X^\]][^\x1b\x07]*(?:\x1b\\|\x07)|.)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_LINE = 200


class AttemptLogs:
    """The files `attempt_<n>.log`, `.txt`, `.patch` and `.json` of one attempt."""

    def __init__(self, place: Path, folder: int, number: int, tasks: str) -> None:
        """`folder` is the open directory at `place`, which is closed in the end. Links in it are not followed."""
        self._place, self._folder, self._name = place, folder, f"attempt_{number}"
        self.unended = _unended(folder, f"{self._name}.json", tasks)
        """The run of an earlier start of this attempt that never ended."""
        self._about: dict[str, Any] = {"tasks_file": tasks, "attempt": number, "started_at": rfc3339(now_us())}
        try:
            self._bytes = self._open(".log")
            self._text = self._open(".txt")
        except OSError:
            os.close(folder)
            raise
        self._size = self._text_size = 0
        self._open_line = b""
        self.problem = ""
        """Why a part of the log is missing."""

    @classmethod
    def open(cls, tasks: Path, task_id: str, number: int) -> Self:
        """Make the files anew, next to the tasks file `tasks`."""
        place = tasks.parent / RUNS / task_id
        try:
            with opened_runs(tasks.parent) as runs, opened_folder(runs, task_id) as folder:
                return cls(place, os.dup(folder), number, tasks.name)
        except OSError as error:
            raise unwritable(place, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._bytes, self._text):
            with suppress(OSError):  # what could not be written before
                file.close()
        os.close(self._folder)

    @property
    def shown(self) -> str:
        """The path of the log as the tasks file names it."""
        return str(self._place / f"{self._name}.log")

    def begin(self, run_id: str) -> None:
        """Note the attempt's run before it begins."""
        self._about["run_id"] = run_id
        self._note()

    def write(self, data: bytes) -> str:
        """Keep output; the last line of it as text."""
        if self._size < MOST_BYTES:
            kept = data if self._size + len(data) < MOST_BYTES else data[: MOST_BYTES - self._size] + _CUT
            self._add(self._bytes, kept)
        self._size += len(data)
        self._open_line = (self._open_line + data)[-4096:]
        lines = re.split(rb"[\r\n]+", _ESCAPES.sub(_moved, self._open_line))
        last = next((line for line in reversed(lines) if line.strip()), b"")
        return last.decode(errors="replace").strip()[-_LINE:]

    def read(self, text: str) -> None:
        """Keep output as it can be read."""
        data = text.encode(errors="replace")
        if self._text_size < MOST_BYTES:
            self._add(self._text, data if self._text_size + len(data) < MOST_BYTES else _CUT)
        self._text_size += len(data)

    def sent(self, keys: KeysSent, at: int) -> None:
        """Note an answer to a prompt, with its time."""
        self._about.setdefault("auto_inputs", []).append(
            {"at": rfc3339(at), "key": keys.answer.removeprefix("press_"), "prompt": keys.prompt}
        )
        self._note()

    def patch(self, patch: bytes) -> str:
        """Write the change; its path, or nothing where nothing changed."""
        if not patch:
            return ""
        place = self._place / f"{self._name}.patch"
        try:
            with self._open(".patch") as file:
                file.write(patch)
        except OSError as error:
            raise unwritable(place, error) from error
        return str(place)

    def end(self, result: dict[str, Any]) -> None:
        """Note how it ended."""
        self._about |= {"ended": True, "result": result}
        self._note()

    def _note(self) -> None:
        final = f"{self._name}.json"
        try:
            with self._open(".json.new") as file:
                file.write((json.dumps(self._about, indent=2, ensure_ascii=False) + "\n").encode())
            os.rename(f"{final}.new", final, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _add(self, file: BinaryIO, data: bytes) -> None:
        """An attempt goes on where its log cannot be written."""
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _open(self, suffix: str) -> BinaryIO:
        """Open a file anew, in place of whatever was there."""
        name = f"{self._name}{suffix}"
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)
        return open_new(self._folder, name)


def _moved(found: re.Match[bytes]) -> bytes:
    """What a terminal's sequence is in a line of text: a move of the cursor parts what stands around it."""
    end = found[0][-1:] if found[0].startswith(b"\x1b[") else b""
    return b"\n" if end in (b"H", b"f") else b" " if end in (b"C", b"G") else b""


def _unended(folder: int, name: str, tasks: str) -> str | None:
    if (opened := dirfd.open_regular(folder, name)) is None:
        return None
    with os.fdopen(opened, "rb") as file:
        content = file.read(_MOST_NOTED)
    try:
        about = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(about, dict) or about.get("ended") or about.get("tasks_file") != tasks:
        return None
    run_id = about.get("run_id")
    return run_id if isinstance(run_id, str) else None
