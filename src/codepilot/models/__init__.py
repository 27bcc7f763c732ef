"""Chat models behind one protocol. A provider's SDK is imported when one of its models is first called."""

from codepilot.models.choose import KEYS, configured_models, make_model, settled, usual_model
from codepilot.models.connection import Retry
from codepilot.models.fallback import FallbackModel
from codepilot.models.prices import estimated, prompt_tokens
from codepilot.models.protocol import (
    Message,
    Model,
    OnText,
    Reply,
    Stopped,
    Tool,
    ToolCall,
    cancelled,
    fingerprint,
    ignore_text,
    never,
)
from codepilot.models.scripted import Exchange, ReplayModel, ScriptedModel, exchanges

__all__ = [
    "KEYS",
    "Exchange",
    "FallbackModel",
    "Message",
    "Model",
    "OnText",
    "ReplayModel",
    "Reply",
    "Retry",
    "ScriptedModel",
    "Stopped",
    "Tool",
    "ToolCall",
    "cancelled",
    "configured_models",
    "estimated",
    "exchanges",
    "fingerprint",
    "ignore_text",
    "make_model",
    "never",
    "prompt_tokens",
    "settled",
    "usual_model",
]
