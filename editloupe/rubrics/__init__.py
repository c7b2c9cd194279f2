"""Rubrics as data: what is asked about an edit, and which labels with which values may be given."""

from editloupe.rubrics.model import (
    Citation,
    Criterion,
    Level,
    Rubric,
    builtin_rubrics,
    load_rubric,
    rubric_schema,
    schema_text,
)

__all__ = ["Citation", "Criterion", "Level", "Rubric", "builtin_rubrics", "load_rubric", "rubric_schema", "schema_text"]
