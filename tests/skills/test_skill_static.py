"""An action's source is read before it runs: what is reported and refused, and that no source breaks the reader."""

from __future__ import annotations

import ast
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codepilot.core.policy import Policy
from codepilot.skills import Finding, check_action, unknown_modules
from codepilot.skills.static import MAX_CODE, MAX_FINDINGS

ROOT = "/work space"


ADVISE, STRICT, OFF = (Policy(imports=mode) for mode in ("advise", "strict", "off"))
FULL_SHELL = {"capability": "full_shell"}
ONLINE = Policy(hosts=("example.org",))


def reported(code: str, policy: Policy = ADVISE, **more: str) -> list[tuple[str, int, bool]]:
    return [(one.rule, one.line, one.refused) for one in check_action(code, policy, root=ROOT, **more)]


@pytest.mark.parametrize(
    "code",
    [
        "import os, json, re, subprocess, pathlib, pytest",
        "from xml.etree import ElementTree as ET\nfrom urllib.parse import quote",
        "import importlib; importlib.import_module('json')",
        "__import__('json').dumps(1)",
        "open('a.txt').read(); open('/tmp/x', 'w'); open('/work space/a', 'w'); open('/dev/null')",
        "import subprocess; subprocess.run(['git', 'status'])",
        "def input(): pass\ninput()",
        "def f(eval): return eval(1)",
        "from .os import system\nsystem('x')",
        "x.system('ls'); self.fork(); model.eval()",
        "run_command(['python', '-m', 'pytest'])",
        "async def f():\n    async with a() as b:\n        await b()\n    return [c async for c in d()]",
        "match x:\n    case {'a': [*_, y]}: pass",
        "print('import socket')  # import socket",
    ],
)
def test_ordinary_code_is_left_alone_even_when_strict(code: str) -> None:
    assert reported(code, STRICT) == []


@pytest.mark.parametrize(
    ("code", "rule", "line"),
    [
        ("import socket", "import.socket", 1),
        ("x = 1\n\nimport urllib.request as r", "import.urllib.request", 3),
        ("from urllib import request", "import.urllib.request", 1),
        ("def f():\n    if x:\n        from http.client import HTTPConnection", "import.http.client", 3),
        ("import requests.sessions", "import.requests", 1),
        ("import ctypes", "import.ctypes", 1),
        ("__import__('socket')", "import.socket", 1),
        ("import importlib\nimportlib.import_module('pip._internal')", "import.pip", 2),
        ("from importlib import import_module as load\nload('socket')", "import.socket", 2),
        ("os.system('ls')", "call.os.system", 1),
        ("from os import system as run\nrun('ls')", "call.os.system", 2),
        ("from os import *\nsystem('ls')", "call.os.system", 2),
        ("import os as o\no.execv('/bin/sh', [])", "call.os.execv", 2),
        ("getattr(os, 'system')('ls')", "call.os.system", 1),
        ("__import__('os').system('ls')", "call.os.system", 1),
        ("import importlib as i\ni.import_module('os').fork()", "call.os.fork", 2),
        ("async def f():\n    await g(os.kill(1, 9))", "call.os.kill", 2),
        ("lambda: [os.popen(x) for x in y]", "call.os.popen", 1),
        ("@os.fork()\ndef f(): pass", "call.os.fork", 1),
        ("class A(os.system('x')): pass", "call.os.system", 1),
        ("f'{os.system(1)}'", "call.os.system", 1),
        ("name = input('Name? ')", "call.input", 1),
        ("breakpoint()", "call.breakpoint", 1),
        ("subprocess.run('ls | wc', shell=True)", "call.shell", 1),
        ("subprocess.run(['git', 'push'])", "command.git", 1),
        ("subprocess.Popen(args=('mvn', 'deploy'))", "command.mvn", 1),
        ("open('/etc/hosts', 'a')", "path.outside", 1),
        ("open('/work space/../x', mode='w')", "path.outside", 1),
        ("open('/work space2/x', 'w')", "path.outside", 1),
    ],
)
def test_what_harms_is_refused_with_its_line_and_what_to_do(code: str, rule: str, line: int) -> None:
    for policy in (ADVISE, STRICT):
        (found,) = [one for one in check_action(code, policy, root=ROOT) if one.refused]
        assert (found.rule, found.line) == (rule, line)
        assert found.source and found.source in code
        shown = str(found)
        assert shown.startswith(f"line {line}: {found.source}\n  [{rule}] `")
        assert any(word in shown for word in ("Use ", "; use ", "; these may be used", "Give ", "Stop ", "; leave "))
    assert check_action(code, OFF, root=ROOT) == ()


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import numpy as np", "import.unknown"),
        ("from attr import define", "import.unknown"),
        ("__import__('yaml')", "import.unknown"),
        ("eval('1 + 1')", "call.eval"),
        ("exec(text)", "call.exec"),
        ("open('/usr/lib/python3/x.py').read()", "path.outside"),
        ("subprocess.run(['echo', 'hi'])", "command.unknown"),
    ],
)
def test_what_is_common_and_harmless_inside_is_reported_and_refused_only_when_strict(code: str, rule: str) -> None:
    assert reported(code, ADVISE) == [(rule, 1, False)]
    assert reported(code, STRICT) == [(rule, 1, True)]
    assert reported(code, OFF) == []


