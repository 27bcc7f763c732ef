"""Runs inside the sandbox, on the project's own Python (3.8 or newer) and the standard library alone.

It imports the project and its tests once, then tries candidates in forked children: a function's code is swapped
in place (`warm`), or the whole project is loaded anew with one file replaced (`cold`). It speaks JSON lines over
copies of its first standard streams, so nothing that tests print can reach the channel. What it says is evidence
to be proved again elsewhere, never a verdict.
"""

from __future__ import annotations

import __future__
import ast
import base64
import copy
import gc
import importlib.machinery
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
import unittest

ROOT = os.path.realpath(os.getcwd())
FLOOR = 0.15
FACTOR = 10.0
GRACE = 1.0
MAX_EVENTS = 2000000
MAX_FRAMES = 40
MEMORY = 400 << 20
WRITES = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.mkdir", "os.link", "os.symlink")
CALM = {
    "numprocesses": None,
    "dist": "no",
    "tx": [],
    "cov_source": [],
    "no_cov": True,
    "randomly_reorganize": False,
    "random_order_bucket": "none",
    "reruns": 0,
    "stepwise": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "usepdb": False,
    "xmlpath": None,
    "htmlpath": None,
    "maxfail": 0,
}


class Stop(BaseException):
    """A test has used up its steps."""


class Channel:
    """The host's two pipes, moved out of the way of everything else that runs here."""

    def __init__(self):
        self.inward = os.fdopen(os.dup(0), "rb")
        self.outward = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)

    def read(self):
        line = self.inward.readline()
        return json.loads(line) if line else None

    def send(self, **message):
        self.outward.write(json.dumps(message).encode() + b"\n")
        self.outward.flush()


def relative(filename, known={}):  # noqa: B006 - the default is the cache
    """The path below the root, or None for files outside it and for installed packages."""
    if filename not in known:
        path = os.path.realpath(filename)
        inside = path.startswith(ROOT + os.sep) and path.endswith(".py")
        inside = inside and "site-packages" not in path and not path.startswith(OUTSIDE)
        known[filename] = os.path.relpath(path, ROOT).replace(os.sep, "/") if inside else None
    return known[filename]


OUTSIDE = (sys.prefix + os.sep, sys.base_prefix + os.sep)
if ROOT.startswith(sys.prefix):
    OUTSIDE = (os.sep + "\0",)


class Lines:
    """Which lines of the project run, or with `calls` which of its functions are entered."""

    def __init__(self, calls=False):
        self.calls = calls
        self.found = {}
        self.left = MAX_EVENTS
        self.monitoring = getattr(sys, "monitoring", None)
        self.tool = None

    def __enter__(self):
        if self.monitoring is not None:
            self.tool = next((t for t in (4, 3, 2) if self.monitoring.get_tool(t) is None), None)
        if self.tool is not None:
            events = self.monitoring.events
            wanted = events.PY_START if self.calls else events.LINE
            self.monitoring.use_tool_id(self.tool, "codepilot")
            self.monitoring.register_callback(self.tool, wanted, self._monitored)
            self.monitoring.restart_events()
            self.monitoring.set_events(self.tool, wanted)
        else:
            threading.settrace(self._traced)
            sys.settrace(self._traced)
        return self

    def __exit__(self, *_):
        if self.tool is not None:
            self.monitoring.set_events(self.tool, 0)
            self.monitoring.free_tool_id(self.tool)
        else:
            sys.settrace(None)
            threading.settrace(None)

    def _monitored(self, code, line):
        path = relative(code.co_filename)
        if path is not None:
            self.found.setdefault(path, set()).add((code.co_firstlineno, code.co_name) if self.calls else line)
        return self.monitoring.DISABLE

    def _traced(self, frame, event, _):
        path = relative(frame.f_code.co_filename)
        if path is None:
            return None
        lines = self.found.setdefault(path, set())
        if self.calls:
            lines.add((frame.f_code.co_firstlineno, frame.f_code.co_name))
            return None

        def line(frame, event, _):
            if event == "line":
                lines.add(frame.f_lineno)
                self.left -= 1
                if self.left < 0:
                    sys.settrace(None)
                    return None
            return line

        return line if self.left > 0 else None


