"""The size in pixels at which images and their targets are sent to a backend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from editloupe.data.images import ImagePolicy
from editloupe.tasks import Task
from editloupe.values import Json, Sample

SMALLEST_TARGET_PX = 16.0
"""Shorter side in px. A smaller target is at most one patch of today's vision encoders (14 or 16 px)."""


@dataclass(frozen=True, kw_only=True)
class SentTarget:
    """The box of a target in one image, of which only the size counts."""

    name: str
    role: str
    """"source" or "edited"."""
    width: float
    """In px of the image, as its height."""
    height: float
    sent_width: float
    """In px as sent, as its height."""
    sent_height: float

    @property
    def small(self) -> bool:
        """Whether the shorter side is under SMALLEST_TARGET_PX as sent."""
        return min(self.sent_width, self.sent_height) < SMALLEST_TARGET_PX

    def to_json(self) -> dict[str, Json]:
        sizes = (self.width, self.height), (self.sent_width, self.sent_height)
        px, sent = ([round(side, 1) for side in sides] for sides in sizes)
        return {"name": self.name, "image": self.role, "px": px, "sent_px": sent}


def sent_targets(sample: Sample, policy: ImagePolicy) -> list[SentTarget]:
    """Return every target of a sample that has a box, once for each image that is sent."""
    found = []
    for number, target in enumerate(sample.targets, 1):
        for role, image in (("source", sample.source), ("edited", sample.edited)):
            box = target.boxes.get(role)  # type: ignore[call-overload]
            if box is not None and image is not None:
                width, height = policy.size(image.width, image.height)
                sent = {
                    "sent_width": box.width * width / image.width,
                    "sent_height": box.height * height / image.height,
                }
                name = target.name or f"target {number}"
                found.append(SentTarget(name=name, role=role, width=box.width, height=box.height, **sent))
    return found


def shown_whole(task: Task) -> bool:
    """Return whether a task shows images, all of them whole. A crop of a small target is enlarged."""
    return bool(task.views) and all(view.op == "whole" for view in task.views)


def small_targets_message(samples: Iterable[Sample], policy: ImagePolicy) -> str | None:
    """Return a sentence for users if targets are sent so small that a model may not see them, else None."""
    by_sample = [sent_targets(sample, policy) for sample in samples]
    asked = sum(bool(targets) for targets in by_sample)
    small = sum(any(t.small for t in targets) for targets in by_sample)
    if not small:
        return None
    return (
        f"In {small} of {asked} samples with boxes a target is under {SMALLEST_TARGET_PX:.0f} px on its shorter side as "
        f"it is sent ({policy}): without tools that enlarge, a model may not see it."
    )