def test_a_computed_import_is_refused_only_when_strict() -> None:
    assert reported("__import__(name)") == []
    assert reported("__import__(name)", STRICT) == [("call.__import__", 1, True)]


def test_modules_of_the_project_are_known_but_the_standard_librarys_names_stay() -> None:
    code = "import shop.price, httpx, numpy\nimport socket"
    found = check_action(code, STRICT, frozenset({"shop", "httpx", "socket"}))
    assert [(one.rule, one.module) for one in found] == [("import.unknown", "numpy"), ("import.socket", "socket")]
    assert unknown_modules(check_action("import a.b\nfrom c import d, e", ADVISE)) == {"a", "c"}


def test_a_task_with_a_shell_or_hosts_may_use_them() -> None:
    shell = "os.system('ls'); subprocess.run('a|b', shell=True); subprocess.run(['git', 'push'])"
    assert reported(shell, **FULL_SHELL) == []
    assert reported("os.fork()", **FULL_SHELL) == [("call.os.fork", 1, True)]
    assert reported("import socket, urllib.request, requests", ONLINE) == [("import.unknown", 1, False)]
    assert reported("import ctypes", ONLINE) == [("import.ctypes", 1, True)]


def test_two_modules_of_one_line_are_reported_both_and_the_refused_come_first() -> None:
    code = "import numpy, scipy\nimport socket, ssl"
    assert [one.module for one in check_action(code, ADVISE)] == ["socket", "ssl", "numpy", "scipy"]


def test_lines_are_counted_as_python_counts_them() -> None:
    code = "a = '\x0c \u2028 \x85 \x1c'\rb = 1\r\nimport socket\n"
    (found,) = check_action(code, ADVISE)
    assert (found.line, found.source) == (3, "import socket")


@pytest.mark.parametrize(
    "code", ["def f(:", "x = '", "\tx\n  y", "x = \0", "'\ud800'", "# -*- coding: nonsense -*-\nx", "\ufeff)"]
)
def test_what_python_cannot_read_is_left_to_python(code: str) -> None:
    assert reported(code, STRICT) == []


def test_what_is_reported_is_bounded() -> None:
    long = "x" * 50_000
    many = "\n".join(f"import module_{number}" for number in range(500))
    for code in (
        f"__import__('{long}')",
        f"open('/{long}')",
        f"import {long}",
        f"import os; os.system('{long}')",
        many,
    ):
        found = check_action(code, STRICT, root=ROOT)
        assert 0 < len(found) <= MAX_FINDINGS
        assert all(len(str(one)) < 1_000 for one in found)


ODD = {
    "a megabyte": "x = 1\n" * 170_000,
    "a megabyte of one line": "x = '" + "y" * 1_000_000 + "'",
    "deep parentheses": "(" * 5_000 + ")" * 5_000,
    "deep lists": "[" * 150 + "]" * 150,
    "deep minus": "-" * 90_000 + "1",
    "long sum": "x = " + "+".join(["1"] * 100_000),
    "long chain of members": "a" + ".b" * 100_000 + "()",
    "long chain of calls": "__import__('a')" + ".b(1)" * 30_000,
    "calls of calls": "f" + "()" * 90_000,
    "deep getattr": "getattr(" * 90 + "os" + ", 'a')" * 90 + "()",
    "deep blocks": "".join(f"{' ' * depth}if x:\n" for depth in range(99)) + " " * 99 + "import socket",
    "many imports": "import " + ",".join(["socket"] * 30_000),
    "many stars": "from os import *\n" * 5_000 + "system()\n" * 5_000,
    "nulls": "\0" * 1_000,
    "surrogates": "x = '\ud800\udfff'",
    "nothing": "",
}


@pytest.mark.parametrize("name", ODD)
def test_no_source_breaks_or_delays_the_reader(name: str) -> None:
    for policy in (ADVISE, STRICT):
        started = time.process_time()
        assert all(isinstance(one, Finding) for one in check_action(ODD[name], policy, root=ROOT))
        assert time.process_time() - started < 10


