"""The pages in Chromium: they fit the screen, obey their policy, and print. Run by `make browser-test`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "views"))

from view_kit import blocked, reported  # the pages of tests/views

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (390, 820, 1440)
LONG = "/very/long/path" * 20 + "x" * 300
PAGES = {
    "confirmed": reported(),
    "plausible, long": reported("plausible", text=LONG, model="openai-compatible:http://127.0.0.1:8080#qwen3"),
    "failed": reported(None),
    "waits": blocked(),
}
FRAME = """<!doctype html><iframe width={width} height=3000 frameborder=0 srcdoc="{source}"></iframe><script>
onload = () => Object.assign(document.documentElement.dataset, document.querySelector("iframe")
  .contentDocument.documentElement.dataset);
</script>"""
"""A window is never narrower than 500 pixels, a frame is."""
MEASURE = """<script>
const box = document.documentElement, seen = (one) => one.getBoundingClientRect();
const wide = [...document.querySelectorAll("body *")].filter((one) => !one.closest(".sr, .skip, nav, pre, svg")
  && seen(one).right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120));
const small = [...document.querySelectorAll("summary, nav a")].filter((one) => seen(one).height < 24)
  .map((one) => one.outerHTML.slice(0, 120));
box.dataset.found = JSON.stringify({width: innerWidth, scroll: box.scrollWidth, wide, small,
  ground: getComputedStyle(document.body).backgroundColor, title: document.querySelector("h1").textContent});
</script></body>"""


def chromium(page: Path, *options: str, width: int = 1440) -> tuple[str, str]:
    assert CHROMIUM, "install Debian's chromium, or name one with CHROMIUM=/path"
    profile = page.parent / "profile"
    usual = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    logging = ["--enable-logging=stderr", f"--window-size={width},900"]
    done = subprocess.run(
        [CHROMIUM, *usual, *logging, *options, page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout, done.stderr


def measured(source: str, place: Path, width: int) -> dict[str, Any]:
    """What a script sees in the page, of which the policy is taken out for that."""
    page = place / "measured.html"
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", source)
    page.write_text(FRAME.format(width=width, source=escape(open_page.replace("</body>", MEASURE))), encoding="utf-8")
    shown, _ = chromium(page, "--dump-dom", width=width + 100)
    found = re.search(r'data-found="([^"]*)"', shown)
    assert found is not None
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_the_screen(name: str, width: int, tmp_path: Path) -> None:
    found = measured(PAGES[name].page(), tmp_path, width)
    assert found["width"] == width
    assert found["scroll"] <= width, found["wide"]
    assert found["wide"] == []
    assert found["small"] == [], "links and buttons are tall enough for a finger"
    assert found["title"].startswith("Free slots must not overlap")


def test_the_policy_holds_and_allows_the_style(tmp_path: Path) -> None:
    """Chromium reports each violation as a message on the console; foreign script and style are such."""
    page = tmp_path / "page.html"
    page.write_text(reported(text="<script>alert(1)</script>").page(), encoding="utf-8")
    assert "CONSOLE" not in chromium(page, "--dump-dom")[1]
    foreign = '<script>document.title = "taken"</script><p style="color: red">x</p></body>'
    page.write_text(reported().page().replace("</body>", foreign), encoding="utf-8")
    shown, log = chromium(page, "--dump-dom")
    assert "<title>taken" not in shown
    assert log.count("Content Security Policy") >= 2


def test_pictures_of_every_page(tmp_path: Path) -> None:
    """For a person to look at: the directory is printed with `pytest -s`."""
    place = Path(os.environ.get("CODEPILOT_PICTURES", tmp_path))
    for name, run in PAGES.items():
        page = tmp_path / "page.html"
        page.write_text(run.page(), encoding="utf-8")
        for width in WIDTHS:
            picture = place / f"{name.replace(', ', '-')}-{width}.png"
            chromium(page, f"--screenshot={picture}", width=width)
            assert picture.stat().st_size > 10_000
    printed = place / "page.pdf"
    chromium(tmp_path / "page.html", f"--print-to-pdf={printed}")
    assert printed.read_bytes().startswith(b"%PDF")
