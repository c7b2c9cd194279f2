"""What UnicBench calls its languages, tasks and metrics, and its reasoning points."""

from __future__ import annotations

from typing import Final

from editloupe.values import Json

LANGUAGES: Final = ("en", "cn")
"""As the data, its folders and the result files call them."""

REASONING: Final = "Reasoning Editing"
"""The task whose rows have reasoning points, and are asked Reasoning Accuracy."""
TASKS: Final = ("Attribute Editing", "Object Editing", "Scene Editing", REASONING)
"""In the order of the paper's tables."""

REASONING_ACCURACY: Final = "reasoning_accuracy"
OVERALL: Final = "overall"
"""Id of the geometric mean of the metrics that apply to a sample."""


def points_in(value: Json) -> tuple[str, ...]:
    """Return the reasoning points that a column holds; () where there are none, or not as texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(point, str) and point.strip() for point in value):
        return ()
    return tuple(map(str, value))
