"""A service as Python: `Client(url, token)` has the façade's methods and speaks to `codepilot serve`."""

from codepilot.client.client import Client

__all__ = ["Client"]
