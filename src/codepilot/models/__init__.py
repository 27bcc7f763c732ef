"""Chat models behind one protocol. A provider's SDK is imported when one of its models is first called."""

from codepilot.models.choose import KEYS, configured_models, make_model, plain_name, price_of, settled, usual_model
from codepilot.models.connection import Retry
from codepilot.models.fallback import FallbackModel
from codepilot.models.prices import BYTES_PER_TOKEN, estimated, prompt_tokens
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
    steady,
)
from codepilot.models.scripted import Exchange, ReplayModel, ScriptedModel, exchanges
from codepilot.models.vectors import Vector, Vectors, cosine

__all__ = [
    "BYTES_PER_TOKEN",
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
    "Vector",
    "Vectors",
    "cancelled",
    "configured_models",
    "cosine",
    "estimated",
    "exchanges",
    "fingerprint",
    "ignore_text",
    "make_model",
    "never",
    "plain_name",
    "price_of",
    "prompt_tokens",
    "settled",
    "steady",
    "usual_model",
]
