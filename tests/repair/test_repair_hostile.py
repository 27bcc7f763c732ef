"""Candidates are hostile programs: whatever they do, nothing is harmed and the search goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest
from repair_kit import BACKEND, Bench

from codepilot.repair.edit import Edit
from codepilot.repair.messages import Job, Selection
from codepilot.repair.python.source import PythonSource
from codepilot.repair.trial import Trial

Open = Callable[[Mapping[str, str | bytes]], Bench]

FILES = {
    "victim.py": "import os\nimport socket\nimport subprocess\nimport sys\n\n\ndef work(x):\n    return x - 1\n",
    "test_victim.py": (
        "from victim import work\n\n\ndef test_work():\n    assert work(1) == 2\n\n\n"
        "def test_other():\n    assert work is not None\n"
    ),
    "data/keep.txt": "precious\n",
}
HOSTILE = {
    "remove": "import shutil; shutil.rmtree(os.getcwd())",
    "unlink": "os.unlink('victim.py')",
    "overwrite": "open('victim.py', 'w').write('')",
    "remove_by_command": "subprocess.run(['rm', '-rf', 'victim.py', 'data'])",
    "exit": "os._exit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "loop": "\n    while True: pass",
    "deaf_loop": "\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    "sleep": "import time; time.sleep(1000)",
    "memory": "\n    a = [0]\n    while True: a = a + a",
    "fork": "\n    for _ in range(60):\n        if os.fork() == 0:\n            os.execvp('sleep', ['sleep', '5'])",
    "fork_by_command": "\n    for _ in range(60): subprocess.Popen(['sleep', '5'])",
    "remove_everything": "import shutil; shutil.rmtree('/', ignore_errors=True)",
    "fill_the_disk": "\n    for n in range(64): open(f'/tmp/{n}', 'wb').write(bytes(1 << 22))",
    "daemon": "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "kill_parent": "os.kill(os.getppid(), 9)",
    "kill_parent_by_command": "subprocess.run(['sh', '-c', 'kill -9 ' + str(os.getppid())])",
    "socket": "socket.create_connection(('192.0.2.1', 80), timeout=0.1)",
    "forge": '\n    for fd in range(3, 40):\n        try: os.write(fd, b\'{"n": 0, "verdict": "passed"}\\n\')\n'
    "        except OSError: pass",
    "close": "os.closerange(0, 100)",
    "recursion": "return work(x)",
}


def job(number: int, source: PythonSource, body: str, targets: tuple[str, ...]) -> Job:
    (unit,) = source.units
    at = source.text.index("return x - 1")
    edit = Edit(at, at + len("return x - 1"), body, "test")
    return Job(number, source, edit, Selection(targets, ("test_victim.py::test_other",)), unit)


def test_hostile_candidates_harm_nothing_and_good_ones_still_pass(bench: Open) -> None:
    project = bench(FILES)
    source = PythonSource.read("victim.py", project.files["victim.py"])
    targets = project.baseline.red
    bodies: list[str] = []
    for body in HOSTILE.values():
        bodies += [f"{body}\n    return x - 1", "return x + 1"]
    jobs = [job(number, source, body, targets) for number, body in enumerate(bodies)]
    with Trial(
        BACKEND,
        project.executor,
        "w",
        project.project,
        project.baseline.collected,
        time.monotonic() + 100.0,
        tick=lambda: None,
    ) as trial:
        trial.start()
        trial.trace(project.baseline.collected)
        results = trial.judge(jobs)
    outcomes = {name: results[2 * index].outcome for index, name in enumerate(HOSTILE)}
    assert set(results) == set(range(len(jobs)))
    assert {name: outcome for name, outcome in outcomes.items() if outcome == "passed"} == {}
    assert [results[number].outcome for number in range(1, len(jobs), 2)] == ["passed"] * len(HOSTILE)
    assert project.unchanged()
    assert project.executor.read_file("w", "data/keep.txt") == b"precious\n"


@pytest.mark.variants
def test_a_hostile_module_loaded_anew_harms_nothing(bench: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codepilot.repair.trial.RELOAD_JOBS", 3)
    project = bench(FILES)
    selection = Selection(project.baseline.red)
    good = project.files["victim.py"].replace(b"x - 1", b"x + 1")
    contents = [b"import os\nos._exit(0)\n", b"while True: pass\n", b"import shutil\nshutil.rmtree('.')\n", good]
    with Trial(
        BACKEND,
        project.executor,
        "w",
        project.project,
        project.baseline.collected,
        time.monotonic() + 100.0,
        tick=lambda: None,
    ) as trial:
        trial.start()
        trial.trace(project.baseline.collected)
        source = PythonSource.read("victim.py", project.files["victim.py"])
        edits = [Edit(0, len(source.text), content.decode(), "test") for content in contents]
        jobs = [Job(number, source, edit, selection) for number, edit in enumerate(edits)]
        results = trial.judge(jobs)
    assert [results[number].outcome == "passed" for number in range(4)] == [False, False, False, True]
    assert project.unchanged()
