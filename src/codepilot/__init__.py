"""CodePilot: coding agents whose changes are proved.

`CodePilot`, `Request` and `Settings` are the Python API; they are loaded when they are first used.
"""

TYPE_CHECKING = False  # not from typing, which would be half of the time of this import
if TYPE_CHECKING:
    from codepilot.engine import CodePilot, Request, Settings

__version__ = "0.1.0"
__all__ = ["CodePilot", "Request", "Settings", "__version__"]


def __getattr__(name: str) -> object:
    if name not in ("CodePilot", "Request", "Settings"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from codepilot import engine

    return getattr(engine, name)
