"""CLIP-I and CLIP-T with differences patched (paper, Table 4).

CLIP-I compares source and edited image, and areas are patched in both. CLIP-T compares the edited image and a caption of
the wanted edit, the data's column `target_caption`. The paper patches coherent differences for CLIP-I and incoherent ones
for CLIP-T; "none", "all" and "random" are its baselines. It tells neither the colour nor the random areas nor which CLIP.
Here:
- a patch has the mean colour of the source;
- random areas are the boxes of all differences, each moved to a random place; a seed from the sample decides;
- CLIP is the one that the run names, by default ViT-B/32.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, cast, get_args

from pydantic import AfterValidator

from editloupe.config import Words
from editloupe.protocols.base import Known, Options, missing_output
from editloupe.protocols.dice.differences import Difference
from editloupe.scores import NOT_JUDGED, Interval, Metric, Score
from editloupe.stats.pivot import Figure, grouped, mean, pivot, rows_of
from editloupe.stats.table import Table
from editloupe.tasks import About, Measure, Recipe
from editloupe.values import Box, ImageRef, Json, Sample, digest

if TYPE_CHECKING:
    import polars

Patch: TypeAlias = Literal["none", "coherent", "incoherent", "all", "random"]
"""Which areas are patched: none, those of coherent or of incoherent differences, of all, or random ones."""
PATCHES: Final[tuple[Patch, ...]] = get_args(Patch)
TARGET_CAPTION: Final = "target_caption"
"""The column with a caption of the wanted edit."""
CLIP_I: Final = "clip_i"
CLIP_T: Final = "clip_t"
_WORDS: Final[Mapping[Patch, str]] = {
    "none": "nothing patched",
    "coherent": "coherent areas patched",
    "incoherent": "incoherent areas patched",
    "all": "all areas patched",
    "random": "random areas patched",
}


def _patches(names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := next((name for name in names if name not in PATCHES), None):
        raise ValueError(f"expected patches out of {', '.join(PATCHES)}, found {unknown!r}")
    return tuple(dict.fromkeys(names))


class PatchOptions(Options):
    """The option of patched CLIP, from which a protocol's own derive."""

    patch: Annotated[Words, AfterValidator(_patches)] = ()
    """Comma-separated, for CLIP-I and CLIP-T: none, coherent, incoherent, all, random. Default: CLIP is not measured."""


@dataclass(frozen=True, kw_only=True)
class Areas:
    """What is known of the differences of one sample."""

    differences: Sequence[Difference] | None = None
    """None where they are not known, or not yet."""
    coherent: Sequence[bool] | None = None
    """One for each difference; None where that of one is not known, or not yet."""
    detection: tuple[str, ...] = ()
    """Task ids that the differences rest on."""
    coherence: tuple[str, ...] = ()
    """Task ids that their coherence rests on."""
    missing: tuple[str, str] | None = None
    """Status and reason that left one of the two unknown; None while nobody has failed."""


def patch_metrics(options: PatchOptions) -> list[Metric]:
    """Return the metrics that `score_patches` reports."""
    return [
        Metric(
            id=f"{measure}_{patch}",
            name=f"{title}, {_WORDS[patch]}",
            short=f"{title} ({patch})",
            domain=Interval(low=-1, high=1),
            source="Table 4",
        )
        for measure, title in ((CLIP_I, "CLIP-I"), (CLIP_T, "CLIP-T"))
        for patch in _chosen(options)
    ]


def plan_patches(protocol: str, sample: Sample, areas: Areas, options: PatchOptions) -> Iterator[Measure]:
    """Return the measures whose areas are known. CLIP-T needs the data's column `target_caption`."""
    blocked, caption = missing_output(sample), target_caption(sample)
    for patch in _chosen(options):
        boxes = boxes_of(patch, sample, areas)
        if boxes is None:
            continue
        source = _picture("source", sample.source, boxes, sample.source)
        edited = () if sample.edited is None else (_picture("edited", sample.edited, boxes, sample.source),)
        kinds: list[tuple[str, str, dict[str, Json], tuple[Recipe, ...]]] = [
            (CLIP_I, "clip", {"mask": "none"}, (source, *edited))
        ]
        if caption is not None:
            kinds.append((CLIP_T, "clip_text_similarity", {"text": caption}, edited))
        for kind, measure, args, views in kinds:
            yield Measure(
                protocol=protocol,
                metric=f"{kind}_{patch}",
                about=About.of(sample),
                measure=measure,
                args=args,
                views=views,
                rests_on=_rests_on(patch, areas),
                blocked=blocked,
            )


