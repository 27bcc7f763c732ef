"""The templates, one family a file. A template is a small generator from a node to what it would write there."""

from codepilot.repair.python.templates import (
    absence,
    calls,
    conditions,
    documented,
    exceptions,
    guards,
    names,
    operators,
    package,
    statements,
    symmetry,
    texts,
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
    *symmetry.FAMILY,
    *documented.FAMILY,
    *texts.FAMILY,
    *package.FAMILY,
)

__all__ = ["TEMPLATES", "Template"]
