"""DICE's tables of detected areas: average precision (Tables 1 and 2), and which op was taken for which.

Average precision is over all images of all editors for which the data gives areas (rows `given`) and the detector's answer
is known (a value of `no_change`); the others are counted. The dimension `areas_given` of `no_change`, the number of areas
that the data gives, brings in images in which nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from editloupe.protocols.dice.differences import OPS
from editloupe.stats.detection import Boxes, Precision, matches, precision
from editloupe.stats.pivot import Rows, sentences
from editloupe.stats.table import Cell, Column, Row, Table, label_columns, words

if TYPE_CHECKING:
    import polars

Detector: TypeAlias = Literal["lmm", "localize", "given"]
DETECTORS: Final[Mapping[Detector, str]] = {
    "lmm": "a model's answer (detector=lmm)",
    "localize": "the regions that differ, found without a model (detector=localize)",
    "given": "those that the data gives (detector=given)",
}
"""Where the differences of a run are from, in words."""
MATCHED_AT: Final = 0.5
"""IoU from which on a detected difference is the given one, in the table of ops."""

_Figure: TypeAlias = tuple[str, Mapping[str, Any]]
"""Title, and the arguments of `Precision.ap`."""

_MISSED: Final = "missed"
_INVENTED: Final = "invented"
_AP: Final[tuple[_Figure, ...]] = (
    ("AP", {}),
    ("AP50", {"iou": 0.5}),
    ("AP75", {"iou": 0.75}),
    ("AP_M", {"area": "medium"}),
    ("AP_L", {"area": "large"}),
)
_BY_OP: Final[tuple[_Figure, ...]] = (
    ("AP_ADD", {"of": "ADD"}),
    ("AP_REM", {"of": "REMOVE"}),
    ("AP_EDIT", {"of": "EDIT"}),
)
_OF_COHERENCE: Final[tuple[_Figure, ...]] = (*_AP[:3], ("AP coherent", {"of": 1}), ("AP incoherent", {"of": 0}))
_COUNTED: Final = (
    *label_columns("Confidence"),
    *(Column(title=title, keys={"figure": "counts"}) for title in ("Images", "Differences", "Areas")),
)
_CONFIDENCE: Final = (
    "Confidence: by what the differences are sorted. none is another figure: all count alike, in the order of the run and "
    "of the detector."
)


def detection(frame: polars.DataFrame, *, detector: Detector, side: int | None = None) -> Table | None:
    """Return AP of detected boxes, without and with the op as their class (Table 1); None without given areas.

    frame: one judge's scores.   side: areas are those of images of side × side px; None for the source's own size.
    """
    images = _images(frame)
    if not images:
        return None
    known = [image for image in images.values() if image.judged]
    figures = [*(("agnostic", *figure) for figure in _AP), *(("aware", *figure) for figure in (*_AP, *_BY_OP))]

    def cells(boxes: Sequence[Boxes]) -> list[Cell]:
        found = {"agnostic": precision([one.without_classes() for one in boxes]), "aware": precision(boxes)}
        return [_ap(found[classes], more) for classes, _, more in figures]

    heads = [f"{title}, by op" if classes == "aware" and "of" not in more else title for classes, title, more in figures]
    size = "the source's own size" if side is None else f"{side}×{side} px"
    return Table(
        name="detection",
        title="Detection of differences",
        columns=(
            *_COUNTED,
            *(
                Column(title=head, keys={"classes": classes, "figure": title})
                for head, (classes, title, _) in zip(heads, figures, strict=True)
            ),
        ),
        rows=tuple(_lines([image.found for image in known], [image.boxes(side) for image in known], cells, len(images))),
        at_once=8,
        caption=sentences(
            "As in the paper's Table 1. Average precision × 100 of boxes, over IoU .50 to .95; 101 recalls and at most 100 "
            "differences an image, as COCO has it. By op: ADD, REMOVE and EDIT are classes, and AP is the mean of theirs.",
            f"AP_M and AP_L: areas from 32² to 96² px and larger ones, at {size}.",
            _CONFIDENCE,
            f"Differences are {DETECTORS[detector]}.",
            _left_out(len(images) - len(known), "the differences could not be detected"),
        ),
    )


def coherent_areas(frame: polars.DataFrame, *, detector: Detector, side: int | None = None) -> Table | None:
    """Return AP of detected boxes with coherence as their class (Table 2); None where the data tells no coherence.

    frame: one judge's scores.   side: as in `detection`.
    """
    images = [image for image in _images(frame).values() if image.truth_is_judged]
    if not any(image.truth for image in images):
        return None
    known = [image for image in images if image.judged and image.coherence_is_judged]

    def cells(boxes: Sequence[Boxes]) -> list[Cell]:
        found = precision(boxes)
        return [_ap(found, more) for _, more in _OF_COHERENCE]

    boxes = [image.coherence_boxes(side) for image in known]
    return Table(
        name="coherence-areas",
        title="Coherence of detected areas",
        columns=(*_COUNTED, *(Column(title=title, keys={"figure": title}) for title, _ in _OF_COHERENCE)),
        rows=tuple(_lines([image.coherence for image in known], boxes, cells, len(images))),
        at_once=8,
        caption=sentences(
            "As in the paper's Table 2. Average precision × 100 of boxes with two classes, coherent and not, "
            "on images of whose areas the data tells the coherence.",
            _CONFIDENCE,
            f"Differences are {DETECTORS[detector]}.",
            _left_out(len(images) - len(known), "a difference, or its coherence, could not be judged"),
            unasked(frame),
        ),
    )


def ops(frame: polars.DataFrame) -> Table | None:
    """Return which op a given difference was detected as, and what was missed or invented; None without given areas.

    frame: one judge's scores.
    """
    images = _images(frame)
    if not images:
        return None
    known = [image for image in images.values() if image.judged]
    sure = all(_sure(row) for image in known for row in image.found)
    counts: dict[tuple[str, str], int] = {}
    for image in known:
        boxes = image.boxes(None).without_classes()
        taken = matches(boxes if sure else boxes.without_confidences(), iou=MATCHED_AT)
        for row, place in zip(image.found, taken, strict=True):
            given = _INVENTED if place is None else image.truth[place]["op"]
            counts[given, row["op"]] = counts.get((given, row["op"]), 0) + 1
        for place in {*range(len(image.truth))} - {*taken}:
            given = image.truth[place]["op"]
            counts[given, _MISSED] = counts.get((given, _MISSED), 0) + 1
    return Table(
        name="ops",
        title="Ops: given in rows, detected in columns",
        columns=(*label_columns("Given"), *(Column(title=name, keys={"detected": name}) for name in (*OPS, _MISSED))),
        rows=tuple(
            Row(
                cells=(
                    words(given),
                    *(
                        Cell(value=counts.get((given, name), 0), name="count", strong=given == name)
                        for name in (*OPS, _MISSED)
                        if (given, name) != (_INVENTED, _MISSED)
                    ),
                    *((Cell(name=""),) if given == _INVENTED else ()),
                ),
                keys={"given": given},
            )
            for given in (*OPS, _INVENTED)
        ),
        caption=sentences(
            f"A detected difference is the given one that it overlaps most, from an IoU of {MATCHED_AT:g} on, whatever "
            f"the op. {'Surer ones' if sure else 'Earlier ones'} choose first.",
            _left_out(len(images) - len(known), "the differences could not be detected"),
        ),
    )


@dataclass(kw_only=True)
class _Image:
    """The rows of one sample for which the data gives areas."""

    truth: list[Mapping[str, Any]] = field(default_factory=list)
    found: list[Mapping[str, Any]] = field(default_factory=list)
    coherence: list[Mapping[str, Any]] = field(default_factory=list)
    judged: bool = False
    """Whether the detector's answer is known."""

    @property
    def truth_is_judged(self) -> bool:
        return all(row.get("coherent") is not None for row in self.truth)

    @property
    def coherence_is_judged(self) -> bool:
        return all(row["value"] is not None for row in self.coherence)

    def boxes(self, side: int | None) -> Boxes:
        """Return detected and given boxes in px, with the op as their class."""
        found, truth = ([row["op"] for row in rows] for rows in (self.found, self.truth))
        return _boxes(self.found, found, self.truth, truth, side)

    def coherence_boxes(self, side: int | None) -> Boxes:
        """Return judged and given boxes in px, with 1 for coherent and 0 for not as their class."""
        found = [int(row["value"]) for row in self.coherence]
        return _boxes(self.coherence, found, self.truth, [int(row["coherent"]) for row in self.truth], side)