class Overlay:
    """Contents that stand in for files of the project whenever those are imported."""

    files = {}
    plain = importlib.machinery.SourceFileLoader.get_code

    @classmethod
    def put(cls, path, data):
        cls.files[os.path.join(ROOT, path)] = data
        importlib.machinery.SourceFileLoader.get_code = cls.get_code

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        data = Overlay.files.get(os.path.realpath(path))
        if data is None:
            return Overlay.plain(self, fullname)
        return compile(data, path, "exec", dont_inherit=True)


class PytestSuite:
    """A pytest session held open before its first test; also the plugin that holds it."""

    def __init__(self):
        self.items = {}
        self.broken = []
        self.session = None

    def open(self, tests, then, whole=False):
        """Collect the tests, or with `whole` everything in their files, and call `then` before any is run."""
        import pytest

        self.then, self.whole = then, whole
        self.wanted = set(tests)
        places = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        fixed = ["-p", "no:cacheprovider", "-s", "--rootdir=.", "--continue-on-collection-errors", "--tb=native"]
        type(self).pytest_runtestloop = pytest.hookimpl(tryfirst=True)(type(self)._loop)
        type(self).pytest_cmdline_main = pytest.hookimpl(tryfirst=True)(type(self)._main)
        type(self).pytest_load_initial_conftests = pytest.hookimpl(tryfirst=True)(type(self)._early)
        pytest.main([*fixed, *places], plugins=[self])

    def _early(self, early_config):
        self._calm(early_config.known_args_namespace)

    def _main(self, config):
        self._calm(config.option)

    @staticmethod
    def _calm(options):
        for name, value in CALM.items():
            if hasattr(options, name):
                setattr(options, name, value)

    def pytest_collectreport(self, report):
        if report.failed:
            self.broken.append(str(report.longrepr)[-2000:])

    def _loop(self, session):
        self.session = session
        self.items = {item.nodeid: item for item in session.items if self.whole or item.nodeid in self.wanted}
        for item in self.items.values():
            item.repr_failure = lambda *_, **__: "failed"
        self.then()
        return True

    def private(self, folder):
        factory = getattr(self.session.config, "_tmp_path_factory", None)
        if factory is not None:
            import pathlib

            factory._basetemp = pathlib.Path(folder)

    def pytest_runtest_makereport(self, item, call):
        if call.excinfo is not None and self.error is None:
            self.error = call.excinfo.value

    def pytest_runtest_logreport(self, report):
        self.outcomes.append(report.outcome)

    def run(self, name, following=None):
        self.outcomes, self.error = [], None
        item = self.items[name]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following))
        for outcome in ("failed", "skipped"):
            if outcome in self.outcomes:
                return outcome, self.error
        return "passed", None


class UnittestSuite(unittest.TestResult):
    """Test cases loaded once and run one by one."""

    def __init__(self):
        super().__init__()
        self.items = {}
        self.broken = []

    def open(self, tests, then, whole=False):
        import codepilot_unittest as finder

        plan = finder.Plan(list(tests), finder.find_modules())
        wanted, loader = set(tests), unittest.TestLoader()
        for module in plan.loads():
            try:
                found = list(finder.flatten(loader.loadTestsFromModule(module.load())))
            except (Exception, SystemExit):
                self.broken.append(traceback.format_exc()[-2000:])
                continue
            self.items.update({test.id(): test for test in found if whole or test.id() in wanted})
        then()

    def private(self, folder):
        pass

    def run(self, name, following=None):
        self.outcome, self.error = "passed", None
        suite = unittest.TestSuite([copy.copy(self.items[name])])
        suite.run(self)
        return self.outcome, self.error

    def _bad(self, error):
        self.outcome = "failed"
        self.error = self.error or error[1]

    def addError(self, test, error):  # noqa: N802
        self._bad(error)

    def addFailure(self, test, error):  # noqa: N802
        self._bad(error)

    def addSubTest(self, test, subtest, error):  # noqa: N802
        if error is not None:
            self._bad(error)

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self.outcome = "failed"

    def addSkip(self, test, reason):  # noqa: N802
        self.outcome = "skipped" if self.outcome == "passed" else self.outcome

    def addExpectedFailure(self, test, error):  # noqa: N802
        self.outcome = "skipped"


