"""Skills that are named at once and read when first called: nobody can tell, whatever was done before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from codepilot.core.task import Capability
from codepilot.skills import Registry, SkillPolicy, basic_skills

FULL = Capability.FULL_SHELL

THIRD = '''\
"""A body that looks around when it is read."""
import os

HERE = os.getcwd()

def where() -> str:
    """Where it was read."""
    return HERE
'''


@pytest.fixture
def prelude(tmp_path: Path) -> Path:
    """The basic skills, as a file that any interpreter may run."""
    path = tmp_path / "prelude.py"
    path.write_text(basic_skills().prelude(FULL))
    return path


def run(prelude: Path, code: str, python: str = sys.executable) -> str:
    """What code prints after the prelude, in a fresh interpreter and a directory of its own."""
    here = prelude.parent / "tree"
    here.mkdir(exist_ok=True)
    (here / "a.txt").write_text("text\n")
    program = f"exec(open({str(prelude)!r}).read())\n{code}"
    done = subprocess.run(
        [python, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=300, check=False, cwd=here
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _works(python: str) -> bool:
    try:
        return subprocess.run([python, "--version"], capture_output=True, timeout=300, check=False).returncode == 0
    except OSError:
        return False


INTERPRETERS = [sys.executable, *filter(_works, ("python3.8", "python3.9", "python3.13"))]


@pytest.mark.parametrize("python", INTERPRETERS)
def test_skills_run_on_other_interpreters(prelude: Path, python: str) -> None:
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-text\n+more\n"
    code = f"apply_patch({patch!r}); print(read_file('a.txt'), list_files(), run_command(['true']).ok)"
    assert run(prelude, code, python) == "more\n ['a.txt'] True"


def test_naming_skills_imports_little(prelude: Path) -> None:
    heavy = "{'subprocess', 'dataclasses', 'pathlib', 'typing', 'shutil'}"
    assert run(prelude, f"import sys; print({heavy} & set(sys.modules)); print(read_file('a.txt'))") == "set()\ntext"


def test_the_workspace_is_where_the_skills_arrived(prelude: Path) -> None:
    code = "import os\nos.mkdir('sub'); os.chdir('sub')\nprint(read_file('a.txt'), run_command(['pwd']).stdout)"
    assert run(prelude, code).split() == ["text", str((prelude.parent / "tree").resolve())]


def test_a_skill_shows_the_same_before_and_after_its_first_call(prelude: Path) -> None:
    code = (
        "import inspect, pydoc\n"
        "def shown(): return [(pydoc.render_doc(f), str(inspect.signature(f)), inspect.getsource(f), f.__module__,"
        " f.__name__, f.__qualname__, f.__annotations__) for f in (read_file, write_file, git_diff, run_tests)]\n"
        "before = shown()\n"
        "for skill in (read_file, write_file, git_diff, run_tests):\n"
        "    try: skill()\n"
        "    except Exception: pass\n"
        "print(before == shown(), 'decoded(read_bytes(path))' in before[0][2])"
    )
    assert run(prelude, code) == "True True"


def test_reading_that_was_interrupted_is_done_again(prelude: Path) -> None:
    code = (
        "import signal, time\n"
        "def stop(number, frame): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGALRM, stop)\n"
        "stopped = 0\n"
        "for wait in range(1, 30):\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.0005 * 1.3 ** wait)\n"
        "        found = read_file('a.txt'); signal.setitimer(signal.ITIMER_REAL, 0); break\n"
        "    except (KeyboardInterrupt, RuntimeError): stopped += 1  # a class being made passes it on as the latter\n"
        "print(stopped > 0, found)"
    )
    assert run(prelude, code) == "True text"


def test_threads_that_call_first_at_once_all_get_an_answer(prelude: Path) -> None:
    code = (
        "import threading\n"
        "gate, found = threading.Barrier(8), []\n"
        "def ask(skill): gate.wait(); found.append(skill('a.txt'))\n"
        "look = lambda path: str(search_code('te', path))\n"
        "threads = [threading.Thread(target=ask, args=(s,)) for s in (read_file, look) * 4]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "print(sorted(found))"
    )
    assert run(prelude, code) == str(["[a.txt:1: text]"] * 4 + ["text\n"] * 4)


def test_a_body_of_another_package_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("third_body")
    (tmp_path / "third_body.py").write_text(THIRD)
    module.__file__ = os.fspath(tmp_path / "third_body.py")
    monkeypatch.setitem(sys.modules, "third_body", module)
    exec(compile(THIRD, module.__file__, "exec"), module.__dict__)
    skills = Registry()
    skills.skill(SkillPolicy())(module.where)
    path = tmp_path / "prelude.py"
    path.write_text(skills.prelude(Capability.READ_ONLY))
    assert run(path, "import os; os.chdir('/'); print(where())") == str((tmp_path / "tree").resolve())


def test_a_first_call_in_a_thread_leaves_timeouts_to_the_first_thread(prelude: Path) -> None:
    """Only the thread in which the skills arrived can have an alarm; it must not be taken for another."""
    code = (
        "import signal, sys, threading\n"
        "thread = threading.Thread(target=read_file, args=('a.txt',)); thread.start(); thread.join()\n"
        "name = next(name for name in sys.modules if name.endswith('_skills_inside_call'))\n"
        "armed = sys.modules[name]._arm(5.0, 'x')\n"
        "print(bool(armed), signal.setitimer(signal.ITIMER_REAL, 0)[0] > 0)"
    )
    assert run(prelude, code) == "True True"
