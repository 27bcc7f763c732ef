"""`python -m codepilot` is the `codepilot` command."""

import os
import sys

_HERE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - importing pathlib could already be too late
if not sys.flags.safe_path and not os.path.samefile(_HERE, sys.path[0] or "."):  # noqa: PTH121
    del sys.path[0]  # `-m` puts the current directory first, and a checkout may hold a module named like one of ours

from codepilot.cli import main  # noqa: E402

main()
