"""Calls a skill in the sandbox: timed, bounded, retried and reported to the kernel.

Outside a kernel the functions work the same, without the report. Standard library only: this source is shipped.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from codepilot.skills.errors import BadArguments, PolicyError, SkillError
from codepilot.skills.lazy_loader import THREAD

TRANSIENT = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ETXTBSY, errno.ENOMEM})
BACKOFF_SEC = 0.05
MAX_ARGUMENTS = 200
MAX_EXIT = 100
DENIED = "tool_permission_denied"
_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
}
"""The types that are checked, by name, because annotations may be text. A skill checks all others itself."""


POLICY = ""
"""The task's policy, as `written_rules` writes it."""
RATES = "{}"
"""How often a skill may be called in a minute, by its name, as JSON."""
MINUTE = 60.0
_called: dict[str, list[float]] = {}
"""When the skills that have a rate were called in the last minute."""


class SkillTimeout(SkillError):
    """A skill ran longer than it may."""


def called(
    function: Callable[..., Any], timeout_sec: float = 0.0, tries: int = 1, memory_mb: int = 0
) -> Callable[..., Any]:
    """The function as code actions see it. A timeout or memory of 0 means no limit but the sandbox's."""
    name = function.__name__
    note = _note()
    fitting = fitted(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        status, violation, given, ended = "success", "", {"*": args, **kwargs}, ""
        try:
            given = fitting(args, kwargs)
            _keep_policy(name, given)
            _keep_rate(name)
            with _room(memory_mb, name):
                result = _tried(function, given, timeout_sec, tries)
            if getattr(result, "timed_out", False):
                status = ended = "timeout"
            ended = ended or _exit(result)
            violation = str(getattr(result, "note", "") or "")
            return result
        except BaseException as error:
            status, violation = _outcome(error)
            ended = "timeout" if status == "timeout" else type(error).__name__
            raise
        finally:
            failed = (_written(given), ended[:MAX_EXIT]) if ended else ()
            note(name, status, time.perf_counter() - started, violation, *failed)

    return call


def _keep_policy(name: str, given: dict[str, Any]) -> None:
    """Raise if the policy denies a skill, or a call of it with this first argument; `run_command` judges itself."""
    rules = json.loads(POLICY) if POLICY and name != "run_command" else {}
    if not (rules and (rules["arguments"] or any(rules["tools"].values()))):
        return
    from codepilot.core.permit import Action, permit, read_rules

    first = str(next(iter(given.values()), ""))
    decision = permit(read_rules(POLICY), "full_shell", "full_autonomy", Action("tool", first or name, tool=name))
    if decision.effect == "deny":
        raise PolicyError(decision.rule, name, decision.reason)


def _keep_rate(name: str) -> None:
    """Raise if a skill was called too often in the last minute."""
    limit = json.loads(RATES).get(name)
    if limit is None:
        return
    now = time.monotonic()
    recent = _called[name] = [at for at in _called.get(name, ()) if now - at < MINUTE]
    if len(recent) >= limit:
        wait = f"it is free again in {MINUTE - (now - recent[0]):.0f} s: wait, or do with less"
        raise SkillError("tool_failed", f"{name} may be called {limit} times a minute (rates.{name}); {wait}.")
    recent.append(now)


def host_called(name: str, arguments: dict[str, Any]) -> Any:
    """Call a skill that runs on the host. The result is plain data."""
    kernel = sys.modules.get("codepilot_kernel")
    if kernel is None:
        raise SkillError("tool_failed", f"{name} can be called in a kernel only.")
    answer = kernel.ask(name, arguments)
    error = answer.get("error")
    if error is None:
        return answer.get("value")
    kind, message = error["kind"], error["message"]
    if kind == DENIED:
        raise PolicyError("capability", name, message)
    if kind == "tool_timeout":
        raise SkillTimeout(kind, message)
    raise SkillError(kind, message)


def _note() -> Callable[..., None]:
    kernel = sys.modules.get("codepilot_kernel")
    if kernel is None:
        return lambda *call: None
    note: Callable[..., None] = kernel.note
    return note


def _tried(function: Callable[..., Any], given: dict[str, Any], timeout_sec: float, tries: int) -> Any:
    armed = _arm(timeout_sec, function.__name__)
    try:
        for past in range(tries - 1):
            try:
                return function(**given)
            except OSError as error:
                if error.errno not in TRANSIENT:
                    raise
                time.sleep(BACKOFF_SEC * 2**past * (0.5 + os.urandom(1)[0] / 256))
        return function(**given)
    finally:
        if armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, armed[0])


