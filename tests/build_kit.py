"""The seed's todo API as a scripted model builds it: with two mistakes, which it corrects in two more iterations."""

from __future__ import annotations

import json
from collections.abc import Callable

REQUEST = "Build a REST API with endpoints for creating and listing todos"

APP = '''"""A small REST API for todos, as a WSGI application."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from todos import Todos, TodoError


def make_app(todos: Todos) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """The application around one store."""

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path != "/todos":
            return answer(start_response, "404 Not Found", {"error": "not found"})
        if method == "GET":
            return answer(start_response, "200 OK", todos.listed())
        if method != "POST":
            return answer(start_response, "405 Method Not Allowed", {"error": "method not allowed"})
        length = int(environ.get("CONTENT_LENGTH") or 0)
        try:
            body = json.loads(environ["wsgi.input"].read(length) or b"{}")
            return answer(start_response, "201 Created", todos.add(body))
        except (TodoError, ValueError) as error:
            return answer(start_response, "400 Bad Request", {"error": str(error)})

    return app


def answer(start_response: Any, status: str, body: object) -> Iterable[bytes]:
    """One answer as JSON."""
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]


if __name__ == "__main__":
    from wsgiref.simple_server import make_server

    make_server("127.0.0.1", 8000, make_app(Todos())).serve_forever()
'''

TODOS = '''"""The todos, in memory."""

from __future__ import annotations

from threading import Lock
from typing import Any


class TodoError(Exception):
    """The todo cannot be accepted."""


class Todos:
    """A list of todos with ids that count from one."""

    def __init__(self) -> None:
        self._todos: list[dict[str, Any]] = []
        self._lock = Lock()

    def listed(self) -> list[dict[str, Any]]:
        return [dict(todo) for todo in self._todos]

    def add(self, body: Any) -> dict[str, Any]:
        """Add a todo; its title must be a text that is not empty."""
        if not isinstance(body, dict):
            raise TodoError("a todo is an object")
        title = body.get("title")
        if not isinstance(title, str) or not title.strip():
            raise TodoError("title is required")
        with self._lock:
            todo = {"id": len(self._todos) + 1, "title": title.strip(), "done": False}
            self._todos.append(todo)
        return dict(todo)
'''
NO_STRIP = TODOS.replace("not title.strip()", "not title")
WRONG_KEY = NO_STRIP.replace('"title": title.strip()', '"name": title.strip()')

TESTS = """import io
import json

from hypothesis import given, strategies as st

from app import make_app
from todos import Todos


def call(app, method, path, body=None):
    raw = b"" if body is None else json.dumps(body).encode()
    seen = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path}
    environ |= {"CONTENT_LENGTH": str(len(raw)), "wsgi.input": io.BytesIO(raw)}
    answer = b"".join(app(environ, lambda status, headers: seen.append(status)))
    return seen[0], json.loads(answer)


def test_nothing_is_listed_at_first():
    assert call(make_app(Todos()), "GET", "/todos") == ("200 OK", [])


def test_a_created_todo_is_listed():
    app = make_app(Todos())
    status, made = call(app, "POST", "/todos", {"title": "Buy milk"})
    assert (status, made["title"], made["done"]) == ("201 Created", "Buy milk", False)
    assert call(app, "GET", "/todos")[1] == [made]


def test_a_todo_without_a_title_is_refused():
    for body in ({}, {"title": ""}, {"title": "  "}, {"title": 3}, []):
        assert call(make_app(Todos()), "POST", "/todos", body)[0] == "400 Bad Request"


def test_other_paths_and_methods_are_refused():
    assert call(make_app(Todos()), "GET", "/nothing")[0] == "404 Not Found"
    assert call(make_app(Todos()), "DELETE", "/todos")[0] == "405 Method Not Allowed"


@given(st.lists(st.text(min_size=1).filter(str.strip), max_size=5))
def test_every_todo_gets_an_id_of_its_own(titles):
    todos = Todos()
    ids = [todos.add({"title": title})["id"] for title in titles]
    assert ids == list(range(1, len(titles) + 1)) and len(todos.listed()) == len(titles)
"""

README = "# Todos\n\nA REST API for todos. `python app.py` serves it, `python -m pytest` tests it.\n"


def result(**fields: object) -> str:
    return f"<result>{json.dumps(fields)}</result>"


def writing(**files: str) -> str:
    """An action that writes files; `__` in a name stands for a slash and `_py` for its end."""
    lines = [f"create_file({path!r}, {content!r})" for path, content in files.items()]
    return "```python\n" + "\n".join(lines) + "\n```"


def written(files: dict[str, str]) -> str:
    return writing(**files)


PLAN = result(
    nodes=[
        {"id": "store", "title": "Store todos in memory with validation"},
        {"id": "api", "title": "Serve POST /todos and GET /todos", "depends_on": ["store"]},
        {"id": "tests", "title": "Test every endpoint", "role": "Tester", "depends_on": ["api"]},
    ],
    approach="a WSGI application over a store in memory",
    expected_challenges=["missing or empty titles"],
    testing_strategy="call the application directly",
)
FIRST = (
    written({"todos.py": WRONG_KEY}),
    result(rationale="the store", confidence=0.7),
    written({"app.py": APP, "requirements.txt": "", "README.md": README}),
    result(rationale="the application", confidence=0.7),
    written({"tests/test_api.py": TESTS}),
    result(tests=["tests/test_api.py"], rationale="endpoints, errors and ids"),
)
REFLECTION = result(
    root_cause="the store answers with `name` where the tests expect `title`",
    fix_hypothesis="call the key `title` in todos.py",
    confidence="high",
)
SECOND = (written({"todos.py": NO_STRIP}), result(rationale="the key is title", confidence=0.8))
REFLECTION_2 = result(
    root_cause="a title of blanks is accepted", fix_hypothesis="strip it before it is checked", confidence="high"
)
THIRD = (written({"todos.py": TODOS}), result(rationale="blank titles are refused", confidence=0.9))
TODO_SCRIPT: tuple[str, ...] = (PLAN, *FIRST, REFLECTION, *SECOND, REFLECTION_2, *THIRD)
Hook = Callable[[], None]
