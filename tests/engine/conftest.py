"""Fixtures of the engine's tests."""

from engine_kit import checkout, house

__all__ = ["checkout", "house"]
