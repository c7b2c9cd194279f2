"""Rubrics as data, and the reading of a judge's answer against one."""

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
from editloupe.rubrics.parse import CANNOT_JUDGE, fold, parse_label

__all__ = [
    "CANNOT_JUDGE",
    "Criterion",
    "Level",
    "Rubric",
    "Source",
    "builtin_rubrics",
    "fold",
    "load_rubric",
    "parse_label",
    "rubric_schema",
    "schema_text",
]
