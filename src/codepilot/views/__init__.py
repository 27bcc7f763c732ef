"""HTML pages. Everything that a run brings is untrusted: it is escaped, and a page loads nothing and runs nothing."""

from codepilot.views.page import bundle_page, content_policy

__all__ = ["bundle_page", "content_policy"]
