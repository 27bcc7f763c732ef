"""What a parser tells of each language: symbols with their signatures and lines, names used, modules imported."""

from __future__ import annotations

import hashlib

import pytest

from codepilot.context import FileSymbols, map_repository

PYTHON = b"""
import os, a.b as c
from .near import thing, other as renamed
from . import sibling
from wide import *

LIMIT = 3


@decorated
class Account(Base):
    @property
    def balance(
        self, at: int = 1,
    ) -> int:
        def inner(): ...
        return compute(self.ledger.total, limit=LIMIT)


async def top(): await foo()
"""
JAVA = b"""package com.shop;
import com.shop.money.Price; import com.shop.stock.*;
@Entity(name = "basket") public class Basket<T> extends Box implements Bag {
  private int count;
  Basket(int count) { this.count = count; }
  @Override public int add(Item item, List<String> tags) throws Full { return helper(item).size(); }
  interface Visitor { void visit(Item item); }
  enum State { OPEN, PAID; boolean done() { return this == PAID; } }
  record Line(Item item, int amount) {}
}
"""
JAVASCRIPT = b"""
const fs = require('fs'); import load, { save } from "./lib/io.js"; export * from './more';
export const area = (width, height) => width * height;
export default class Shape extends Base { draw(canvas) { return this.#pen(canvas) } #pen(canvas) {} static make() {} }
function outer() { function hidden() {} return import('./late.js') }
module.exports.scale = function (by) { return outer(by) };
Shape.prototype.turn = function () {};
export function* walk() {}
export let total = 4;
"""
TYPESCRIPT = b"""
import type { Point } from '../point';
export interface Sized { size(deep: boolean): number; width: number }
export type Id = string | number;
export abstract class Node<T> extends Base implements Sized {
  constructor(private id: Id) { super() }
  abstract visit(): void;
  handle = (event: T) => { return event };
}
export enum Colour { Red, Green }
declare function over(text: string): void;
"""
TSX = b"""
import { Frame } from './frame';
export const Button: React.FC<Props> = ({ label }) => <Frame title={label}>{label}</Frame>;
"""


def parse(path: str, source: bytes) -> FileSymbols:
    name = hashlib.sha256(source).hexdigest()
    return map_repository({path: name}, {path: source}.get).files[path]


def reported(file: FileSymbols) -> list[tuple[str, str, int, int, str]]:
    return [(one.kind, one.qualified, one.line, one.end, one.signature) for one in file.symbols]


def test_python() -> None:
    file = parse("pkg/bank.py", PYTHON)
    assert reported(file) == [
        ("constant", "LIMIT", 7, 7, "LIMIT = 3"),
        ("class", "Account", 10, 17, "class Account(Base)"),
        ("method", "Account.balance", 12, 17, "def balance(self, at: int = 1) -> int"),
        ("function", "top", 20, 20, "async def top()"),
    ]
    assert file.imports == ("os", "a.b", ".near", ".near.thing", ".near.other", ".", ".sibling", "wide")
    assert {"compute", ".ledger", ".total", "Base", "decorated", "foo", "LIMIT"} <= file.references.keys()
    assert "limit" not in file.references, "the name of an argument is nobody's"
    assert file.uses("LIMIT") == (17,)
    assert file.lines == 20


def test_java() -> None:
    file = parse("src/com/shop/Basket.java", JAVA)
    assert reported(file) == [
        ("class", "Basket", 3, 10, "public class Basket<T> extends Box implements Bag"),
        ("method", "Basket.Basket", 5, 5, "Basket(int count)"),
        ("method", "Basket.add", 6, 6, "public int add(Item item, List<String> tags) throws Full"),
        ("interface", "Basket.Visitor", 7, 7, "interface Visitor"),
        ("method", "Basket.Visitor.visit", 7, 7, "void visit(Item item)"),
        ("enum", "Basket.State", 8, 8, "enum State"),
        ("method", "Basket.State.done", 8, 8, "boolean done()"),
        ("class", "Basket.Line", 9, 9, "record Line(Item item, int amount)"),
    ]
    assert file.imports == ("com.shop.money.Price", "com.shop.stock")
    assert {"Box", "Item", ".helper", ".size", "Full"} <= file.references.keys()


def test_javascript() -> None:
    file = parse("web/shape.js", JAVASCRIPT)
    assert reported(file) == [
        ("constant", "fs", 2, 2, "fs = require('fs')"),
        ("function", "area", 3, 3, "area = (width, height)"),
        ("class", "Shape", 4, 4, "class Shape extends Base"),
        ("method", "Shape.draw", 4, 4, "draw(canvas)"),
        ("method", "Shape.#pen", 4, 4, "#pen(canvas)"),
        ("method", "Shape.make", 4, 4, "static make()"),
        ("function", "outer", 5, 5, "function outer()"),
        ("function", "scale", 6, 6, "module.exports.scale = function (by)"),
        ("function", "turn", 7, 7, "Shape.prototype.turn = function ()"),
        ("function", "walk", 8, 8, "function* walk()"),
        ("constant", "total", 9, 9, "total = 4"),
    ]
    assert set(file.imports) == {"fs", "./lib/io.js", "./more", "./late.js"}


def test_typescript() -> None:
    file = parse("web/node.ts", TYPESCRIPT)
    assert reported(file) == [
        ("interface", "Sized", 3, 3, "interface Sized"),
        ("method", "Sized.size", 3, 3, "size(deep: boolean): number"),
        ("type", "Id", 4, 4, "type Id = string | number"),
        ("class", "Node", 5, 9, "abstract class Node<T> extends Base implements Sized"),
        ("method", "Node.constructor", 6, 6, "constructor(private id: Id)"),
        ("method", "Node.visit", 7, 7, "abstract visit(): void"),
        ("method", "Node.handle", 8, 8, "handle = (event: T)"),
        ("enum", "Colour", 10, 10, "enum Colour"),
        ("function", "over", 11, 11, "function over(text: string): void"),
    ]
    assert file.imports == ("../point",)


def test_tsx() -> None:
    file = parse("web/button.tsx", TSX)
    assert reported(file) == [("function", "Button", 3, 3, "Button: React.FC<Props> = ({ label })")]
    assert {"Frame", "Props"} <= file.references.keys()


@pytest.mark.parametrize("path", ["README.md", "data.json", "node_modules/x/index.js", "Makefile", ".py", "a/.js"])
def test_other_files_are_listed_and_not_parsed(path: str) -> None:
    found = map_repository({path: "0" * 64}, lambda _: pytest.fail("nobody needs this file"))
    assert found.files == {}
    assert set(found.hashes) == {path}


def test_a_source_with_errors_still_tells_what_can_be_read() -> None:
    file = parse("half.py", b"def whole(a):\n    return a\n\nclass Broken(\n\ndef after(b):\n    return b\n")
    assert "whole" in {symbol.name for symbol in file.symbols}
