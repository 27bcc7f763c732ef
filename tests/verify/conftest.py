"""What several files of tests of the verify room share."""

from verify_kit import make_lab

__all__ = ["make_lab"]
