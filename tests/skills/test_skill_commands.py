from __future__ import annotations

import pytest

from codepilot.skills.commands import refusal


@pytest.mark.parametrize(
    "command",
    [
        "python -m pytest -q tests",
        "pytest",
        "git status",
        "git diff HEAD",
        "mvn -q test -Dtest=FooTest#bar",
        "./gradlew test",
        "npm test",
        "rg pattern src",
        "find . -name x.py",
    ],
)
def test_building_testing_and_looking_is_allowed(command: str) -> None:
    assert refusal(command.split()) == ("", "")


@pytest.mark.parametrize(
    "command",
    [
        "sh -c ls",
        "curl http://example.org",
        "sudo ls",
        "git push",
        "git",
        "git -c core.fsmonitor=x status",
        "git config user.name x",
        "git diff --ext-diff",
        "git grep -Oless x",
        "mvn deploy",
        "mvn release:perform",
        "./mvnw -s evil.xml test",
        "mvn -Dmaven.ext.class.path=x.jar test",
        "gradle -I init.gradle test",
        "./gradlew publishToMavenLocal",
        "npm publish",
        "python -m pip install x",
        "find . -exec rm {} +",
        "rg --pre sh x",
    ],
)
def test_publishing_reconfiguring_and_installing_is_refused(command: str) -> None:
    rule, why = refusal(command.split())
    assert rule.startswith("command.")
    assert why
