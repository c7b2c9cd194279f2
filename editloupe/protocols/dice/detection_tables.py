"""DICE's tables of detected areas: average precision (Tables 1 and 2), and which op was taken for which.

Average precision is over all images of all editors for which the data gives areas (rows `given`) and the detector's answer
is known (a value of `no_change`); the others are counted. The dimension `areas_given` of `no_change`, the number of areas
that the data gives, brings in images in which nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.protocols.dice.differences import DETECTORS, OPS, Detector
from editloupe.stats.detected import Average, SeenImage, confusion_table, precision_table
from editloupe.stats.pivot import Rows, grouped, rows_of, select, sentences
from editloupe.stats.table import Table

if TYPE_CHECKING:
    import polars

_ClassOf: TypeAlias = Callable[[Mapping[str, Any]], Hashable]
MATCHED_AT: Final = 0.5
"""IoU from which on a detected difference is the given one, in the table of ops."""

_AP: Final[Mapping[str, Mapping[str, Any]]] = {
    "AP": {}, "AP50": {"iou": 0.5}, "AP75": {"iou": 0.75}, "AP_M": {"area": "medium"}, "AP_L": {"area": "large"},
}  # fmt: skip
"""Title of a figure → arguments of `Precision.ap`."""
_DETECTION: Final = (
    *(Average(title=t, arguments=of, keys={"classes": "agnostic", "figure": t}, by_class=False) for t, of in _AP.items()),
    *(Average(title=f"{t}, by op", arguments=of, keys={"classes": "aware", "figure": t}) for t, of in _AP.items()),
    *(
        Average(title=f"AP_{short}", arguments={"of": op}, keys={"classes": "aware", "figure": f"AP_{short}"})
        for short, op in (("ADD", "ADD"), ("REM", "REMOVE"), ("EDIT", "EDIT"))
    ),
)
_COHERENCE: Final = tuple(
    Average(title=title, arguments=of, keys={"figure": title})
    for title, of in (*[*_AP.items()][:3], ("AP coherent", {"of": 1}), ("AP incoherent", {"of": 0}))
)
_CONFIDENCE: Final = (
    "Confidence: by what the differences are sorted. none is another figure: all count alike, in the order of the run and "
    "of the detector."
)


def detection(frame: polars.DataFrame, *, detector: Detector, side: int | None = None) -> Table | None:
    """Return AP of detected boxes, without and with the op as their class (Table 1); None without given areas.

    frame: one judge's scores.   side: areas are those of images of side × side px; None for the source's own size.
    """
    if not (images := _images(frame)):
        return None
    known = [image.by_op for image in images if image.judged]
    size = "the source's own size" if side is None else f"{side}×{side} px"
    caption = sentences(
        "As in the paper's Table 1. Average precision × 100 of boxes, over IoU .50 to .95; 101 recalls and at most 100 "
        "differences an image, as COCO has it. By op: ADD, REMOVE and EDIT are classes, and AP is the mean of theirs.",
        f"AP_M and AP_L: areas from 32² to 96² px and larger ones, at {size}.",
        _CONFIDENCE,
        f"Differences are {DETECTORS[detector]}.",
        _left_out(len(images) - len(known), "the differences could not be detected"),
    )
    called = "detection", "Detection of differences"
    return precision_table(*called, known, _DETECTION, side=side, asked=len(images), caption=caption)


def coherent_areas(frame: polars.DataFrame, *, detector: Detector, side: int | None = None) -> Table | None:
    """Return AP of detected boxes with coherence as their class (Table 2); None where the data tells no coherence.

    frame: one judge's scores.   side: as in `detection`.
    """
    images = [one for one in _images(frame) if all(row.get("coherent") is not None for row in one.of("given"))]
    if not any(image.of("given") for image in images):
        return None
    known = [
        image.by_coherence
        for image in images
        if image.judged and all(row["value"] is not None for row in image.of("coherence"))
    ]
    caption = sentences(
        "As in the paper's Table 2. Average precision × 100 of boxes with two classes, coherent and not, "
        "on images of whose areas the data tells the coherence.",
        _CONFIDENCE,
        f"Differences are {DETECTORS[detector]}.",
        _left_out(len(images) - len(known), "a difference, or its coherence, could not be judged"),
        unasked(frame),
    )
    called = "coherence-areas", "Coherence of detected areas"
    return precision_table(*called, known, _COHERENCE, side=side, asked=len(images), caption=caption)


def ops(frame: polars.DataFrame) -> Table | None:
    """Return which op a given difference was detected as, and what was missed or invented; None without given areas.

    frame: one judge's scores.
    """
    if not (images := _images(frame)):
        return None
    known = [image.by_op for image in images if image.judged]
    caption = sentences(
        f"A detected difference is the given one that it overlaps most, from an IoU of {MATCHED_AT:g} on, whatever "
        "the op. {first} choose first.",
        _left_out(len(images) - len(known), "the differences could not be detected"),
    )
    return confusion_table("ops", "Ops: given in rows, detected in columns", known, OPS, iou=MATCHED_AT, caption=caption)


@dataclass(frozen=True)
class _Image:
    """The rows of one sample for which the data gives areas."""

    rows: Rows

    def of(self, metric: str) -> Rows:
        return select(self.rows, {"metric": metric})

    @property
    def judged(self) -> bool:
        """Whether the detector's answer is known."""
        return any(row["value"] is not None for row in self.of("no_change"))

    @property
    def by_op(self) -> SeenImage:
        return self._seen("detected", lambda row: row["op"], lambda row: row["op"])

    @property
    def by_coherence(self) -> SeenImage:
        """1 for coherent and 0 for not are the classes."""
        return self._seen("coherence", lambda row: int(row["value"]), lambda row: int(row["coherent"]))

    def _seen(self, metric: str, found: _ClassOf, truth: _ClassOf) -> SeenImage:
        one, other = self.of(metric), self.of("given")
        return SeenImage(found=one, truth=other, found_classes=[*map(found, one)], truth_classes=[*map(truth, other)])


def _images(frame: polars.DataFrame) -> list[_Image]:
    """Return the samples for which the data gives areas, in the order of the frame."""
    return [
        _Image(rows)
        for rows in grouped(rows_of(frame, "no_change", "given", "detected", "coherence"), "editor", "sample").values()
        if any(row["metric"] == "given" or row.get("areas_given") is not None for row in rows)
    ]


def _left_out(count: int, why: str) -> str:
    return f"Left out: {count} {'image' if count == 1 else 'images'}; {why}." if count else ""


def unasked(frame: polars.DataFrame) -> str:
    """Return how many differences nobody was asked about, since max_differences left them out; "" for none.

    frame: one judge's scores. Rows `no_change` have the dimension `left_out`.
    """
    counts = [count for row in rows_of(frame, "no_change") if (count := row.get("left_out"))]
    if not counts:
        return ""
    images = f"{len(counts)} {'image' if len(counts) == 1 else 'images'}"
    return f"Not judged, by max_differences: {sum(counts)} of the differences, in {images}. They count for nothing here."