def _images(frame: polars.DataFrame) -> dict[tuple[str, str], _Image]:
    """Return the samples for which the data gives areas, in the order of the frame."""
    rows = rows_of(frame, "no_change", "given", "detected", "coherence")
    wanted = {_key(row) for row in rows if row["metric"] == "given" or row.get("areas_given") is not None}
    images: dict[tuple[str, str], _Image] = {}
    for row in rows:
        if _key(row) not in wanted:
            continue
        image = images.setdefault(_key(row), _Image())
        if row["metric"] == "no_change":
            image.judged = row["value"] is not None
        else:
            {"given": image.truth, "detected": image.found, "coherence": image.coherence}[row["metric"]].append(row)
    return images


def _boxes(found: Rows, of_found: Sequence[Any], truth: Rows, of_truth: Sequence[Any], side: int | None) -> Boxes:
    """Return boxes in px. A confidence that is not known is NaN, for `_lines` to see."""

    def px(row: Mapping[str, Any]) -> tuple[float, ...]:
        width, height = (row["width"], row["height"]) if side is None else (side, side)
        return row["x0"] * width, row["y0"] * height, row["x1"] * width, row["y1"] * height

    sure = [row.get("confidence") for row in found]
    return Boxes(
        found=[px(row) for row in found],
        truth=[px(row) for row in truth],
        confidences=[math.nan if v is None else v for v in sure],
        found_classes=of_found,
        truth_classes=of_truth,
    )


