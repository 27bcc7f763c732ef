"""Fixtures of the command's tests."""

from cli_kit import codepilot, repo, shop

__all__ = ["codepilot", "repo", "shop"]
