from __future__ import annotations

import difflib
import re
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codepilot.skills import PatchError, patch_tree

WORDS = st.text(alphabet="abcxyz ()=-+@#\t'é", max_size=12)
LINES = st.lists(WORDS, max_size=25)


def diff(before: str, after: str, context: int = 3) -> str:
    """A unified diff as git writes it, the missing final newline included."""
    out = []
    for line in difflib.unified_diff(_lines(before), _lines(after), "a/f.txt", "b/f.txt", n=context):
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def patched(before: str, patch: str) -> str:
    changes = patch_tree(patch, {"f.txt": before}.get)
    result = changes.files["f.txt"]
    assert result is not None
    return result


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str]:
    """A text and an edited version of it, with any line endings and final newlines."""
    lines = draw(LINES)
    edited = list(lines)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(edited)))
        edited[place : place + draw(st.integers(0, 3))] = draw(st.lists(WORDS, max_size=3))
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    return tuple(  # type: ignore[return-value]
        ending.join(part) + (ending if part and draw(st.booleans()) else "") for part in (lines, edited)
    )


@given(edits(), st.integers(0, 4))
def test_the_diff_of_any_edit_gives_the_target(edit: tuple[str, str], context: int) -> None:
    before, after = edit
    assume(before != after)
    assert patched(before, diff(before, after, context)) == after


@st.composite
def distinct_edits(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """An edit of a text in which no two lines are alike, so that every hunk has one place."""
    lines = [f"line {number} {draw(st.sampled_from('abc'))}" for number in range(draw(st.integers(4, 40)))]
    edited = list(lines)
    for number in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(edited) - 1))
        edited[place : place + draw(st.integers(0, 2))] = [f"new {number}"]
    return lines, edited


@given(distinct_edits(), st.integers(-60, 60), st.integers(0, 9), st.integers(0, 9))
def test_wrong_line_numbers_and_counts_do_not_matter(
    edit: tuple[list[str], list[str]], shift: int, old_count: int, new_count: int
) -> None:
    before, after = ("\n".join(part) + "\n" for part in edit)

    def wrong(match: re.Match[str]) -> str:
        return f"@@ -{max(1, int(match[1]) + shift)},{old_count} +{max(1, int(match[1]) - shift)},{new_count} @@"

    spoiled = re.sub(r"^@@ -(\d+).*@@$", wrong, diff(before, after), flags=re.MULTILINE)
    assert patched(before, spoiled) == after


@given(distinct_edits(), st.sampled_from(["bare", "no prefix", "fenced", "crlf patch", "no final newline", "stripped"]))
def test_the_ways_models_write_diffs_do_not_matter(edit: tuple[list[str], list[str]], habit: str) -> None:
    before, after = ("\n".join(part) + "\n" for part in edit)
    patch = diff(before, after)
    match habit:
        case "bare":
            patch = re.sub(r"^@@.*@@$", "@@", patch, flags=re.MULTILINE)
        case "no prefix":
            patch = patch.replace("--- a/", "--- ").replace("+++ b/", "+++ ")
        case "fenced":
            patch = f"Here is the fix:\n\n```diff\n{patch}```\n\nIt works.\n"
        case "crlf patch":
            patch = patch.replace("\n", "\r\n")
        case "no final newline":
            patch = patch.rstrip("\n")
        case "stripped":
            patch = re.sub(r"^ ", "", patch, flags=re.MULTILINE)
    assert patched(before, patch) == after


@given(edits(), st.integers(-1_000, 1_000), st.integers(0, 3))
def test_any_diff_applies_wherever_its_line_numbers_point_if_its_text_is_there_once(
    edit: tuple[str, str], shift: int, context: int
) -> None:
    before, after = edit
    assume(before != after)

    def shifted(match: re.Match[str]) -> str:
        return f"@@ -{max(0, int(match[1]) + shift)}{match[2]} @@"

    patch = re.sub(r"^@@ -(\d+)(.*) @@$", shifted, diff(before, after, context), flags=re.MULTILINE)
    lines = before.split("\n")
    hunks = re.split(r"^@@.*\n", patch, flags=re.MULTILINE)[1:]
    for hunk in hunks:
        old = [line[1:] for line in hunk.split("\n")[:-1] if line[:1] in ("-", " ")]
        places = [at for at in range(len(lines)) if lines[at : at + len(old)] == old]
        assume(old and len(places) == 1)
    assert patched(before, patch) == after