@contextmanager
def _room(memory_mb: int, name: str) -> Iterator[None]:
    """Allow the process and its new children this much more memory than it uses now."""
    if not memory_mb:
        yield
        return
    import resource

    with open("/proc/self/status") as file:  # noqa: PTH123  (pathlib is not loaded for this)
        held = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = held + (memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most if soft < 0 else min(soft, most), hard))
    try:
        yield
    except MemoryError:
        raise SkillError("tool_failed", f"{name} needed more than its {memory_mb} MiB.") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _arm(timeout_sec: float, name: str) -> tuple[Any, ...]:
    """Stop the skill at its timeout, unless the action uses the alarm itself. Returns the previous handler."""
    if not timeout_sec or get_ident() != THREAD or signal.getitimer(signal.ITIMER_REAL)[0]:
        return ()

    def overdue(number: int, frame: object) -> None:
        raise SkillTimeout("tool_timeout", f"{name} took longer than its {timeout_sec:g} s and was stopped.")

    before = signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, timeout_sec)
    return (before,)


def _exit(result: object) -> str:
    """The exit code of a program that failed."""
    code = getattr(result, "exit_code", None)
    return str(code) if isinstance(code, int) and code else ""


def _written(given: dict[str, Any]) -> str:
    """Arguments as text that is equal for equal arguments; long text is shortened to its head and a digest."""
    try:
        text = json.dumps(given, sort_keys=True, default=repr)
    except Exception:  # noqa: BLE001  (arguments of any kind, which may well fail to describe themselves)
        text = ", ".join(f"{name}: {type(value).__name__}" for name, value in given.items())
    if len(text) <= MAX_ARGUMENTS:
        return text
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return f"{text[:MAX_ARGUMENTS]}… #{digest}"


def _outcome(error: BaseException) -> tuple[str, str]:
    if isinstance(error, PolicyError):
        return "policy_violation", str(error)
    if isinstance(error, SkillTimeout):
        return "timeout", ""
    return ("interrupted" if isinstance(error, KeyboardInterrupt) else "error"), ""


def fitted(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """A function that turns a call's arguments into keywords: paths into text, None into the default."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = function.__defaults__ or ()
    defaults = dict(zip(positional[len(positional) - len(values) :], values))  # noqa: B905 (3.9 runs this too)
    defaults.update(function.__kwdefaults__ or {})
    required = [name for name in names if name not in defaults]
    types = {name: _annotation(function.__annotations__.get(name, "object")) for name in names}
    shapes = {name: f"{name}: {types[name]}" for name in names}
    plain = {name: _PLAIN[types[name]] for name in names if types[name] in _PLAIN}

    def refused(why: str) -> BadArguments:
        shown = [shapes[name] + (f" = {defaults[name]!r}" if name in defaults else "") for name in names]
        if len(names) > len(positional):
            shown.insert(len(positional), "*")
        return BadArguments(f"{function.__name__} {why}. Call it as {function.__name__}({', '.join(shown)}).")

    def fit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(positional):
            raise refused(f"takes at most {len(positional)} arguments by position, not {len(args)}")
        given = dict(zip(positional, args))  # noqa: B905 (3.9 runs this too)
        for name, value in kwargs.items():
            if name not in shapes:
                raise refused(f"has no argument {name!r}")
            if name in given:
                raise refused(f"was given {name!r} twice, by position and by name")
            given[name] = value
        for name in required:
            if name not in given:
                raise refused(f"needs {name!r}")
        for name, allowed in plain.items():
            value = given.get(name, allowed)
            if value is allowed or isinstance(value, allowed):
                continue
            if value is None and name in defaults:
                given[name] = defaults[name]
            elif allowed == (str,) and isinstance(value, os.PathLike):
                given[name] = os.fsdecode(value)
            else:
                raise refused(f"takes {name!r} as {types[name]}, not as {type(value).__name__}")
        return given

    return fit


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
