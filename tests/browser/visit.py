"""A person at the dashboard, played in Chromium by Playwright. Runs in an environment of its own.

`visit.py SCENARIO` reads a JSON object from standard input and prints one: what was seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

WIDTHS = (390, 820, 1440)
PROVED_MS = 250_000
"""How long a run may take to its proof, on a machine that does much else."""
OVERFLOW = """() => [...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".sr, .skip, nav, pre, svg, .scroll")
    && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 120))"""


BACKGROUND = """Object.defineProperty(document, "hidden", { get: () => true });
  window.shown = [];
  window.Notification = class extends Notification {
    constructor(...given) { super(...given); window.shown.push(given[0]); }
  };"""
"""The page is in the background, and what it tells the desktop is noted."""


class Visit:
    """One browser window with what went wrong in it."""

    def __init__(self, browser: Any, given: dict[str, Any], **options: Any) -> None:
        self.given = given
        self.context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        self.page: Page = self.context.new_page()
        self.console: list[str] = []
        self.page.on("console", lambda one: self.console.append(one.text) if one.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.console.append(str(error)))

    def log_in(self) -> None:
        self.page.goto(self.given["link"])
        self.page.wait_for_url(f"{self.given['url']}/")

    def open(self, path: str) -> None:
        self.page.goto(self.given["url"] + path)

    def picture(self, name: str) -> None:
        self.page.screenshot(path=str(Path(self.given["pictures"]) / f"{name}.png"), full_page=True)

    def axe(self) -> list[str]:
        """What axe-core finds serious. It is put into the page past the policy, as browsers let tools do."""
        session = self.context.new_cdp_session(self.page)
        source = Path(self.given["axe"]).read_text(encoding="utf-8")
        session.send("Runtime.evaluate", {"expression": source})
        run = "axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))"
        answer = session.send("Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True})
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:160]}"
            for one in json.loads(answer["result"]["value"])
            if one["impact"] in ("serious", "critical")
        ]


def smoke(visit: Visit) -> dict[str, Any]:
    """Submit a task, watch it until it is proved without loading the page again, and look at its change."""
    page = visit.page
    visit.context.grant_permissions(["notifications"], origin=visit.given["url"])
    page.add_init_script(BACKGROUND)
    visit.log_in()
    page.get_by_role("link", name="New task").first.click()
    page.get_by_label("Repository").fill(visit.given["repo"])
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/runs/r-*")
    page.evaluate("window.kept = true")
    expect(page.locator(".hero .verdict b")).to_have_text("Confirmed", timeout=PROVED_MS)
    live, notified = page.evaluate("window.kept === true"), page.evaluate("window.shown")
    run_id = page.url.partition("/runs/")[2].partition("?")[0]
    visit.open(f"/runs/{run_id}/diff")
    shown = page.locator("table.diff").first.inner_text()
    return {"run": run_id, "live": live, "diff": shown, "notified": notified, "console": visit.console}


def pages(visit: Visit) -> dict[str, Any]:
    """Every page at three widths and in both colour schemes: it fits, and axe finds nothing serious."""
    visit.log_in()
    found: dict[str, Any] = {}
    for path in visit.given["paths"]:
        for width in WIDTHS:
            visit.page.set_viewport_size({"width": width, "height": 900})
            visit.open(path)
            name = f"{path.strip('/').replace('/', '-').replace('?', '-') or 'board'}-{width}"
            visit.picture(name)
            found[name] = {"overflow": visit.page.evaluate(OVERFLOW), "axe": visit.axe() if width == 1440 else []}
        visit.page.emulate_media(color_scheme="dark")
        visit.open(path)
        visit.picture(f"{name}-dark")
        found[f"{name}-dark"] = {"overflow": [], "axe": visit.axe()}
        visit.page.emulate_media(color_scheme="light")
    return {"pages": found, "console": visit.console}


def reject(visit: Visit) -> dict[str, Any]:
    """Reject one hunk and have what remains proved."""
    page = visit.page
    visit.log_in()
    visit.open(f"/runs/{visit.given['run']}/diff")
    page.locator(f"input[name='hunk:{visit.given['hunk']}'][value='reject']").check()
    hunk = page.locator(f"tbody:has(fieldset[data-key='{visit.given['hunk']}'])")
    hunk.locator(".n[role=button]").first.press("Enter")
    hunk.locator("textarea").fill("too much")
    tally = page.locator("[data-tally]").inner_text()
    page.get_by_label("Reason for what you reject").fill("not needed")
    page.get_by_role("button", name="Re-verify what remains").click()
    page.wait_for_url("**/runs/r-*notice=*")
    expect(page.locator(".hero .verdict b")).not_to_have_text("Working", timeout=PROVED_MS)
    word = page.locator(".hero .verdict b").inner_text()
    visit.open(f"/runs/{visit.given['run']}/diff")
    review = page.locator("section[aria-label^='Review by']").inner_text()
    return {"url": page.url, "word": word, "tally": tally, "review": review, "console": visit.console}


def answer(visit: Visit) -> dict[str, Any]:
    """Sign in on the way to a run, and answer its request by keyboard; a page that is renewed keeps what was typed."""
    page = visit.page
    visit.open(f"/runs/{visit.given['run']}")
    page.get_by_label("Token").fill(visit.given["token"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{visit.given['run']}")
    page.get_by_label("Reason, for the record").fill("not from here")
    page.locator("h1").click()
    page.wait_for_timeout(1100)  # the time that is left to answer changes, so the panel is replaced
    page.evaluate("document.querySelector('.ask').id = 'old'")
    page.evaluate("refresh()")
    page.locator("#old").wait_for(state="detached")
    kept = page.get_by_label("Reason, for the record").input_value()
    page.get_by_role("button", name="Deny").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/r-*notice=*")
    refused = "status of 401"  # of the page that asked to sign in
    console = [one for one in visit.console if refused not in one]
    return {"notice": page.locator(".notice").inner_text(), "kept": kept, "console": console}


def outage(visit: Visit) -> dict[str, Any]:
    """A proxy answers for the server once; then the server goes away and comes back, as the test does by files."""
    page = visit.page
    page.route("**/v1/runs/changes", lambda route: route.fulfill(status=502), times=1)
    visit.log_in()
    page.locator(".offline").wait_for()
    page.locator(".offline").wait_for(state="detached", timeout=30_000)
    Path(visit.given["ready"]).touch()
    page.locator(".offline").wait_for(timeout=60_000)
    Path(visit.given["seen"]).touch()
    page.locator(".offline").wait_for(state="detached", timeout=60_000)
    expect(page.locator(".card")).to_have_count(visit.given["cards"], timeout=30_000)
    return {"cards": page.locator(".card").count()}


def viewer(visit: Visit) -> dict[str, Any]:
    """Somebody who may only read signs in with a token and reads a change, before next to after."""
    page = visit.page
    visit.open("/login")
    page.get_by_label("Token").fill(visit.given["token"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{visit.given['url']}/")
    visit.open(f"/runs/{visit.given['run']}/diff?view=split")
    widths = {name: page.locator(f".diff.split td.{name}").first.bounding_box()["width"] for name in ("n", "c")}
    return {"widths": widths, "buttons": page.locator(".changes button").count(), "console": visit.console}


def without_script(visit: Visit) -> dict[str, Any]:
    """The pages work without JavaScript: submit, look, pause."""
    page = visit.page
    visit.page.goto(visit.given["link"])
    visit.open("/new")
    page.get_by_label("Repository").fill(visit.given["repo"])
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/runs/r-*")
    return {"title": page.title(), "buttons": page.get_by_role("button").all_inner_texts()}


SCENARIOS = {one.__name__: one for one in (smoke, pages, reject, answer, outage, viewer, without_script)}


def main() -> None:
    given = json.load(sys.stdin)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=given["chromium"], args=["--no-sandbox", "--disable-gpu"])
        options = {"java_script_enabled": False} if sys.argv[1] == "without_script" else {}
        sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](Visit(browser, given, **options))))
        browser.close()


if __name__ == "__main__":
    main()
