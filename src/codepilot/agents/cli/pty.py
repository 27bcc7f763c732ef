"""`pty:COMMAND`: any program on a terminal, read from its screen; its prompts are answered by its profile."""

from __future__ import annotations

import queue
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from codepilot.agents.cli.failures import crashed, kind_of
from codepilot.agents.cli.permission_prompts import PromptWatch
from codepilot.agents.cli.programs import find_command, found, model_environment
from codepilot.agents.cli.protocol import (
    AgentEvent,
    AgentMessage,
    AgentStart,
    Delivery,
    Failed,
    Feature,
    Finished,
    Probe,
    RunningAgent,
    SessionOpened,
    Text,
)
from codepilot.agents.cli.screen import COLUMNS, ROWS, Screen
from codepilot.core.attempt import MARKER, End, KeysSent, MarkerWatch, Profile, Seen, letters_of, with_marker
from codepilot.core.failures import Failure, FailureKind
from codepilot.executor import HomeFile, StartProcess
from codepilot.models.gateway import Dialect
from codepilot.sandbox import Process, ProcessEnded, Terminal, send_all

PROMPTS = ("{prompt}", "{rendered_prompt}")
"""What stands for the prompt in a command."""
FEATURES: frozenset[Feature] = frozenset(("working_directory", "messages"))
LOOK_SEC = 0.1
"""How often the screen is looked at while output arrives."""
QUIET_SEC = 1.0
"""A program that has printed nothing for so long, and shows no dialog, takes its prompt."""
SILENT_SEC = 30.0
"""So long a program that prints nothing at all may still be starting: it would lose what is typed."""
BLANK_SEC = 120.0
"""So long a program may draw an empty screen while it starts."""
SUBMIT_SEC = 0.3
"""Programs need a moment between a pasted text and the key that sends it."""
LONGEST_SUBMIT_SEC = 3.0
LOST_SEC = 10.0
"""A program that has drawn nothing for so long since it got its prompt, and does not show it, gets it again."""
MOST_TIMES = 3
_HEAD = 12
END_SEC = 5.0
SEND_SEC = 10.0
REPLY_SEC = 0.05
DEAF_SEC = 1.0
"""A program that did not read an answer gets no other one for so long: it may ask a million times."""
KEY_END = 20
"""Claude names the keys that its user approved by so many of their last characters."""
OWN_TEXT = 4_000
"""How much of the end of the output is read for the cause of a failure."""
_PLACE = re.compile(r"\{(\w+)\}")
_BEFORE = 1024
_COLOURS = rb"(?:\x1b\[[0-9;:]*m)*"
_CHUNK = 1 << 16
_MOST_CHUNKS = 64
"""So much output may wait; a program that prints faster waits itself."""


@dataclass(frozen=True)
class Watching:
    """Where a program's output goes, and which of its prompts may be answered."""

    marker: str
    """The words by which the program says that it is done."""
    answers: frozenset[str] = frozenset()
    on_output: Callable[[bytes], None] = lambda data: None
    on_keys: Callable[[KeysSent], None] = lambda sent: None


