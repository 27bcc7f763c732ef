"""Chat models behind one protocol. The SDKs of providers are imported no sooner than a model of theirs is asked."""

from codepilot.models.choose import KEYS, configured_models, make_model, settled, usual_model
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
from codepilot.models.retry import Retry
from codepilot.models.scripted import ScriptedModel

__all__ = [
    "KEYS",
    "Exchange",
    "FallbackModel",
    "Hear",
    "Message",
    "Model",
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
    "make_model",
    "never",
    "prompt_tokens",
    "settled",
    "unheard",
    "usual_model",
]