class Guard:
    """Keeps candidates from spoiling the tree or killing the worker by accident. The sandbox is the wall, not this."""

    def __init__(self):
        self.written = set()
        self.forked = False
        self.strict = False
        self.parent = os.getpid()
        self.on = False

    def arm(self, strict):
        self.strict, self.on = strict, True
        sys.addaudithook(self._hook)

    def _hook(self, event, args):
        if not self.on:
            return
        if event == "open":
            path, mode, flags = (*args, None, None)[:3]
            writes = (isinstance(mode, str) and any(c in mode for c in "wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            )
            if writes:
                self._write(path)
        elif event in WRITES or event.startswith("shutil."):
            for path in args[:2]:
                self._write(path)
        elif event == "os.fork" and self.strict and not self.forked:
            raise PermissionError("candidates may not fork")
        elif event == "os.fork":
            self.forked = True
        elif event in ("os.kill", "os.killpg") and self.strict and args[0] in (self.parent, 0, 1, -1):
            raise PermissionError("candidates may not signal the worker")

    def _write(self, path):
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        path = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        if path != ROOT and not path.startswith(ROOT + os.sep):
            return
        folder = os.path.dirname(path)
        if not self.strict:
            self.written.add(folder)
        elif folder not in self.written or path.endswith(".py") or path == ROOT:
            raise PermissionError("candidates may not change the project's tree")


class Worker:
    def __init__(self, channel, header):
        self.channel = channel
        self.header = header
        self.suite = UnittestSuite() if header["runner"] == "unittest" else PytestSuite()
        self.costs = {name: tuple(cost) for name, cost in header.get("costs", {}).items()}
        self.kills = {}
        self.chunk = 1
        self.guard = Guard()
        self.functions = {}
        self.entered = {}

    # --- life -------------------------------------------------------------------------------------------------

    def start(self):
        for path, data in self.header.get("overlay", {}).items():
            Overlay.put(path, base64.b64decode(data))
        if self.header["mode"] == "cold":
            for name in self.header.get("modules", []):
                self._preload(name)
            self.channel.send(ready=True, tests=[], errors=[], modules=[])
            self.serve()
            return
        calls = Lines(calls=True)
        served = []

        def collected():
            calls.__exit__()
            served.append(True)
            self.entered = calls.found
            self._ready()

        calls.__enter__()
        try:
            self.suite.open(self.header["tests"], collected, self.header["whole"])
        except (Exception, SystemExit) as error:
            self.suite.broken.append("".join(traceback.format_exception_only(type(error), error)))
        if not served:
            self.channel.send(ready=False, tests=[], errors=self.suite.broken[:5], modules=[])

    def _preload(self, name):
        try:
            __import__(name)
        except (Exception, SystemExit):
            return

    def _ready(self):
        signal.signal(signal.SIGPROF, self._out_of_steps)
        self._index()
        modules = [
            name
            for name, module in list(sys.modules.items())
            if getattr(module, "__file__", None) and relative(module.__file__) is None and "codepilot" not in name
        ]
        gc.collect()
        if hasattr(gc, "freeze"):
            gc.freeze()
        self.channel.send(ready=True, tests=list(self.suite.items), errors=self.suite.broken[:5], modules=modules[:400])
        self.serve()

    def _index(self):
        """Every living function of the project, by file and first line."""
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                path = relative(thing.__code__.co_filename)
                if path is not None:
                    key = (path, thing.__code__.co_firstlineno, thing.__code__.co_name)
                    self.functions.setdefault(key, []).append(thing)

    def serve(self):
        signal.signal(signal.SIGPROF, self._out_of_steps)
        stamps = self._stamps()
        while True:
            message = self.channel.read()
            if message is None:
                os._exit(0)
            if message["op"] == "trace":
                self.trace(message["tests"])
            else:
                self.chunk = message["chunk"]
                self.attempt(message["jobs"], message["suites"])
            self.channel.send(done=True, damaged=self._stamps() != stamps)

    def _stamps(self):
        """What the loaded files of the project look like on disk: none of this may change while candidates run."""
        stamps = {}
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if path and relative(path) is not None:
                try:
                    status = os.stat(path)
                except OSError:
                    stamps[path] = None
                else:
                    stamps[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
        return stamps

    def _out_of_steps(self, *_):
        raise Stop

    # --- running tests ----------------------------------------------------------------------------------------

    def limit(self, name):
        cpu, wall = self.costs.get(name, (0.0, 0.0))
        return FLOOR + FACTOR * cpu, GRACE + 5 * (FLOOR + FACTOR * max(cpu, wall))

    def run(self, name, following=None, limit=None):
        """One test under its step budget: outcome, error."""
        signal.setitimer(signal.ITIMER_PROF, limit or self.limit(name)[0], 0.05)
        try:
            outcome, error = self.suite.run(name, following)
        except Stop as stop:
            outcome, error = "timeout", stop
        except SystemExit as error_:
            outcome, error = "failed", error_
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if isinstance(error, Stop):
            outcome = "timeout"
        return outcome, error

    def trace(self, tests):
        """Each test on the base: how it ends, what it costs, which lines it runs, where it fails."""
        waiting = [name for name in tests if name in self.suite.items]
        while waiting:
            reported = self.fork(waiting, self._trace_all, self._forward_trace)
            if reported < len(waiting):
                self.channel.send(test=waiting[reported], outcome="died", cpu=0, wall=0, lines={}, frames=[])
                reported += 1
            waiting = waiting[reported:]

    def _forward_trace(self, message):
        self.guard.written.update(message.pop("written"))
        self.guard.forked = self.guard.forked or message.pop("forked")
        self.costs[message["test"]] = (message["cpu"], message["wall"])
        self.channel.send(**message)

    def _trace_all(self, tests, say):
        self.guard.arm(strict=False)
        for name in tests:
            say(begin=60.0)
            cpu, wall = time.process_time(), time.monotonic()
            outcome, _ = self.run(name, limit=20.0)
            cost = (time.process_time() - cpu, time.monotonic() - wall)
            lines = Lines()
            say(begin=60.0)
            with lines:
                second, error = self.run(name, limit=20.0)
            found = {path: sorted(numbers) for path, numbers in lines.found.items()}
            say(
                test=name,
                outcome=outcome if outcome == second else "unstable",
                cpu=cost[0],
                wall=cost[1],
                lines=found,
                written=sorted(self.guard.written),
                forked=self.guard.forked,
                **self._failure(error),
            )
            if "timeout" in (outcome, second):
                os._exit(0)

    def _failure(self, error):
        frames, place = [], error.__traceback__ if error is not None else None
        while place is not None:
            path = relative(place.tb_frame.f_code.co_filename)
            if path is not None:
                frames.append([path, place.tb_lineno])
            place = place.tb_next
        try:
            message = str(error)[:500] if error is not None else ""
        except Exception:
            message = ""
        kind = type(error).__name__ if error is not None else ""
        return {"exception": kind, "message": message, "frames": frames[-MAX_FRAMES:]}

    # --- trying candidates ------------------------------------------------------------------------------------

    def attempt(self, jobs, suites):
        """Each job is one candidate; verdicts are sent as they come, and a later one for the same job holds."""
        waiting = list(jobs)
        while waiting:
            for job in waiting[: self.chunk]:
                suite = suites[job["suite"]]
                others = sorted(suite["others"], key=lambda name: -self.kills.get(name, 0))
                job["tests"] = [*suite["targets"], *others]
                job["targets"] = len(suite["targets"])
            group = waiting[: 1 if self.header["mode"] == "cold" else self.chunk]
            self.verdicts, self.leaked = [], False
            reported = self.fork(group, self._try_all, self._take_verdict)
            if reported < len(group) and not self.renewed:
                self._verdict(group[reported]["n"], "timeout" if self.killed else "died", None)
                reported += 1
            if self.leaked and len(group) > 1:
                self.chunk = 1
                continue
            for verdict in self.verdicts:
                self.channel.send(**verdict)
            waiting = waiting[reported:]

    def _take_verdict(self, message):
        if "leaked" in message:
            self.leaked = message["leaked"]
        else:
            self._verdict(message["n"], message["verdict"], message["test"])

    def _verdict(self, number, verdict, test):
        if test is not None:
            self.kills[test] = self.kills.get(test, 0) + 1
        self.verdicts.append({"n": number, "verdict": verdict, "test": test})

    def _try_all(self, jobs, say):
        self.guard.arm(strict=True)
        if self.header["mode"] == "cold":
            self._try_cold(jobs[0], say)
            return
        for job in jobs:
            old = self._swap(job)
            if isinstance(old, str):
                say(n=job["n"], verdict=old, test=None)
                continue
            verdict, test, spent = self._judge(job, say)
            for function, code in old:
                function.__code__ = code
            say(n=job["n"], verdict=verdict, test=test)
            if spent:
                say(renew=True)
                return
        if len(jobs) > 1:
            self._check_base(jobs[-1], say)

    def _check_base(self, job, say):
        """After many candidates in one process the base must still behave as it did, or state has leaked."""
        targets, others = job["tests"][: job["targets"]], job["tests"][job["targets"] :]
        for name, wanted in [(targets[0], self.header["green"])] + [(name, True) for name in others[:1]]:
            say(begin=self.limit(name)[1])
            if (self.run(name)[0] == "passed") is not wanted:
                say(leaked=True)

    def _judge(self, job, say):
        """The targets first, then the tests that killed most, then the rest; the first red one decides."""
        tests = [name for name in job["tests"] if name in self.suite.items]
        if len(tests) < job["targets"] or not tests:
            return "died", None, False
        alone = job["targets"] + 1
        for index, name in enumerate(tests):
            say(begin=self.limit(name)[1])
            following = tests[index + 1] if alone <= index < len(tests) - 1 else None
            outcome, _ = self.run(name, following)
            if outcome == "timeout":
                return "timeout", name, True
            if outcome != "passed":
                return "failed", name, index >= alone
        return "passed", None, len(tests) > alone

    def _swap(self, job):
        """Put the candidate's code into the living functions; what was there before, or why it cannot be."""
        if "content" in job:
            return "cold"
        name = job["qualname"].rpartition(".")[2]
        if (job["line"], name) in self.entered.get(job["path"], ()):
            return "cold"
        living = self.functions.get((job["path"], job["line"], name))
        if not living:
            return "cold"
        try:
            code = self._compile(job, living[0].__code__.co_filename)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "invalid"
        if any(code.co_freevars != function.__code__.co_freevars for function in living):
            return "cold"
        old = [(function, function.__code__) for function in living]
        for function in living:
            function.__code__ = code
        return old

    def _compile(self, job, filename):
        tree = ast.parse(job["segment"])
        ast.increment_lineno(tree, job["shift"])
        flags = 0
        for name in job["future"]:
            flags |= getattr(__future__, name).compiler_flag
        code = compile(tree, filename, "exec", flags=flags, dont_inherit=True)
        for part in job["qualname"].split("."):
            code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == part)
        return code

    def _try_cold(self, job, say):
        """The project loaded anew with one file replaced; only what its tests need is collected."""
        say(begin=60.0)
        Overlay.put(job["path"], base64.b64decode(job["content"]))

        def collected():
            self.suite.private(tempfile.gettempdir())
            verdict, test, _ = self._judge(job, say)
            say(n=job["n"], verdict=verdict, test=test)
            os._exit(0)

        self.suite.open(job["tests"], collected)
        say(n=job["n"], verdict="died", test=None)

    # --- children ---------------------------------------------------------------------------------------------

    def fork(self, jobs, body, take):
        """Run `body(jobs, say)` in a child and hand what it says to `take`; how many jobs it reported on."""
        reader, writer = os.pipe()
        folder = tempfile.mkdtemp(prefix="codepilot-")
        pid = os.fork()
        if pid == 0:
            self._child(jobs, body, reader, writer, folder)
        os.close(writer)
        reported, self.renewed, self.killed = 0, False, False
        try:
            for message in self._listen(reader):
                if "renew" in message:
                    self.renewed = True
                else:
                    reported += "leaked" not in message
                    take(message)
        finally:
            os.close(reader)
            self._bury(pid)
            shutil.rmtree(folder, ignore_errors=True)
        return reported

    def _child(self, jobs, body, reader, writer, folder):
        status = 1
        try:
            os.setpgid(0, 0)
            os.close(reader)
            for stream in (self.channel.inward, self.channel.outward):
                os.close(stream.fileno())
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 2)
            tempfile.tempdir = folder
            random.seed(0)
            if self.suite.items:
                self.suite.private(folder)
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))

            def say(**message):
                os.write(writer, json.dumps(message).encode() + b"\n")

            body(jobs, say)
            status = 0
        finally:
            os._exit(status)

    def _listen(self, reader):
        """The child's messages. Its own timer stops a test that overruns; one that cannot be stopped is ended here."""
        rest, deadline = b"", time.monotonic() + 10
        while True:
            ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.killed = True
                return
            data = os.read(reader, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "begin" in message:
                    deadline = time.monotonic() + message["begin"]
                else:
                    yield message

    def _bury(self, pid):
        """The child, its group and whatever it left behind are ended and reaped."""
        for end in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.kill(pid, signal.SIGKILL)):
            try:
                end()
            except OSError:
                continue
        try:
            os.waitpid(pid, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except OSError:
            return


def main():
    channel = Channel()
    header = channel.read()
    if header is not None:
        Worker(channel, header).start()