def _lines(
    found: Sequence[Rows], boxes: Sequence[Boxes], cells: Callable[[Sequence[Boxes]], list[Cell]], asked: int
) -> list[Row]:
    """Return a line of figures by confidence, where there is one, and one without confidences.

    found: the rows of the detected boxes of each image.   asked: how many images there are.
    """
    rows = [row for one in found for row in one]
    lacking, areas = sum(not _sure(row) for row in rows), sum(len(one.truth) for one in boxes)
    counts = (
        Cell(value=f"{len(boxes)}/{asked}", name="", more={"judged": len(boxes), "asked": asked}),
        Cell(value=len(rows), name="differences"),
        Cell(value=areas, name="areas"),
    )
    lines = {"none": cells([one.without_confidences() for one in boxes])}
    if sources := list(dict.fromkeys(str(row.get("confidence_source") or "not named") for row in rows if _sure(row))):
        why = f"{lacking} of {len(rows)} differences have none" if lacking else "they have several sources"
        missing = [Cell(name="ap", why="" if place else why) for place in range(len(lines["none"]))]
        lines = {" and ".join(sources): missing if lacking or len(sources) > 1 else cells(boxes), **lines}
    return [Row(cells=(words(name), *counts, *own), keys={"confidence": name}) for name, own in lines.items()]


def _sure(row: Mapping[str, Any]) -> bool:
    return row.get("confidence") is not None


def _ap(found: Precision, more: Mapping[str, Any]) -> Cell:
    value = found.ap(**more)
    return Cell(
        value=None if value is None else 100 * value, name="ap", digits=1, why="no such area" if value is None else ""
    )


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


def rows_of(frame: polars.DataFrame, *metrics: str) -> list[dict[str, Any]]:
    """Return the rows of some metrics, in the order of the frame."""
    return frame.filter(frame["metric"].is_in(metrics)).to_dicts()


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["editor"] or "", row["sample"]
