"""Chat models behind one protocol: scripted and replayed ones here, without any SDK."""

from codepilot.models.fallback import FallbackModel
from codepilot.models.protocol import Message, Model, Reply, Tool, ToolCall, fingerprint
from codepilot.models.replay import Exchange, ReplayModel, exchanges
from codepilot.models.scripted import ScriptedModel

__all__ = [
    "Exchange",
    "FallbackModel",
    "Message",
    "Model",
    "ReplayModel",
    "Reply",
    "ScriptedModel",
    "Tool",
    "ToolCall",
    "exchanges",
    "fingerprint",
]
