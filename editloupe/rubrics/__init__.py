"""Rubrics as data: what is asked about an edit, and which labels with which values may be given."""

from editloupe.rubrics.model import (
    Criterion,
    Level,
    Rubric,
    Source,
    builtin_rubrics,
    load_rubric,
    rubric_schema,
    schema_text,
)

__all__ = [
    "Criterion",
    "Level",
    "Rubric",
    "Source",
    "builtin_rubrics",
    "load_rubric",
    "rubric_schema",
    "schema_text",
]
