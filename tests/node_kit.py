"""A Node.js package as a scripted model builds it: a slug function with one mistake, which it corrects."""

from __future__ import annotations

import json

from build_kit import result, written

REQUEST = "Build a module that turns titles into slugs for URLs"
PACKAGE = json.dumps({"name": "slugs", "version": "1.0.0", "type": "module", "scripts": {"test": "node --test"}})
SLUG = """/** A title as a part of a URL. */
export function slug(title) {
  if (typeof title !== "string") throw new TypeError("a title is a string");
  return title
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
}

export function unused() {
  return "never run";
}
"""
WRONG = SLUG.replace('    .replace(/^-+|-+$/g, "")', "")
TESTS = """import assert from "node:assert";
import { test } from "node:test";
import { slug } from "./slug.js";

test("words are joined", () => assert.equal(slug("Hello World"), "hello-world"));
test("the ends are clean", () => assert.equal(slug("  Hello!  "), "hello"));
test("other things are refused", () => assert.throws(() => slug(3), TypeError));
test("a slug of a slug is the same", () => {
  for (let seed = 1; seed < 200; seed++) {
    const codes = Array.from({ length: seed % 20 }, (_, at) => 32 + ((seed * 31 + at * 7) % 90));
    const title = String.fromCharCode(...codes);
    assert.equal(slug(slug(title)), slug(title));
  }
});
"""
README = "# Slugs\n\n`npm test` runs the tests.\n"
PLAN = result(
    nodes=[
        {"id": "slug", "title": "Turn a title into a slug"},
        {"id": "tests", "title": "Test it with generated titles", "role": "Tester", "depends_on": ["slug"]},
    ],
    approach="one pure function",
)
NODE_SCRIPT: tuple[str, ...] = (
    PLAN,
    written({"slug.js": WRONG, "package.json": PACKAGE, "README.md": README}),
    result(rationale="the function"),
    written({"slug.test.js": TESTS}),
    result(tests=["slug.test.js"], rationale="examples, errors and idempotence"),
    result(root_cause="hyphens are left at the ends", fix_hypothesis="strip them", confidence="high"),
    written({"slug.js": SLUG}),
    result(rationale="the ends are stripped"),
)
