"""editloupe: agents that look closely at image edits.

    from editloupe import Judge, Sample

    sample = Sample.from_images("before.png", "after.png", "Make the red mug blue.")
    for finding in Judge("baseline").judge(sample):
        print(finding.metric, finding.label or finding.status)

Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from editloupe.version import VERSION

if TYPE_CHECKING:
    from editloupe.data.images import ImageStore
    from editloupe.data.samples import load_sample, load_samples
    from editloupe.errors import EditLoupeError
    from editloupe.figures.run import Run
    from editloupe.findings import Finding
    from editloupe.rubrics import Rubric
    from editloupe.runs.judge import Judge
    from editloupe.tools.function import tool
    from editloupe.values import Box, ImageRef, Sample, Target, Turn, View

__version__ = VERSION

_WHERE = {
    "editloupe.data.images": ("ImageStore",),
    # Where samples are made of images: `Sample.from_images` is entered there.
    "editloupe.data.samples": ("Sample", "load_sample", "load_samples"),
    "editloupe.errors": ("EditLoupeError",),
    "editloupe.findings": ("Finding",),
    "editloupe.figures.run": ("Run",),
    "editloupe.rubrics": ("Rubric",),
    "editloupe.runs.judge": ("Judge",),
    "editloupe.tools.function": ("tool",),
    "editloupe.values": ("Box", "ImageRef", "Target", "Turn", "View"),
}

__all__ = [
    "Box", "EditLoupeError", "Finding", "ImageRef", "ImageStore", "Judge", "Rubric", "Run", "Sample", "Target", "Turn",
    "View", "__version__", "load_sample", "load_samples", "tool",
]  # fmt: skip


def __getattr__(name: str) -> object:
    for module, names in _WHERE.items():
        if name in names:
            import_module("editloupe.values").opened(html=_notebook_html)
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'editloupe' has no attribute {name!r}")


def _notebook_html(kind: str, value: object) -> str:
    """Return how a finding, a trace or a run shows itself in a notebook."""
    html: str = getattr(import_module("editloupe.viewer.notebook"), f"{kind}_html")(value)
    return html


def __dir__() -> list[str]:
    return sorted(__all__)
