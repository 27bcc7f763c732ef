"""The pages of the dashboard, one module for each."""

from codepilot.api.pages import (
    analytics,
    answer,
    board,
    checkpoints,
    docs,
    inbox,
    landing,
    live,
    login,
    new,
    review,
    run,
    tables,
)

ROUTERS = (
    login.router,
    docs.router,
    answer.router,
    analytics.router,
    board.router,
    new.router,
    inbox.router,
    review.router,
    checkpoints.router,
    live.router,
    landing.router,
    run.router,
    tables.router,
)

__all__ = ["ROUTERS"]
