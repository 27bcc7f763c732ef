"""The model gateway: programs inside the sandbox reach their models through it, without a key.

The server is in `gateway.server`, which is imported when one is opened.
"""

from codepilot.models.gateway.endpoint import Dialect, ModelEndpoint
from codepilot.models.gateway.meter import CallRefused, Meter, MeteredCall

__all__ = ["CallRefused", "Dialect", "Meter", "MeteredCall", "ModelEndpoint"]