@given(distinct_edits(), st.sampled_from(["", "\nThis fixes it.\n", "\n\nNote: run the tests.\n"]))
def test_prose_around_a_patch_does_not_matter(edit: tuple[list[str], list[str]], prose: str) -> None:
    before, after = ("\n".join(part) + "\n" for part in edit)
    patch = re.sub(r"^@@.*@@$", "@@ -1,99 +1,99 @@", diff(before, after), flags=re.MULTILINE)
    assert patched(before, f"The cause is plain.\n\n{patch}{prose}") == after


@given(distinct_edits())
def test_the_envelope_form_says_the_same(edit: tuple[list[str], list[str]]) -> None:
    before, after = ("\n".join(part) + "\n" for part in edit)
    hunks = re.sub(r"^@@.*@@$", "@@", "".join(diff(before, after).splitlines(True)[2:]), flags=re.MULTILINE)
    patch = f"*** Begin Patch\n*** Update File: f.txt\n{hunks}*** End Patch\n"
    assume(all(re.search(r"^[ -]", hunk, re.MULTILINE) for hunk in hunks.split("@@\n")[1:]))
    assert patched(before, patch) == after


def test_the_envelope_form_adds_deletes_moves_and_follows_headings() -> None:
    source = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"
    patch = """Here it is:
*** Begin Patch
*** Add File: new.py
+x = 1

+y = 2
*** Delete File: gone.py
*** Update File: old.py
*** Move to: moved.py
@@ class B:
     def f(self):
-        return 1
+        return 2
*** End Patch
Done.
"""
    changes = patch_tree(patch, {"old.py": source, "gone.py": "x\n"}.get)
    assert changes.files == {
        "new.py": "x = 1\ny = 2\n",
        "gone.py": None,
        "old.py": None,
        "moved.py": source[:-2] + "2\n",
    }


@given(st.text(max_size=200), st.text(alphabet="*+-@ \nUpdate File:f.tx\\", max_size=200))
def test_any_envelope_is_applied_or_refused_in_words(source: str, body: str) -> None:
    try:
        patch_tree(f"*** Begin Patch\n*** Update File: f.txt\n{body}", {"f.txt": source}.get)
    except PatchError as error:
        assert str(error)


@given(distinct_edits())
def test_a_plain_patch_fits_a_crlf_file_and_keeps_its_endings(edit: tuple[list[str], list[str]]) -> None:
    before, after = ("\n".join(part) + "\n" for part in edit)
    assert patched(before.replace("\n", "\r\n"), diff(before, after)) == after.replace("\n", "\r\n")


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_applied_or_refused_in_words(source: str, patch: str) -> None:
    try:
        patch_tree(patch, {"f.txt": source}.get)
    except PatchError as error:
        assert str(error)


FUNCTION = """def area(width, height):
    if width < 0:
        raise ValueError("width")
    return width + height


def volume(width, height, depth):
    return area(width, height) * depth
"""


def test_wrong_indentation_is_taken_from_the_file() -> None:
    patch = """--- a/f.txt
+++ b/f.txt
@@ -2,3 +2,5 @@
   if width < 0:
     raise ValueError("width")
-  return width + height
+  if height < 0:
+    raise ValueError("height")
+  return width * height
"""
    assert 'd("x")' not in patched(FUNCTION, patch)
    assert patched(FUNCTION, patch) == FUNCTION.replace(
        "    return width + height",
        '    if height < 0:\n        raise ValueError("height")\n    return width * height',
    )


def test_a_hunk_that_fits_nowhere_is_named_with_what_the_file_says() -> None:
    patch = """--- a/f.txt
+++ b/f.txt
@@ -1,2 +1,2 @@
-def area(width, height):
+def area(width: int, height: int):
     if width < 0:
@@ -3,2 +3,2 @@
         raise ValueError("width")
-    return height + width
+    return width * height
"""
    with pytest.raises(PatchError) as caught:
        patched(FUNCTION, patch)
    assert str(caught.value) == (
        "hunk 2 of 2 for f.txt (@@ -3,2 +3,2 @@) does not fit: "
        "the closest place is line 3, where 1 of its 2 old lines agree.\n"
        "The file says there:\n"
        '      3 |         raise ValueError("width")\n'
        "      4 |     return width + height\n"
        "  patch |     return height + width    <- differs"
    )


