"""What becomes of the images on their way to a backend: the size at which each is sent, and each target with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from editloupe.data.images import ImagePolicy
from editloupe.values import ImageRef, Json, Sample

SMALLEST_TARGET_PX = 16.0
"""Under so many px on its shorter side a target is at most one patch of today's vision encoders (14 or 16 px)."""


@dataclass(frozen=True, kw_only=True)
class SentTarget:
    """A target's box in one image, in px of that image, and as the backend gets it.

    role: "source" or "edited".   width, height: px of the image.   sent_width, sent_height: px as sent.
    """

    name: str
    role: str
    width: float
    height: float
    sent_width: float
    sent_height: float

    @property
    def small(self) -> bool:
        """Whether its shorter side is under SMALLEST_TARGET_PX as sent."""
        return min(self.sent_width, self.sent_height) < SMALLEST_TARGET_PX

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "image": self.role,
            "px": [round(self.width, 1), round(self.height, 1)],
            "sent_px": [round(self.sent_width, 1), round(self.sent_height, 1)],
        }


def sent_targets(sample: Sample, policy: ImagePolicy) -> list[SentTarget]:
    """Every target of a sample that has a box, in each image that is sent."""
    images: dict[str, ImageRef | None] = {"source": sample.source, "edited": sample.edited}
    found = []
    for number, target in enumerate(sample.targets, 1):
        for role, image in images.items():
            box = target.boxes.get(role)  # type: ignore[call-overload]
            if box is None or image is None:
                continue
            width, height = policy.size(image.width, image.height)
            found.append(
                SentTarget(
                    name=target.name or f"target {number}",
                    role=role,
                    width=box.width,
                    height=box.height,
                    sent_width=box.width * width / image.width,
                    sent_height=box.height * height / image.height,
                )
            )
    return found


def small_targets_told(samples: Iterable[Sample], policy: ImagePolicy) -> str | None:
    """One sentence where targets are sent so small that a model may not see them; None where none is."""
    by_sample = [sent_targets(sample, policy) for sample in samples]
    asked = sum(bool(targets) for targets in by_sample)
    small = sum(any(t.small for t in targets) for targets in by_sample)
    if not small:
        return None
    return (
        f"In {small} of {asked} samples with boxes a target is under {SMALLEST_TARGET_PX:.0f} px on its shorter side as "
        f"it is sent ({policy}): without tools that enlarge, a model may not see it."
    )
