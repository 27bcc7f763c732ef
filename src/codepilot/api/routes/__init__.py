"""The routes of the `/v1` API, one module for each thing that they are about."""

from codepilot.api.routes import (
    artifacts,
    bases,
    checkpoints,
    control,
    events,
    figures,
    health,
    landings,
    people,
    runs,
    session,
    tasks,
)

ROUTERS = (
    session.router,
    tasks.router,
    bases.router,
    events.router,
    runs.router,
    artifacts.router,
    checkpoints.router,
    control.router,
    people.router,
    figures.router,
    landings.router,
    health.router,
)
"""In this order: a fixed path comes before a pattern that would match it."""

__all__ = ["ROUTERS"]
