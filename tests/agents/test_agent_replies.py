from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codepilot.agents.replies import Code, Malformed, Result, read_reply
from codepilot.models import Reply, ToolCall

PROSE = st.text(alphabet="abc .,\n'\"{}[]()*_-", max_size=60)
SCALARS = st.none() | st.booleans() | st.integers() | st.text()
OBJECTS = st.dictionaries(st.text(), st.recursive(SCALARS, lambda part: st.lists(part, max_size=3), max_leaves=5))


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Python whose strings may hold fences, tags and anything else."""
    hard = st.sampled_from(["```", "```python", "<result>", "</result>", "x", "# title", ""])
    text = "\n".join(draw(st.lists(hard, max_size=5)))
    return f'write_file("README.md", """\n{text}\n""")\nprint(1)\n'


@given(PROSE, programs(), PROSE)
def test_a_block_amid_prose_is_the_action(before: str, code: str, after: str) -> None:
    assert read_reply(Reply(text=f"{before}\n```python\n{code}```\n{after}")) == Code(code)


@given(PROSE, OBJECTS, PROSE, st.booleans())
def test_a_result_amid_prose_is_the_result(before: str, value: dict[str, object], after: str, fenced: bool) -> None:
    body = json.dumps(value)
    body = f"\n```json\n{body}\n```\n" if fenced else body
    assert read_reply(Reply(text=f"{before}<result>{body}</result>{after}")) == Result(value)  # type: ignore[arg-type]


@given(st.text(max_size=200))
def test_any_text_is_read_or_answered(text: str) -> None:
    read = read_reply(Reply(text=text))
    assert isinstance(read, (Code, Result)) or read.message


@given(programs(), programs())
def test_two_actions_are_none(one: str, two: str) -> None:
    assume("```" not in one + two)
    assert isinstance(read_reply(Reply(text=f"```python\n{one}```\nthen\n```python\n{two}```")), Malformed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither an action nor a result"),
        ("```\nprint(1)\n```", "neither an action nor a result"),
        ("```bash\nls\n```", "neither an action nor a result"),
        ("```python\nprint(1)", "not closed"),
        ("```python\n\n```", "is empty"),
        ("```python\n1\n```\n<result>{}</result>", "an action and a result, 2 in all"),
        ("<result>{'a': 1}</result>", "not JSON: Expecting property name"),
        ("<result>[1]</result>", "not an object: list"),
        ('<result>{"a": 1} and so on', "</result> must follow"),
        ("```json\n{'a': 1}\n```", "Your JSON cannot be read: Expecting property name"),
        ('```json\n{"a": 1}\n```\nor\n```json\n{"b": 1}\n```', "2 blocks of JSON"),
        ('<tool_call>{"name": "shell", "arguments": {"cmd": "ls"}}</tool_call>', "'shell' has cmd. There is one tool"),
        ('{"name": "python", "arguments": {"code": " "}}', "is empty"),
        ('<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>' * 2, "2 calls"),
        ('```python\n1\n```\n<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>', "2 in all"),
        ("<result>" + "[" * 100_000, "not JSON"),
        ('<result>{"a": "\\ud800"}</result>', "surrogates not allowed"),
        ('<result>{"a": NaN}</result>', "NaN is not a JSON number"),
        ('<result>{"a": 1e999}</result>', "1e999 is not a JSON number"),
        ('<result>{"a": ' + "9" * 5000 + "}</result>", "not JSON"),
    ],
)
def test_the_answer_says_what_was_wrong(text: str, message: str) -> None:
    read = read_reply(Reply(text=text))
    assert isinstance(read, Malformed)
    assert message in read.message


def call(name: str = "python", **arguments: object) -> ToolCall:
    return ToolCall.model_validate({"id": "c", "name": name, "arguments": arguments})


def test_a_tool_call_is_the_action() -> None:
    reply = Reply(text="I look first: ```python\nignored\n```", tool_calls=(call(code="print(1)"),))
    assert read_reply(reply) == Code("print(1)")


@pytest.mark.parametrize(
    "calls",
    [(call("shell", code="1"),), (call(),), (call(code=1),), (call(code=" "),), (call(code="1"), call(code="2"))],
)
def test_other_calls_are_answered(calls: tuple[ToolCall, ...]) -> None:
    assert isinstance(read_reply(Reply(tool_calls=calls)), Malformed)


@pytest.mark.parametrize("fence", ["```py", "```Python", "``` python", "```python title=fix.py", "```python\r"])
def test_fences_are_written_in_many_ways(fence: str) -> None:
    assert read_reply(Reply(text=f"So:\n{fence}\nprint(1)\n```\n")) == Code("print(1)\n")


def test_a_block_in_a_list_loses_its_indentation() -> None:
    text = "1. Look:\n   ```python\n   if True:\n       print(1)\n   ```\n"
    assert read_reply(Reply(text=text)) == Code("if True:\n    print(1)\n")


def test_a_reply_cut_by_length_is_marked() -> None:
    read = read_reply(Reply(text="```python\nprint(1)\n```", stop_reason="length"))
    assert isinstance(read, Malformed)
    assert "cut off at the length limit" in read.message


CODE = 'print(read_file("a.py"))\nx = {"a": 1}'
SPELLINGS = {
    "object": '{{"name": "python", "arguments": {arguments}}}',
    "pretty": '{{\n  "name": "python",\n  "arguments": {arguments}\n}}',
    "parameters": '{{"name": "python", "parameters": {arguments}}}',
    "openai": '{{"id": "c1", "type": "function", "function": {{"name": "python", "arguments": {text}}}}}',
    "fenced": 'I look first.\n\n```json\n{{"name": "python", "arguments": {arguments}}}\n```\n',
    "untagged": '```\n{{"name": "python", "arguments": {arguments}}}\n```',
    "qwen": 'So:\n<tool_call>\n{{"name": "python", "arguments": {arguments}}}\n</tool_call>',
    "qwen, not closed": '<tool_call>\n{{"name": "python", "arguments": {arguments}}}\n',
    "qwen coder": "<tool_call>\n<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>\n</tool_call>",
    "llama": '<|python_tag|>{{"name": "python", "parameters": {arguments}}}<|eom_id|>',
    "llama, raw": "<|python_tag|>{code}<|eom_id|>",
    "llama, function": "<function=python>{arguments}</function>",
    "mistral": '[TOOL_CALLS] [{{"name": "python", "arguments": {arguments}}}]',
    "mistral, new": "[TOOL_CALLS]python[ARGS]{arguments}",
    "deepseek": "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>python"
    "\n```json\n{arguments}\n```<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>",
    "gemma": "```tool_code\n{code}\n```",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_call_written_as_text_is_run(spelling: str) -> None:
    arguments = json.dumps({"code": CODE})
    text = SPELLINGS[spelling].format(arguments=arguments, text=json.dumps(arguments), code=CODE)
    read = read_reply(Reply(text=text))
    assert isinstance(read, Code), read
    assert (read.code.strip("\n"), read.textual) == (CODE, spelling != "gemma")


def test_line_breaks_inside_a_string_are_forgiven() -> None:
    assert read_reply(Reply(text='{"name": "python", "arguments": {"code": "a\nb"}}')) == Code("a\nb", textual=True)


def test_a_call_of_a_function_is_written_as_code() -> None:
    text = '<tool_call>{"name": "read_file", "arguments": {"path": "a\'b.py", "start": 2}}</tool_call>'
    assert read_reply(Reply(text=text), {"read_file"}) == Code('read_file(path="a\'b.py", start=2)', textual=True)
    assert read_reply(Reply(tool_calls=(call("read_file", path="x"),)), {"read_file"}) == Code("read_file(path='x')")
    assert isinstance(read_reply(Reply(text=text)), Malformed)


@pytest.mark.parametrize(
    "text",
    [
        '{"rationale": "r"}',
        '```json\n{"rationale": "r"}\n```',
        'Here is the result:\n\n```\n{"rationale": "r"}\n```\nThat is all.',
        'The result is:\n{\n "rationale": "r"\n}',
    ],
)
def test_a_sole_object_is_the_result(text: str) -> None:
    assert read_reply(Reply(text=text)) == Result({"rationale": "r"}, bare=True)


@pytest.mark.parametrize("text", ["See {x} and {y}.", "Use `{}`: {", "def f():\n    {", "{1, 2} is a set"])
def test_braces_in_prose_are_no_object(text: str) -> None:
    read = read_reply(Reply(text=text))
    assert isinstance(read, Malformed)


def test_a_result_that_the_end_closes_is_whole() -> None:
    assert read_reply(Reply(text='<result>{"a": 1}\n')) == Result({"a": 1})
