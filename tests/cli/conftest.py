"""Fixtures of the command's tests."""

from cli_kit import codepilot, finished, interrupted, queued, repaired, repo, shop

__all__ = ["codepilot", "finished", "interrupted", "queued", "repaired", "repo", "shop"]
