"""CLIP-I and CLIP-T with differences patched (paper, Table 4).

CLIP-I compares source and edited image, and areas are patched in both. CLIP-T compares the edited image and a caption of
the wanted edit, the data's column `target_caption`. The paper patches coherent differences for CLIP-I and incoherent ones
for CLIP-T; "none", "all" and "random" are its baselines. It tells neither the color nor the random areas nor which CLIP.
Here:
- a patch has the mean color of the source;
- random areas are the boxes of all differences, each moved to a random place; a seed from the sample decides;
- CLIP is the one that the run names, by default ViT-B/32.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from editloupe.protocols.base import Known, NoValue, missing_output, score_of
from editloupe.protocols.dice.differences import SampleDifferences
from editloupe.scores import Interval, Metric, Score
from editloupe.tasks import About, Measure, Recipe
from editloupe.values import Box, ImageRef, Json, Sample, digest

PATCHES: Final[Mapping[str, str]] = {
    "none": "nothing patched",
    "coherent": "coherent areas patched",
    "incoherent": "incoherent areas patched",
    "all": "all areas patched",
    "random": "random areas patched",
}
"""Which areas are patched, in words."""
TARGET_CAPTION: Final = "target_caption"
"""The column with a caption of the wanted edit."""
_TITLES: Final = {"clip_i": "CLIP-I", "clip_t": "CLIP-T"}


def patch_metrics(patches: Sequence[str]) -> list[Metric]:
    """Return the metrics that `score_patches` reports."""
    return [
        Metric(
            id=f"{kind}_{patch}",
            name=f"{title}, {PATCHES[patch]}",
            short=f"{title} ({patch})",
            domain=Interval(low=-1, high=1),
            source="Table 4",
        )
        for kind, title in _TITLES.items()
        for patch in patches
    ]


def plan_patches(protocol: str, sample: Sample, listed: SampleDifferences, patches: Sequence[str]) -> Iterator[Measure]:
    """Return the measures whose areas are known. CLIP-T needs the data's column `target_caption`."""
    caption = _caption(sample)
    for patch in patches:
        boxes = _boxes(patch, sample, listed)
        if boxes is None:
            continue
        source = _picture("source", sample.source, boxes, sample.source)
        edited = () if sample.edited is None else (_picture("edited", sample.edited, boxes, sample.source),)
        shared: dict[str, Any] = {"protocol": protocol, "about": About.of(sample), "blocked": missing_output(sample)}
        shared["rests_on"] = _rests_on(patch, listed)
        yield Measure(**shared, metric=f"clip_i_{patch}", measure="clip", args={"mask": "none"}, views=(source, *edited))
        if caption is not None:
            args: dict[str, Json] = {"text": caption}
            yield Measure(**shared, metric=f"clip_t_{patch}", measure="clip_text_similarity", args=args, views=edited)


def score_patches(
    sample: Sample,
    known: Known,
    listed: SampleDifferences,
    patches: Sequence[str],
    dims: Mapping[str, str | int | float | None],
) -> Iterator[Score]:
    """Return the cosines, and why others are missing: the measure's own status, or that of differences and coherence.

    A sample without a target caption has no score of CLIP-T.
    """
    for kind in _TITLES if _caption(sample) is not None else ("clip_i",):
        for patch in patches:
            finding = known.finding(f"{kind}_{patch}", sample)
            value = None if finding is None or finding.answer is None else finding.answer.value
            unknown = finding is None and _boxes(patch, sample, listed) is None
            none = listed.missing if unknown else NoValue.of(finding)
            ids = (*(() if finding is None else (finding.task_id,)), *_rests_on(patch, listed))
            found = none if value is None else value
            yield score_of(f"{kind}_{patch}", sample, found, findings=ids, dims=dims)


def _boxes(patch: str, sample: Sample, listed: SampleDifferences) -> list[Box] | None:
    """Return what is patched, in fractions of the sides; None where it is not known."""
    if patch == "none":
        return []
    if listed.differences is None or (patch in ("coherent", "incoherent") and listed.failed is not None):
        return None
    wanted = {"coherent": (True,), "incoherent": (False,)}.get(patch, (True, False, None))
    boxes = [one.difference.box for one in listed.asked if one.coherent in wanted]
    return _moved(boxes, sample) if patch == "random" else boxes


def _caption(sample: Sample) -> str | None:
    """Return the data's caption of the wanted edit; None where it has none."""
    found = sample.extra.get(TARGET_CAPTION)
    return " ".join(found.split()) or None if isinstance(found, str) else None


def _rests_on(patch: str, listed: SampleDifferences) -> tuple[str, ...]:
    coherence = listed.coherence_ids if patch in ("coherent", "incoherent") else ()
    return () if patch == "none" else (*listed.detection_id, *coherence)


def _picture(alias: str, image: ImageRef, boxes: Sequence[Box], source: ImageRef) -> Recipe:
    """Return the image with boxes, in fractions, painted in the mean color of the source."""
    if not boxes:
        return Recipe(alias=alias, origin=image)
    px: list[Json] = [[*box.scaled(image.width, image.height)] for box in boxes]
    return Recipe(alias=alias, origin=image, op="fill", params={"boxes": px, "like": source.to_json()})


def _moved(boxes: Sequence[Box], sample: Sample) -> list[Box]:
    """Return boxes of the same sizes at random places, all within the image. The same sample gives the same places."""
    edited = None if sample.edited is None else sample.edited.sha256
    seed = digest({"source": sample.source.sha256, "edited": edited, "instruction": sample.instruction})
    draw = random.Random(int(seed[:16], 16))
    found = []
    for box in boxes:
        x0, y0 = ((1 - side) * draw.random() for side in (box.width, box.height))
        found.append(Box(x0, y0, x0 + box.width, y0 + box.height))
    return found
