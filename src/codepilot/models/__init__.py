"""Chat models behind one protocol: scripted and replayed ones here, without any SDK."""

from codepilot.models.estimate import estimated, prompt_tokens
from codepilot.models.fallback import FallbackModel
from codepilot.models.protocol import (
    Hear,
    Message,
    Model,
    Reply,
    Stopped,
    Tool,
    ToolCall,
    cancelled,
    fingerprint,
    never,
    unheard,
)
from codepilot.models.replay import Exchange, ReplayModel, exchanges
from codepilot.models.scripted import ScriptedModel

__all__ = [
    "Exchange",
    "FallbackModel",
    "Hear",
    "Message",
    "Model",
    "ReplayModel",
    "Reply",
    "ScriptedModel",
    "Stopped",
    "Tool",
    "ToolCall",
    "cancelled",
    "estimated",
    "exchanges",
    "fingerprint",
    "never",
    "prompt_tokens",
    "unheard",
]
