"""What a person may answer, and under which name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from editloupe.answers import Answer, AnswerSpec, Choice, Label, Labels, Number, OneOf, Scale
from editloupe.data.human import ADJUDICATED, value_on
from editloupe.errors import ConfigError, DataError
from editloupe.findings import Finding
from editloupe.runs.people import FILE
from editloupe.scores import Metric
from editloupe.values import finite

MOST_NOTE: Final = 4_000
"""Characters of a note."""


def check_name(rater: str) -> None:
    """Raise ConfigError for what is no name of a rater."""
    if not rater.strip() or rater != rater.strip() or len(rater) > 80 or not rater.isprintable():
        raise ConfigError(f"rater {rater!r}: expected a name of 1 to 80 printable characters")
    if rater == ADJUDICATED:
        raise ConfigError(f"rater {rater!r}: this name is kept for labels of the data that settle a disagreement")


def options_of(spec: AnswerSpec) -> tuple[str, ...]:
    """Return the words of a menu; () for an answer that is none of a menu, and for numbers."""
    if isinstance(spec, Labels):
        return spec.choices()
    return spec.options if isinstance(spec, OneOf) else ()


def read_reply(spec: AnswerSpec, said: str) -> Answer:
    """Return what a person answers. Of a menu only the very words count. Raises DataError and ReplyError."""
    options = options_of(spec)
    if options and said not in options:
        raise DataError(f"answer: expected one of {', '.join(options)}; found {said!r}")
    if isinstance(spec, Scale) and not _is_number(said):
        raise DataError(f"answer: expected a number from {spec.low:g} to {spec.high:g}; found {said!r}")
    found: Answer = spec.parse(said)
    return found


def of_metric(finding: Finding, metrics: Mapping[str, Metric]) -> bool:
    """Return False for an answer to a question that is a metric too and has another scale; True for any other."""
    metric, answer = metrics.get(finding.metric), finding.answer
    if metric is None or answer is None:
        return True
    if metric.refuses(answer):
        return False
    if isinstance(answer, Choice):
        return value_on(metric, answer.name) is not None
    return isinstance(answer, Number) or (isinstance(answer, Label) and bool(metric.levels))


def writable(folder: Path) -> bool:
    """Return whether this process may write what people say into a run."""
    path = folder / FILE
    return os.access(folder, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.W_OK))


def _is_number(text: str) -> bool:
    try:
        return finite(float(text)) is not None
    except ValueError:
        return False
