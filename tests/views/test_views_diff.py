"""A diff as rows: every line is there, with its numbers, and nothing in it is taken for a header."""

from __future__ import annotations

import difflib
import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_kit import DIFF

from codepilot.views import diff as diff_module
from codepilot.views.diff import MAX_ROWS, file_diffs
from codepilot.views.text import visible

LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=("Cs",)), max_size=30),
        st.sampled_from(["diff --git a/x b/x", "@@ -1,2 +1,2 @@", "--- a/x", "+++ b/x", "'''", '"""', "def f():", ""]),
    ),
    max_size=20,
)


def plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


@given(LINES, LINES, st.sampled_from(["a.py", "a.java", "a.unknown", "a.toml"]))
def test_every_line_is_shown_once_with_its_number(before: list[str], after: list[str], path: str) -> None:
    body = list(difflib.unified_diff(before, after, "a/" + path, "b/" + path, lineterm=""))
    text = "\n".join([f"diff --git a/{path} b/{path}", *body]) + "\n"
    (file,) = file_diffs(text)
    assert file.path == path
    old = {row.old: plain(row.html) for row in file.rows if row.old is not None}
    new = {row.new: plain(row.html) for row in file.rows if row.new is not None}
    assert old.items() <= {number: visible(line) for number, line in enumerate(before, 1)}.items()
    assert new.items() <= {number: visible(line) for number, line in enumerate(after, 1)}.items()
    matcher = difflib.SequenceMatcher(None, before, after)
    same = sum(block.size for block in matcher.get_matching_blocks())
    assert file.removed == len(before) - same == sum(row.kind == "del" for row in file.rows)
    assert file.added == len(after) - same == sum(row.kind == "add" for row in file.rows)


def test_known_languages_are_coloured() -> None:
    (file,) = file_diffs(DIFF)
    added = next(row for row in file.rows if row.kind == "add")
    assert added.html == '        cursor = <span class="hb">max</span>(cursor, span.end)'
    assert added.new == 47


DOCSTRING = """\
diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -8,3 +8,3 @@ def f(text: str) -> int:
     triplet of the colour.
     QUOTES
-    return int(text)
+    return int(text, 16)
"""


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_hunk_that_begins_in_a_docstring_is_coloured_as_code_below_it(quotes: str) -> None:
    (file,) = file_diffs(DOCSTRING.replace("QUOTES", quotes))
    added = next(row for row in file.rows if row.kind == "add")
    assert added.html.startswith('    <span class="hk">return</span>')
    assert [plain(row.html) for row in file.rows[1:3]] == ["    triplet of the colour.", f"    {quotes}"]
    (file,) = file_diffs(
        DOCSTRING.replace("triplet of the colour.", "def g():").replace("QUOTES", f"{quotes}The start")
    )
    assert '<span class="hs">' in next(row for row in file.rows if row.kind == "add").html


HEADERS = {
    "new file mode 100644\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+a\n": "new file",
    "deleted file mode 100644\n--- a/x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n": "deleted",
    "similarity index 90%\nrename from y.py\nrename to x.py\n": "renamed from y.py",
    "index 1..2 100644\nBinary files a/x.py and b/x.py differ\n": "binary file",
    "old mode 100644\nnew mode 100755\n": "mode changed from 100644",
    "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n": "no newline at the end of the file",
}


@pytest.mark.parametrize("rest", HEADERS)
def test_what_happened_to_the_whole_file_is_reported(rest: str) -> None:
    (file,) = file_diffs(f"diff --git a/x.py b/x.py\n{rest}")
    assert (file.path, file.note) == ("x.py", HEADERS[rest])


def test_a_name_that_git_quotes_is_shown_and_reviewed_as_it_is() -> None:
    odd = r"\303\274 \"x\"\t\377.py"
    (file,) = file_diffs(f'diff --git "a/{odd}" "b/{odd}"\n--- "a/{odd}"\n+++ "b/{odd}"\n@@ -1 +1 @@\n-a\n+b\n')
    assert file.path == file.key == 'ü "x"\t\\xff.py'
    assert [one.key for one in file.hunks] == [f"{file.key}:1"]
    (renamed,) = file_diffs('diff --git a/x.py "b/\\303\\274.py"\nrename from x.py\nrename to "\\303\\274.py"\n')
    assert (renamed.path, renamed.note) == ("ü.py", "renamed from x.py")


def test_windows_line_ends_are_no_noise_but_a_single_one_is_shown() -> None:
    head = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n"
    (windows,) = file_diffs(head + " a\r\n-b\r\n+c\r\n")
    (mixed,) = file_diffs(head + " a\n-b\n+c\r\n")
    assert not [row for row in windows.rows if "\\r" in row.html]
    assert [row.kind for row in mixed.rows if "\\r" in row.html] == ["add"]


def test_a_huge_diff_is_cut_and_counted() -> None:
    hunk = "@@ -0,0 +1,1000 @@\n" + "+x = 1\n" * 1000
    files = file_diffs("".join(f"diff --git a/{n}.py b/{n}.py\n--- /dev/null\n+++ b/{n}.py\n{hunk}" for n in range(9)))
    assert sum(len(file.rows) for file in files) <= MAX_ROWS
    assert sum(file.added for file in files) == 9000
    assert sum(file.hidden for file in files) + sum(row.kind == "add" for file in files for row in file.rows) == 9000


def test_a_huge_hunk_is_begun_on_the_page_and_whole_on_its_own() -> None:
    lines = MAX_ROWS + 100
    diff = f"diff --git a/x.py b/x.py\n--- /dev/null\n+++ b/x.py\n@@ -0,0 +1,{lines} @@\n" + "+x = 1\n" * lines
    (page,), (alone,) = file_diffs(diff), file_diffs(diff, "x.py")
    assert len(page.rows) == MAX_ROWS and page.hidden == 101
    assert len(alone.rows) == lines + 1 and alone.hidden == 0


def test_what_is_no_diff_has_no_files() -> None:
    assert file_diffs("") == file_diffs("\n\n") == file_diffs("@@ -1 +1 @@\n+lost\n") == []


def test_a_very_long_line_is_not_highlighted() -> None:
    (file,) = file_diffs(f"diff --git a/x.py b/x.py\n@@ -0,0 +1 @@\n+{'(' * 100_000}\n")
    assert "<span" not in file.rows[1].html


def test_a_text_on_which_a_lexer_works_for_long_is_shown_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_module, "HIGHLIGHT_SEC", 0.05)
    diff = "diff --git a/X.java b/X.java\n@@ -0,0 +1,6000 @@\n" + "+a.\n" * 6_000
    [file] = file_diffs(diff)
    assert {str(row.html) for row in file.rows[1:]} == {"a."}


@pytest.mark.parametrize("space", ["  \n" * 2_000, " " * 1_500 + "\n"])
def test_white_space_that_a_lexer_reads_for_hours_is_shown_plainly(space: str) -> None:
    lines = f"int a;\n{space}int b;".split("\n")
    diff = f"diff --git a/x.c b/x.c\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    [file] = file_diffs(diff)
    assert file.rows[1].html == "int a;"