def score_patches(
    sample: Sample,
    known: Known,
    areas: Areas,
    options: PatchOptions,
    dims: Mapping[str, str | int | float | None] | None = None,
) -> Iterator[Score]:
    """Return the cosines, and why others are missing: the measure's own status, or that of differences and coherence.

    A sample without a target caption has no score of CLIP-T.
    """
    for kind in (CLIP_I, CLIP_T) if target_caption(sample) is not None else (CLIP_I,):
        for patch in _chosen(options):
            finding = known.finding(f"{kind}_{patch}", sample)
            value = None if finding is None or finding.answer is None else finding.answer.value
            status: tuple[str, str] = (NOT_JUDGED, "")
            if finding is not None:
                status = finding.status, finding.reason
            elif patch != "none" and boxes_of(patch, sample, areas) is None and areas.missing is not None:
                status = areas.missing
            yield Score(
                **vars(About.of(sample)),
                metric=f"{kind}_{patch}",
                value=value,
                missing=None if value is not None else status[0],
                reason="" if value is not None else status[1],
                findings=(*(() if finding is None else (finding.task_id,)), *_rests_on(patch, areas)),
                dims=dims or {},
            )


def patched(frame: polars.DataFrame) -> Table | None:
    """Return the means of CLIP-I and CLIP-T by editor and patch; None where CLIP was not measured.

    frame: one judge's scores.
    """
    titles = {f"{kind}_{patch}": f"{title}, {patch}" for kind, title in ((CLIP_I, "CLIP-I"), (CLIP_T, "CLIP-T"))
              for patch in PATCHES}  # fmt: skip
    rows = rows_of(frame, *titles)
    there = {row["metric"] for row in rows}
    return pivot(
        "clip",
        "CLIP with patched areas",
        grouped(rows, "editor"),
        [
            Figure(title, partial(mean, digits=4, interval_digits=4), {"metric": id_}, {"metric": id_})
            for id_, title in titles.items()
            if id_ in there
        ],
        caption=(
            "Means of (judged/asked), with 95 % intervals, resampled by source image.",
            "CLIP-I: source and edited image, areas patched in both. CLIP-T: edited image and target caption.",
            "How they go with people's ratings (the paper's Table 4): editloupe compare with --pair.",
        ),
    )


def boxes_of(patch: Patch, sample: Sample, areas: Areas) -> list[Box] | None:
    """Return what is patched, in fractions of the sides; None where it is not known.

    Raises ValueError for another number of coherences than of differences.
    """
    if patch == "none":
        return []
    if areas.differences is None:
        return None
    boxes = [one.box for one in areas.differences]
    if patch == "all":
        return boxes
    if patch == "random":
        return _moved(boxes, sample)
    if areas.coherent is None:
        return None
    wanted = patch == "coherent"
    return [box for box, coherent in zip(boxes, areas.coherent, strict=True) if coherent == wanted]


def target_caption(sample: Sample) -> str | None:
    """Return the data's caption of the wanted edit; None where it has none."""
    found = sample.extra.get(TARGET_CAPTION)
    return " ".join(found.split()) or None if isinstance(found, str) else None


def _chosen(options: PatchOptions) -> list[Patch]:
    return [cast(Patch, patch) for patch in options.patch]


def _rests_on(patch: Patch, areas: Areas) -> tuple[str, ...]:
    if patch == "none":
        return ()
    return areas.detection if patch in ("all", "random") else (*areas.detection, *areas.coherence)


def _picture(alias: str, image: ImageRef, boxes: Sequence[Box], source: ImageRef) -> Recipe:
    """Return the image with boxes, in fractions, painted in the mean colour of the source."""
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
