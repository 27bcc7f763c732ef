"""The executor over HTTP: `run_service` serves the protocol to callers with a token. Needs the extra `service`."""

from codepilot.executor.service.server import run_service
from codepilot.executor.service.settings import ServiceSettings, is_loopback

__all__ = ["ServiceSettings", "is_loopback", "run_service"]