class PtyAgent:
    """A running program on a terminal, as a `RunningAgent`."""

    features = FEATURES
    session_id: str | None = None

    def __init__(self, name: str, process: Process, profile: Profile, prompt: str, watching: Watching) -> None:
        self._name = name
        self._process = process
        self._profile = profile
        self._watching = watching
        self._screen = Screen(ROWS, COLUMNS, self._reply)
        self._prompts = PromptWatch(profile, watching.answers)
        self._marker = MarkerWatch(watching.marker, prompt)
        letters = (re.escape(bytes([letter])) for letter in watching.marker.encode())
        self._marker_bytes = re.compile(_COLOURS.join(letters) + rb"(?=[^A-Za-z0-9_.-]|\.[^A-Za-z0-9])")
        self._before = b""
        """The end of the output, where a marker may have begun."""
        self._sent, self._sent_at = "", 0.0
        """The prompt as long as it may have been lost, and when it was sent."""
        self._times = 0
        self._untyped = "" if takes_prompt(profile.command) else prompt
        self._output: queue.Queue[bytes] = queue.Queue(_MOST_CHUNKS)
        self._typing = threading.Lock()
        self._marked_at: float | None = None
        self._typed_at: float | None = None
        """When a text was typed that is not sent yet."""
        self._began = self._looked_at = self._output_at = time.monotonic()
        self._code: int | None = None
        self._closed = self._at_end = False
        self._deaf_until = 0.0
        self.ended: End | None = None
        threading.Thread(target=self._read, name=f"{name}-reader", daemon=True).start()

    @property
    def marked(self) -> bool:
        """True once the program has printed that it is done."""
        return self._marker.seen

    @property
    def keys(self) -> Mapping[str, int]:
        """How often each prompt was answered."""
        return dict(self._prompts.counts)

    @property
    def blocked(self) -> str:
        """The prompt that the program waits at, if nobody may answer it."""
        return self._prompts.blocked

    def seen(self, ended: End) -> Seen:
        """What is known of the program at its end."""
        text = self._screen.text()
        marker = self._marker.look(text)
        own = text[self._marker.own :][-OWN_TEXT:]
        return Seen(ended=self.ended or ended, marker=marker, exit_code=self._code, text=own)

    def events(self, idle_sec: float = 1.0) -> Iterator[AgentEvent | None]:
        yield SessionOpened("")
        while True:
            data = self._next(min(idle_sec, LOOK_SEC))
            if data:
                self._output_at = time.monotonic()
                self._watching.on_output(data)
                self._show(data)
            over, now = data == b"", time.monotonic()
            if not over and data and now - self._looked_at < LOOK_SEC:
                continue
            self._looked_at = now
            if lines := self._screen.take_rest() if over else self._screen.take_lines():
                yield Text("".join(f"{line}\n" for line in lines), final=False)
            if over:
                yield self._over()
                return
            self._look(now)
            if self._prompts.blocked:
                yield self._end("blocked")
                return
            if self._marked_at is not None and now - self._marked_at >= self._profile.grace_sec:
                yield self._end("after_marker")
                return
            if not lines:
                yield None  # a program that only turns a spinner reports nothing

    def rest(self) -> str:
        """What stands on the screen of a program that did not end by itself, once."""
        return "".join(f"{line}\n" for line in self._screen.take_rest())

    def answer(self, permission_id: str, allow: bool, message: str = "") -> None:
        """A terminal asks by prompts; those are answered by the profile."""

    def send(self, message: AgentMessage, wait_sec: float = 0.0) -> Delivery:
        return Delivery(self._say(message.content))

    def interrupt(self) -> None:
        self._type(b"\x03")

    def close(self) -> None:
        self._closed = True
        self._process.kill()

    def _show(self, data: bytes) -> None:
        """Draw output, and look for the marker before what follows can hide it."""
        cut = -1
        for marker in self._marker_bytes.finditer(self._before + data):
            cut = marker.end() - len(self._before)  # the last one counts
        self._before = (self._before + data)[-_BEFORE:]
        if cut >= 0:
            self._screen.feed(data[:cut])
            self._marker.look(self._screen.text())
            data = data[cut:]
        self._screen.feed(data)

    def _look(self, now: float) -> None:
        """Answer a prompt that waits, give the task to a program that has not had it, and look for the marker."""
        asked = self._prompts.look(self._screen.rows, self._screen.cursor_row, self._screen.scrolled, now)
        if asked is not None:
            self._type(self._profile.typed(asked.answer).encode())
            self._watching.on_keys(KeysSent(answer=asked.answer, prompt=asked.line))
            return
        if self._typed_at is not None:
            self._submit(self._typed_at, now)
            return
        if self._is_lost(now):
            self._untyped, self._sent = self._sent, ""
        if self._untyped and self._is_ready(now) and not self._prompts.waiting:
            self._untyped, self._sent = "", self._untyped
            self._times += 1
            self._say(self._sent)
        if self._marker.look(self._screen.text(), going_on=True):
            self._marked_at = now if self._marked_at is None else self._marked_at
        else:
            self._marked_at = None

    def _is_ready(self, now: float) -> bool:
        """True if the program takes its prompt: it shows something and is quiet, or goes on showing nothing."""
        if any(self._screen.rows):
            return now - self._output_at >= QUIET_SEC
        return now - self._began >= (BLANK_SEC if self._before else SILENT_SEC)

    def _is_lost(self, now: float) -> bool:
        """True if a program that draws what is pasted shows nothing of its prompt: it was still starting."""
        if not self._sent or self._typed_at is not None or now - max(self._output_at, self._sent_at) < LOST_SEC:
            return False
        head = letters_of(self._sent)[:_HEAD]
        lost = self._screen.takes_pastes and head not in letters_of("".join(self._screen.rows))
        self._sent = self._sent if lost and self._times < MOST_TIMES else ""
        return bool(self._sent)

    def _say(self, text: str) -> bool:
        """Type a text, which is sent once the program shows it. Without pastes a new line would send a part of it."""
        pastes = self._screen.takes_pastes
        typed = f"\x1b[200~{text}\x1b[201~" if pastes else " ".join(text.split())
        done = self._type(typed.encode())
        self._typed_at = time.monotonic()
        return done

    def _submit(self, typed_at: float, now: float) -> None:
        """Send what was typed when the program has drawn it, or draws nothing."""
        drawn = self._output_at > typed_at and now - self._output_at >= SUBMIT_SEC
        if drawn or now - typed_at >= LONGEST_SUBMIT_SEC:
            self._typed_at, self._sent_at = None, now
            self._type(b"\r")

    def _reply(self, data: bytes) -> None:
        """What a terminal answers to a program's questions; one that reads no answers is not waited for."""
        if time.monotonic() >= self._deaf_until and not self._type(data, REPLY_SEC):
            self._deaf_until = time.monotonic() + DEAF_SEC

    def _type(self, data: bytes, seconds: float = SEND_SEC) -> bool:
        try:
            with self._typing:
                send_all(self._process.stdin, data, time.monotonic() + seconds)
        except (ProcessEnded, TimeoutError):
            return False
        return True

    def _end(self, ended: End) -> AgentEvent:
        """End the program, which did not end by itself."""
        self.ended = ended
        self._process.kill()
        if ended == "after_marker":
            return Finished(self.seen(ended).text)
        message = f"{self._name} waits at a prompt. {self._prompts.blocked}"
        return Failed(Failure(kind=FailureKind.TOOL_PERMISSION_DENIED, message=message))

    def _over(self) -> AgentEvent:
        """The program's own end. A program that exits with 0 has finished, whether it printed that or not."""
        self.ended, self._code = "exit", self._process.wait(END_SEC)
        seen = self.seen("exit")
        if self._code == 0 and self._process.limit is None:
            return Finished(seen.text)
        return Failed(crashed(self._name, self._code, self._process.limit, seen.text, kind_of(seen.text)))

    def _next(self, seconds: float) -> bytes | None:
        """All output that is there; None if there is none yet, empty at the end."""
        if self._at_end:
            return b""
        parts = []
        try:
            parts.append(self._output.get(timeout=seconds))
            while parts[-1] and len(parts) < _MOST_CHUNKS:
                parts.append(self._output.get_nowait())
        except queue.Empty:
            pass
        self._at_end = bool(parts) and not parts[-1]
        return b"".join(parts) if parts else None

    def _read(self) -> None:
        try:
            read = getattr(self._process.stdout, "read1", self._process.stdout.read)
            while data := read(_CHUNK):
                self._put(data)
        except (OSError, ValueError):
            pass  # the stream was closed while it was read
        finally:
            self._put(b"")

    def _put(self, data: bytes) -> None:
        """Wait until the output is wanted: a program that floods waits itself."""
        while not self._closed:
            try:
                self._output.put(data, timeout=1.0)
                return
            except queue.Full:
                continue


