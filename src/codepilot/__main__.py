"""`python -m codepilot` is the `codepilot` command."""

from codepilot.cli import main

main()
