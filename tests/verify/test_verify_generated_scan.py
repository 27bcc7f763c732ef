"""What is found in generated programs before they run."""

from __future__ import annotations

import time

import pytest

from codepilot.verify import scan_program


def kinds(text: str, path: str = "main.py", language: str = "python") -> set[tuple[str, str]]:
    return {(sign.kind, sign.subject) for sign in scan_program({path: text.encode()}, language)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import json, pathlib, sqlite3", set()),
        ("import os", {("blocked", "import os")}),
        ("from os import environ, path", set()),
        ("from os.path import join", set()),
        ("from os import kill", {("blocked", "import os")}),
        ("import pickle", {("blocked", "import pickle")}),
        ("eval('1')", {("blocked", "eval()")}),
        ("def eval(x): return x\neval('1')", set()),
        ("import re\nre.compile('x')", set()),
        ("model.eval()", set()),
        ("__import__('json')", {("blocked", "__import__()")}),
        ("import importlib\nimportlib.import_module('json')", {("blocked", "importlib.import_module()")}),
        ("open('data.json')\nopen('/tmp/x')", set()),
        ("open('/etc/passwd')", {("blocked", "open('/etc/passwd')")}),
        ("open('../x')", {("blocked", "open('../x')")}),
        ("import subprocess", {("command", "subprocess")}),
        ("import socket", {("network", "socket")}),
        ("from http.server import HTTPServer", set()),
        ("import http.client\nhttp.client.HTTPConnection('127.0.0.1', 80)", set()),
        ("import urllib.request as u\nu.urlopen('https://api.example.com/x')", {("network", "urllib")}),
        ("from urllib.parse import quote", set()),
        ("import requests", {("network", "requests"), ("install", "requests")}),
        ("import flask", {("install", "flask")}),
        ("import pytest\nfrom hypothesis import given", set()),
        ("this is no python", set()),
    ],
)
def test_python_is_read(text: str, found: set[tuple[str, str]]) -> None:
    assert kinds(text) == found


def test_modules_of_the_program_are_its_own() -> None:
    files = {"app.py": b"import store\nfrom helpers.text import short", "store.py": b"", "helpers/text.py": b""}
    assert scan_program(files, "python") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import { test } from 'node:test';\nimport './slug.js';", set()),
        ("const fs = require('fs'); // eval('x')", set()),
        ("eval('1')", {("blocked", "eval()")}),
        ("new Function('return 1')()", {("blocked", "new Function()")}),
        ("import { exec } from 'node:child_process';", {("command", "child_process")}),
        ("const x = await fetch('https://api.example.com/');", {("network", "fetch")}),
        ("const x = await fetch(`http://127.0.0.1:${port}/`);", set()),
        ("import express from 'express';", {("install", "express")}),
        ("import { parse } from '@scope/kit/deep.js';", {("install", "@scope/kit")}),
        ("import x from '/etc/x.js';", {("blocked", "/etc/x.js")}),
        ("/* eval('1') */ const files = 'src/*'; // eval('2')\neval('3')", {("blocked", "eval()")}),
    ],
)
def test_node_is_read(text: str, found: set[tuple[str, str]]) -> None:
    assert kinds(text, "main.mjs", "node") == found


def test_java_is_read() -> None:
    text = 'class A { void run() throws Exception { new ProcessBuilder("ls").start(); System.load("x"); } }'
    assert kinds(text, "src/main/java/A.java", "java") == {("command", "process"), ("blocked", "native code")}


@pytest.mark.parametrize("text", ["/*a" * 100_000, "eval(\n" * 20_000])
def test_a_script_of_any_size_is_read_in_time(text: str) -> None:
    began = time.thread_time()
    assert len(kinds(text, "main.mjs", "node")) == text.startswith("eval")
    assert time.thread_time() - began < 15