def test_what_is_too_large_to_be_read_is_not_run_and_says_so() -> None:
    (found,) = check_action("#" * (MAX_CODE + 1), ADVISE)
    assert (found.rule, found.refused) == ("code.size", True)
    assert "Do it in smaller steps" in found.message


@given(st.text(), st.sampled_from([ADVISE, STRICT]))
@example("import \\\n socket", STRICT)
@example("from . import *", STRICT)
@example("from .. import a as b", STRICT)
@example("__import__('')", STRICT)
@example("importlib.import_module('.a', 'b')", STRICT)
@example("__import__('a`b')", STRICT)
@example("subprocess.run([])", STRICT)
@example("subprocess.run(['', ''])", STRICT)
@example("subprocess.run(['\\0', '\\ud800'])", STRICT)
@example("open()", STRICT)
@example("open('/\\0', mode=3)", STRICT)
@example("getattr(os)()", STRICT)
def test_any_text_is_read_or_left_alone(code: str, policy: Policy) -> None:
    check_action(code, policy, root=ROOT)


MODULES = st.sampled_from(["os", "socket", "numpy", "shop", "subprocess", "importlib", "a.b.c", "urllib.request"])
NAMES = st.sampled_from(["os", "x", "eval", "exec", "system", "open", "getattr", "__import__", "subprocess", "input"])
EXPRESSIONS = st.recursive(
    NAMES | st.sampled_from(["1", "'os'", "'/etc/x'", "'w'", "None", "f'{x}'", "['git', 'push']", "b''", "..."]),
    lambda inner: st.one_of(
        st.builds("{}.{}".format, NAMES, st.sampled_from(["system", "run", "import_module", "fork", "x"])),
        st.builds("{}({}, {})".format, inner, inner, inner),
        st.builds("{}({}, mode={}, shell={})".format, inner, inner, inner, inner),
        st.builds("(lambda x: {})".format, inner),
        st.builds("[{} for x in ({},)]".format, inner, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("(*{}, {})".format, inner, inner),
    ),
    max_leaves=8,
)
STATEMENTS = st.recursive(
    st.one_of(
        EXPRESSIONS,
        st.builds("import {}".format, MODULES),
        st.builds("import {} as {}".format, MODULES, NAMES.filter(str.isidentifier)),
        st.builds("from {} import {}".format, MODULES, st.sampled_from(["*", "system", "request", "x as eval"])),
        st.builds("{} = {}".format, NAMES, EXPRESSIONS),
        st.builds("del {}".format, NAMES),
        st.just("pass"),
    ),
    lambda inner: st.builds(
        lambda head, body: f"{head}:\n" + "\n".join(f"    {line}" for line in body.split("\n")),
        st.sampled_from(["def f(os=1, *a, **k)", "async def f()", "class C", "while 1", "with x as os", "try"]),
        inner,
    ).map(lambda block: f"{block}\nfinally: pass" if block.startswith("try") else block),
    max_leaves=4,
)


@given(st.lists(STATEMENTS, max_size=6).map("\n".join), st.sampled_from([ADVISE, STRICT]))
def test_programs_are_read_and_findings_name_a_line_of_theirs(code: str, policy: Policy) -> None:
    try:
        ast.parse(code)
    except SyntaxError:
        assert check_action(code, policy, root=ROOT) == ()
        return
    lines = code.split("\n")
    advised = check_action(code, ADVISE, root=ROOT)
    for one in check_action(code, policy, root=ROOT):
        assert lines[one.line - 1].strip()[:300] == one.source
        assert one.message.startswith("`")
        assert one.rule.partition(".")[0] in ("import", "call", "command", "path")
    assert {one.line for one in advised if one.refused} <= {
        one.line for one in check_action(code, STRICT, root=ROOT) if one.refused
    }


@pytest.mark.parametrize("imports", ["advise", "off"])
def test_lists_of_tools_are_about_tools_alone(imports: str) -> None:
    policy = Policy.model_validate(
        {
            "imports": imports,
            "tools": {"allow": ["read_file"]},
            "arguments": [{"tool": "read_file", "pattern": "*secret*", "effect": "ask"}],
        }
    )
    tools = frozenset({"read_file", "write_file"})
    assert check_action("print(made_before(read_file('a.py')))", policy, tools=tools) == ()
    (denied,) = check_action("print(write_file('a.py', ''))", policy, tools=tools)
    assert (denied.rule, denied.refused) == ("tools.allow", True)
    (asked,) = check_action("read_file(path='secret.txt')", policy, tools=tools)
    assert asked.asked and asked.decision is not None and asked.decision.action.about == "read_file secret.txt"
