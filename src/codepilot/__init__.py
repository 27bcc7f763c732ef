"""CodePilot: coding agents whose changes are proved."""

__version__ = "0.1.0"