class PtyAdapter:
    """Any program on a terminal. Without a profile of its own, it is given the prompt in place of `{prompt}`, else by
    keys.
    """

    dialect: Dialect | None = None
    features = FEATURES

    def __init__(
        self, name: str, argv: Sequence[str], profile: Profile | None = None, watching: Watching | None = None
    ) -> None:
        self.name = name
        self._profile = (profile or Profile()).model_copy(update={"command": tuple(argv)})
        self._watching = watching

    def watched(self, profile: Profile, watching: Watching) -> PtyAdapter:
        """The same program by a profile, with its output and prompts shown to the caller."""
        return PtyAdapter(profile.name or self.name, self._profile.command, profile, watching)

    def probe(self, environ: Mapping[str, str]) -> Probe:
        return find_command(self._profile.command, environ).probe(FEATURES)

    def start(self, start: AgentStart) -> RunningAgent:
        profile = self._profile
        if self._watching is None and start.profile is not None:
            profile = start.profile.model_copy(update={"command": start.profile.command or profile.command})
        program = found(find_command(profile.command, start.environ), self.name)
        watching = self._watching or Watching(MARKER + start.workspace, frozenset(profile.permission_regex))
        prompt = start.prompt if self._watching else with_marker(start.prompt, start.workspace)
        mounts = dict.fromkeys((*program.mounts, *profile.mounts))
        program = replace(program, mounts=tuple(mounts), argv=_with_prompt(program.argv, prompt))
        environment = model_environment(start)
        files = _files(profile.files, start.directory, environment)
        request = program.process(start, (), {**environment, **profile.env}, files)
        process = start.start_process(_on_terminal(request, profile.hosts))
        return PtyAgent(self.name, process, profile, prompt, watching)


def command_name(command: Sequence[str]) -> str:
    """The agent's name of a program on a terminal."""
    return f"pty:{shlex.join(command)}"


def _files(texts: Mapping[str, str], directory: str, environment: Mapping[str, str]) -> list[HomeFile]:
    """The profile's files for this start."""
    key = next((value for name, value in environment.items() if name.endswith("_API_KEY")), "")
    values = {"directory": directory, "key": key[-KEY_END:], **environment}

    def filled(text: str) -> str:
        return _PLACE.sub(lambda found: values.get(found[1], found[0]), text)

    return [HomeFile(path=path, content=filled(text).encode()) for path, text in texts.items()]


def _on_terminal(request: StartProcess, hosts: tuple[str, ...]) -> StartProcess:
    return request.model_copy(update={"tty": Terminal(rows=ROWS, columns=COLUMNS), "hosts": hosts})


def takes_prompt(command: Sequence[str]) -> bool:
    """True if the command has a place for the prompt; else it is typed."""
    return any(place in word for word in command for place in PROMPTS)


def _with_prompt(argv: Sequence[str], prompt: str) -> tuple[str, ...]:
    pattern = re.compile("|".join(map(re.escape, PROMPTS)))
    return tuple(pattern.sub(lambda found: prompt, word) for word in argv)
