"""One difference between two images, and the record in which a detector, or the data, lists them.

The record is a JSON object with the list `differences`, each with `op`, `object`, `box` (four numbers in thousandths) and,
where it is known, `confidence` (0 to 1). Beside the list stand `confidence_source` and `dropped`, the entries that could
not be read, each with `entry` and `why`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from editloupe.answers import Record
from editloupe.data.boxes import FORMATS, inside, read_quads, to_px
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.values import Box, Json, Sample, box_from_json, finite

Op: TypeAlias = Literal["ADD", "EDIT", "REMOVE"]
"""ADD: only the edited image has it.   REMOVE: only the source has it.   EDIT: both have it, and it looks different."""
OPS: Final[tuple[Op, ...]] = get_args(Op)

ConfidenceSource: TypeAlias = Literal["logprob", "detector", "asked"]
"""logprob: p(op) / Σ p(ops) at the op's token.   detector: the detector's own score.   asked: the model's own words."""

Detector: TypeAlias = Literal["lmm", "localize", "given"]
DETECTORS: Final[Mapping[Detector, str]] = {
    "lmm": "a model's answer (detector=lmm)",
    "localize": "the regions that differ, found without a model (detector=localize)",
    "given": "those that the data gives (detector=given)",
}
"""Where the differences of a run are from, in words."""

DIFFERENCES: Final = "differences"
"""The question, the list in its answer, and the column with given ones."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One object that differs (the paper's Eq. 3)."""

    op: Op
    object: str = ""
    """What differs, in words; "" for a detector without words."""
    box: Box
    """In fractions, 0 to 1, of width and height: the same place in both images."""
    confidence: float | None = None
    """0 to 1, higher is surer; None where it is not known."""
    coherent: bool | None = None
    """Whether it was asked for, as people say; None where they do not."""


@dataclass(frozen=True, kw_only=True)
class Detected:
    """What a detector found in one pair of images."""

    differences: tuple[Difference, ...]
    """In the detector's order; () where it says that nothing changed."""
    source: ConfidenceSource | None = None
    """Where the confidences come from; None where there are none."""
    dropped: tuple[tuple[str, str], ...] = ()
    """(entry, why) of what could not be read."""


def detected(finding: Finding) -> Detected | None:
    """Return what a finding on the differences holds; None for one without such an answer."""
    data = finding.answer.data if isinstance(finding.answer, Record) else None
    listed = data.get(DIFFERENCES) if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(listed, list | tuple):
        return None
    source = data.get("confidence_source")
    dropped = data.get("dropped")
    try:
        return Detected(
            differences=tuple(map(_difference, listed)),
            source=cast(ConfidenceSource, source) if source in get_args(ConfidenceSource) else None,
            dropped=tuple((str(one["entry"]), str(one["why"])) for one in cast(Any, dropped or ())),
        )
    except (KeyError, TypeError, ValueError):
        return None


def record(differences: Sequence[Difference], source: ConfidenceSource | None = None) -> Record:
    """Return the record of these differences."""
    listed: list[Json] = []
    for one in differences:
        box: list[Json] = [round(v * 1000, 3) for v in one.box]
        item: dict[str, Json] = {"op": one.op, "object": one.object, "box": box}
        listed.append(item if one.confidence is None else {**item, "confidence": one.confidence})
    return Record(data={DIFFERENCES: listed, "confidence_source": source})


def given(sample: Sample, bbox_format: str) -> list[Difference] | None:
    """Return the differences that the data gives for a sample; None where its column `differences` is not there.

    An item is an object with `op`, `box` and, as far as they are known, `object` and `coherent` (true or false). One with a
    `confidence` (0 to 1) is a detector's, and no truth.
    bbox_format: how boxes are written, one of `editloupe.data.boxes.FORMATS`. Pixels are those of the source.
    Raises DataError for what cannot be read.
    """
    listed = sample.extra.get(DIFFERENCES)
    if listed is None:
        return None
    where = f"sample {sample.key!r}: column {DIFFERENCES!r}"
    if not isinstance(listed, list | tuple):
        raise DataError(f"{where}: expected a list of objects with op and box, found a {type(listed).__name__}")
    return [_given(item, f"{where}, item {number}", sample, bbox_format) for number, item in enumerate(listed, start=1)]


def _given(item: Json, where: str, sample: Sample, bbox_format: str) -> Difference:
    if not isinstance(item, Mapping):
        raise DataError(f"{where}: expected an object with op and box, found {item!r}")
    op = str(item.get("op", "")).strip().upper()
    if op not in OPS:
        raise DataError(f"{where}: expected op as one of {', '.join(OPS)}, found {item.get('op')!r}")
    size = {"width": sample.source.width, "height": sample.source.height}
    try:
        quads = read_quads(item.get("box"))
        if len(quads) != 1:
            raise ValueError(f"expected one box, found {len(quads)}")
        if FORMATS[bbox_format][1] != "unit" and all(0 <= v <= 1 for v in quads[0].values):
            raise ValueError(f"{list(quads[0].values)} looks like fractions; given_boxes=unit or xywh_unit reads them")
        px = inside(to_px(quads[0], bbox_format, **size), **size)
    except ValueError as error:
        raise DataError(f"{where}: box as {bbox_format} ({', '.join(FORMATS)} are known): {error}") from error
    coherent = item.get("coherent")
    if coherent is not None and not isinstance(coherent, bool):
        raise DataError(f"{where}: expected coherent as true or false, found {coherent!r}")
    confidence = finite(item.get("confidence"))
    if "confidence" in item and (confidence is None or not 0 <= confidence <= 1):
        raise DataError(
            f"{where}: expected a detector's confidence from 0 to 1, or no such field for what a person gave, found "
            f"{item['confidence']!r}"
        )
    name = item.get("object")
    return Difference(
        op=op,
        object="" if name is None else " ".join(str(name).split()),
        box=Box(*px.to_unit(**size)),
        confidence=confidence,
        coherent=coherent,
    )


def _difference(item: Any) -> Difference:
    op, sure = str(item["op"]), item.get("confidence")
    if op not in OPS:
        raise ValueError(f"{op!r} is no op")
    return Difference(
        op=op,
        object=str(item.get("object") or ""),
        box=Box(*(v / 1000 for v in box_from_json(item["box"]))),
        confidence=None if sure is None else finite(sure),
    )
