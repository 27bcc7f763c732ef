"""Fixtures of the engine's tests."""

from engine_kit import checkout, runtime

__all__ = ["checkout", "runtime"]
