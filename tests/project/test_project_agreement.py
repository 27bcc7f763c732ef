"""The agent's `run_tests` and the judge run the same command and read the same report, so they agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project_kit import find, sandbox, write

from codepilot.core.artifacts import TestStatus
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec, RunCode
from codepilot.project import run_tests
from codepilot.skills import inside_prelude
from codepilot.workspace import ObjectStore

PYTEST = """\
    import unittest

    import pytest


    @pytest.mark.parametrize("n", [1, 2])
    def test_n(n):
        assert n == 1


    def test_raises():
        raise KeyError("k")


    @pytest.mark.skip(reason="later")
    def test_later(): ...


    @pytest.mark.xfail
    def test_known():
        assert False


    @pytest.fixture
    def broken():
        raise RuntimeError("no fixture")


    def test_needs(broken): ...


    class TestSub(unittest.TestCase):
        def test_sub(self):
            for n in range(3):
                with self.subTest(n=n):
                    self.assertNotEqual(n, 1)
    """
UNITTEST = """\
    import unittest


    class T(unittest.TestCase):
        def test_good(self): ...
        def test_bad(self): self.assertEqual(1, 2)
        def test_error(self): raise KeyError("k")
        @unittest.skip("later")
        def test_later(self): ...
        @unittest.expectedFailure
        def test_known(self): self.fail()
        def test_sub(self):
            for n in range(3):
                with self.subTest(n=n):
                    self.assertNotEqual(n, 1)


    class U(unittest.TestCase):
        @classmethod
        def setUpClass(cls): raise RuntimeError("no class")
        def test_needs(self): ...
    """
ENDS = """\
    import os
    import unittest


    class T(unittest.TestCase):
        def test_a(self): os._exit(0)
    """
FILES = {
    "pytest": {"pytest.ini": "[pytest]\n", "tests/test_a.py": PYTEST},
    "pytest that cannot collect": {
        "pytest.ini": "[pytest]\n",
        "tests/test_a.py": PYTEST,
        "tests/test_b.py": "import nothing_like_it\n",
    },
    "unittest": {"test_a.py": UNITTEST},
    "unittest that cannot load": {"test_a.py": UNITTEST, "test_b.py": "import nothing_like_it\n"},
    "a process that ends": {
        "test_a.py": "import os, unittest\nclass T(unittest.TestCase):\n    def test_a(self): os._exit(0)\n"
    },
}
SEEN = """\
import json
done = run_tests()
red = [[one.test for one in kind] for kind in (done.failed, done.errors)]
print(json.dumps([done.passed, done.skipped, done.ok, *red]))
"""


@pytest.mark.parametrize("name", FILES)
def test_the_agent_and_the_judge_agree(name: str, tmp_path: Path) -> None:
    root = write(tmp_path / "repo", FILES[name])
    box = sandbox(remaps=True)
    project = find(root)
    with ObjectStore.open(tmp_path / "objects") as objects:
        tree = objects.write_tree({})
    executor = LocalExecutor(tmp_path / "home", box, prelude=inside_prelude())
    made = executor.create(
        CreateWorkspace(
            workspace="w",
            objects=str(tmp_path / "objects"),
            tree=tree,
            at=str(root),
            mounts=tuple(MountSpec(source=source, target=target) for source, target in project.mounts),
            env=project.env,
            kernel_python=project.interpreter.executable,
        )
    )
    write(Path(made.path), FILES[name])
    try:
        judged = run_tests(executor, "w", project)
        done = executor.run_code(RunCode(workspace="w", code=SEEN))
    finally:
        executor.close()
    assert done.status == "ok", done
    passed, skipped, ok, failed, errors = json.loads(done.stdout)
    assert passed == len(judged.having(TestStatus.PASSED))
    assert skipped == len(judged.having(TestStatus.SKIPPED))
    assert ok == (judged.status == "finished" and not judged.red)
    assert failed == list(judged.having(TestStatus.FAILED))
    assert set(judged.having(TestStatus.ERROR)) <= set(errors)
    assert bool(set(errors) - set(judged.red)) == (name == "a process that ends")