def test_an_applied_patch_says_that_it_is_applied() -> None:
    patch = diff(FUNCTION, FUNCTION.replace("width + height", "width * height"))
    with pytest.raises(PatchError, match=r"line 1 already reads as the hunk would leave it"):
        patched(patched(FUNCTION, patch), patch)


def test_a_hunk_that_fits_twice_without_a_line_number_is_refused() -> None:
    with pytest.raises(PatchError, match="fits in 2 places: lines 1, 3"):
        patched("a\nb\na\nc\n", "--- a/f.txt\n+++ b/f.txt\n@@\n-a\n+x\n")


def test_the_nearest_of_several_places_is_taken_when_there_is_a_line_number() -> None:
    assert patched("a\nb\na\nc\n", "--- a/f.txt\n+++ b/f.txt\n@@ -3 +3 @@\n-a\n+x\n") == "a\nb\nx\nc\n"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("", "No file header"),
        ("just words", "No file header"),
        ("@@ -1 +1 @@\n-a\n+b\n", "no file header"),
        ("--- a/f.txt\n+++ b/f.txt\n", "has no hunk"),
        ("--- a/f.txt\n+++ b/f.txt\n@@ -1 +1 @@\n a\n", "changes nothing"),
        ("--- a/none.txt\n+++ b/none.txt\n@@ -1 +1 @@\n-a\n+b\n", "there is no such file"),
        ("--- /dev/null\n+++ b/f.txt\n@@ -0,0 +1 @@\n+b\n", "exists already"),
        ("--- a/f.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "leaves 1 of its lines"),
        ("*** Begin Patch\n*** Update File: f.txt\n", "changes nothing in it"),
        ("*** Begin Patch\n*** End Patch\n", "names no file"),
        ("*** Begin Patch\nwords\n*** Update File: f.txt\n", "stands before"),
        ("*** Begin Patch\n*** Rename File: f.txt\n", "is not understood"),
        ("*** Begin Patch\n*** Update File: f.txt\n@@\n-z\n+b\n*** End Patch\n", "hunk 1 of 1 for f.txt"),
        ("*** Begin Patch\n*** Add File: f.txt\n+b\n*** End Patch\n", "exists already"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "mode 120000"),
        ("diff --git a/f b/f\nGIT binary patch\nliteral 0\n", "Binary patches"),
        ("--- a/f.txt\n+++ b/f.txt\n@@ -1,1 +1,1 @@\n-a\n+b\nand then\n+c\n", "outside any hunk"),
        ("--- a/f.txt\n+++ b/f.txt\n@@ -9,0 +9,1 @@\n+c\n", "only adds lines and has no context"),
    ],
)
def test_what_cannot_be_applied_is_refused_in_words(patch: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        patch_tree(patch, {"f.txt": "a\nb\n"}.get)


def test_files_are_created_deleted_and_renamed() -> None:
    tree = {"old.txt": "a\n", "gone.txt": "x\n"}
    patch = (
        "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
        "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/old.txt b/moved.txt\nsimilarity index 50%\nrename from old.txt\nrename to moved.txt\n"
        "--- a/old.txt\n+++ b/moved.txt\n@@ -1 +1,2 @@\n a\n+b\n"
    )
    changes = patch_tree(patch, tree.get)
    assert changes.files == {"new.txt": "one\ntwo\n", "gone.txt": None, "old.txt": None, "moved.txt": "a\nb\n"}


def test_what_git_says_without_hunks_is_done() -> None:
    patch = (
        "diff --git a/empty b/empty\nnew file mode 100755\nindex 0000000..e69de29\n"
        "diff --git a/a name b/a name\ndeleted file mode 100644\nindex e69de29..0000000\n"
        "diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n"
        "diff --git a/one b/two\nsimilarity index 100%\ncopy from one\ncopy to two\n"
    )
    changes = patch_tree(patch, {"a name": "", "tool": "x\n", "one": "1\n"}.get)
    assert changes.files == {"empty": "", "a name": None, "tool": "x\n", "two": "1\n"}
    assert changes.modes == {"empty": 0o755, "tool": 0o755}


def test_a_move_onto_a_file_that_is_there_is_refused() -> None:
    patch = "diff --git a/one b/two\nrename from one\nrename to two\n"
    with pytest.raises(PatchError, match="moves one to two, but that exists already"):
        patch_tree(patch, {"one": "1\n", "two": "2\n"}.get)


def test_removed_and_added_lines_that_look_like_headers_stay_lines() -> None:
    before, after = "x\n-- a\ny\n", "x\n++ b\ny\n"
    assert patched(before, diff(before, after)) == after


def test_quoted_names_are_understood() -> None:
    patch = '--- "a/f\\303\\251.txt"\n+++ "b/f\\303\\251.txt"\n@@ -1 +1 @@\n-a\n+b\n'
    assert patch_tree(patch, {"fé.txt": "a\n"}.get).files == {"fé.txt": "b\n"}


def test_a_second_section_for_a_file_sees_the_first() -> None:
    one = "--- a/f.txt\n+++ b/f.txt\n@@ -1 +1 @@\n-a\n+b\n"
    two = "--- a/f.txt\n+++ b/f.txt\n@@ -1 +1 @@\n-b\n+c\n"
    assert patch_tree(one + two, {"f.txt": "a\n"}.get).files == {"f.txt": "c\n"}


HEADER = "--- a/f.txt\n+++ b/f.txt\n"
ALIKE = "x\n" * 100_000
PERIODS = ("x\n" * 99 + "b\n") * 1_000


def reported(before: str, patch: str) -> str:
    """How a patch ends, within a few seconds of work."""
    started = time.process_time()
    try:
        patched(before, patch)
        ended = "applied"
    except PatchError as error:
        ended = str(error)
    assert time.process_time() - started < 6.0
    return ended


@pytest.mark.parametrize(
    ("before", "hunks", "ends"),
    [
        (ALIKE, "".join(f"@@ -{at},3 +{at},3 @@\n x\n-x\n+y\n x\n" for at in range(1, 99_000, 20)), "applied"),
        (ALIKE, "@@\n x\n-x\n+y\n x\n" * 5_000, "fits in 99998 places"),
        (ALIKE, "@@ x\n x\n-x\n+y\n" * 5_000, "too much of the file"),
        (ALIKE, "".join(f"@@ -{at},0 +{at},1 @@\n+y\n" for at in range(1, 20_000)), "applied"),
        (ALIKE, "@@ -1,1 +1,1 @@\n" + " x\n" * 50_000 + "-q\n+z\n", "50000 of its 50001 old lines agree"),
        (ALIKE, "@@ -1,9 +1,9 @@\n x\n-x\n+y\n x\n" + "\n" * 50_000 + "@@ -9 +9 @@\n-x\n+y\n", "applied"),
        (
            PERIODS,
            "@@\n" + (" x\n" * 99 + " b\n") * 500 + " x\n" * 98 + " b\n-x\n+z\n",
            "too much of the file looks like it",
        ),
        ("a\nb\n" * 50_000, "@@ -1 +1 @@\n" + " a\n b\n" * 20_000 + "-b\n-b\n+z\n", "too much of the file"),
    ],
    ids=["numbered", "bare", "headed", "insertions", "long", "blank", "periodic", "alternating"],
)
def test_no_file_and_no_patch_takes_long(before: str, hunks: str, ends: str) -> None:
    assert ends in reported(before, HEADER + hunks)


def test_additions_in_one_place_come_in_their_order() -> None:
    assert patched("1\n2\n", HEADER + "@@ -1,0 +2 @@\n+a\n@@ -1,0 +3 @@\n+b\n") == "1\na\nb\n2\n"


def test_additions_amid_lines_that_another_hunk_replaces_are_refused() -> None:
    patch = HEADER + "@@ -1,4 +1,2 @@\n 1\n-2\n-3\n 4\n@@ -2,0 +3 @@\n+a\n"
    with pytest.raises(PatchError, match=r"hunk 2 of 2 .* adds lines after line 2, which another hunk replaces"):
        patched("1\n2\n3\n4\n", patch)
