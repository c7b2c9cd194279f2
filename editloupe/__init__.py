"""editloupe: agents that look closely at image edits.

    from editloupe import Judge, load_sample

    sample = load_sample("before.png", "after.png", "Make the red mug blue.")
    for finding in Judge("baseline").judge(sample):
        print(finding.metric, finding.label or finding.status)

Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from editloupe.data.images import ImageStore
    from editloupe.data.samples import load_sample
    from editloupe.errors import EditLoupeError
    from editloupe.findings import Finding
    from editloupe.reports.run import Run
    from editloupe.rubrics.model import Rubric
    from editloupe.runs.judge import Judge
    from editloupe.values import Box, ImageRef, Sample, Target, Turn, View

__version__ = "0.2.0"

_WHERE = {
    "Box": "editloupe.values",
    "EditLoupeError": "editloupe.errors",
    "Finding": "editloupe.findings",
    "ImageRef": "editloupe.values",
    "ImageStore": "editloupe.data.images",
    "Judge": "editloupe.runs.judge",
    "Rubric": "editloupe.rubrics.model",
    "Run": "editloupe.reports.run",
    "Sample": "editloupe.values",
    "Target": "editloupe.values",
    "Turn": "editloupe.values",
    "View": "editloupe.values",
    "load_sample": "editloupe.data.samples",
}

__all__ = [
    "Box",
    "EditLoupeError",
    "Finding",
    "ImageRef",
    "ImageStore",
    "Judge",
    "Rubric",
    "Run",
    "Sample",
    "Target",
    "Turn",
    "View",
    "__version__",
    "load_sample",
]


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'editloupe' has no attribute {name!r}")
