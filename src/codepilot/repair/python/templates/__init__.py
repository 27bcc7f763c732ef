"""Template-based repair (TBar): the templates, one family a file. A template generates edits of one node."""

from codepilot.repair.python.templates import (
    absence,
    calls,
    conditions,
    documented,
    exceptions,
    guards,
    names,
    operators,
    sharing,
    statements,
    symmetry,
    values,
)
from codepilot.repair.python.templates.template import Template

TEMPLATES: tuple[Template, ...] = (
    *operators.FAMILY,
    *values.FAMILY,
    *names.FAMILY,
    *conditions.FAMILY,
    *calls.FAMILY,
    *absence.FAMILY,
    *statements.FAMILY,
    *guards.FAMILY,
    *exceptions.FAMILY,
    *sharing.FAMILY,
    *symmetry.FAMILY,
    *documented.FAMILY,
)

__all__ = ["TEMPLATES", "Template"]
