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
from editloupe.data.boxes import read_quads, to_px
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.protocols.base import NoValue
from editloupe.scores import NOT_JUDGED
from editloupe.values import Box, Json, Sample, box_from_json, finite

Op: TypeAlias = Literal["ADD", "EDIT", "REMOVE"]
"""ADD: only the edited image has it.   REMOVE: only the source has it.   EDIT: both have it, and it looks different."""
OPS: Final[tuple[Op, ...]] = get_args(Op)

ConfidenceSource: TypeAlias = Literal["logprob", "detector", "asked"]
"""logprob: p(op) / Σ p(ops) at the op's token.   detector: the detector's own score.   asked: the model's own words."""

Detector: TypeAlias = Literal["lmm", "localize", "given"]
"""A model, the regions of pixels that differ, or the data's own."""

DIFFERENCES: Final = "differences"
"""The question, the list in its answer, and the column with given ones."""
_ROUNDING: Final = 0.005
"""By how much a box may reach beyond the image, where it is cut."""


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


@dataclass(frozen=True, kw_only=True)
class JudgedDifference:
    """One difference and what is known of it."""

    number: int
    """From 1, in the detector's order."""
    difference: Difference
    coherent: bool | None = None
    status: str | None = NOT_JUDGED
    """Why `coherent` is missing; None where it is not."""
    reason: str = ""
    findings: tuple[str, ...] = ()
    """Task ids that the verdict rests on."""
    left_out: bool = False
    """Whether it is one too many for max_differences."""

    @property
    def part(self) -> str:
        return f"difference {self.number}"

    @property
    def said(self) -> str:
        """The verdict in a word, or its status in brackets."""
        return {True: "coherent", False: "incoherent", None: f"[{self.status}]"}[self.coherent]


@dataclass(frozen=True, kw_only=True)
class SampleDifferences:
    """What is known of the differences of one sample."""

    detection: Finding | None = None
    """None while the detector has not ended."""
    differences: tuple[JudgedDifference, ...] | None = None
    """In the detector's order, those that are left out too; None where they are not known."""
    source: ConfidenceSource | None = None
    """Where the confidences come from."""

    @property
    def asked(self) -> tuple[JudgedDifference, ...]:
        """Those that are judged."""
        return tuple(one for one in self.differences or () if not one.left_out)

    @property
    def failed(self) -> JudgedDifference | None:
        """The first of which it is not known whether it was asked for."""
        return next((one for one in self.asked if one.coherent is None), None)

    @property
    def missing(self) -> NoValue:
        """What leaves the differences, or the coherence of one, unknown."""
        if self.differences is not None and self.failed is not None:
            return NoValue(str(self.failed.status), self.failed.reason)
        none = NoValue.of(self.detection)
        return NoValue("input_error", none.reason) if none.status == "ok" else none

    @property
    def detection_id(self) -> tuple[str, ...]:
        return () if self.detection is None else (self.detection.task_id,)

    @property
    def coherence_ids(self) -> tuple[str, ...]:
        return tuple(id_ for one in self.asked for id_ in one.findings)


def detected(finding: Finding) -> Detected | None:
    """Return what a finding on the differences holds; None for one without such an answer."""
    data = finding.answer.data if isinstance(finding.answer, Record) else None
    listed = data.get(DIFFERENCES) if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(listed, list | tuple):
        return None
    try:
        return Detected(differences=tuple(map(_difference, listed)), source=cast(Any, data.get("confidence_source")))
    except (KeyError, TypeError, ValueError):
        return None


def record(differences: Sequence[Difference]) -> Record:
    """Return the record of differences that the data gives. What has a confidence there is a detector's."""
    listed: list[Json] = []
    for one in differences:
        item: dict[str, Json] = {"op": one.op, "object": one.object, "box": [round(v * 1000, 3) for v in one.box]}
        listed.append(item if one.confidence is None else {**item, "confidence": one.confidence})
    source = "detector" if any(one.confidence is not None for one in differences) else None
    return Record(data={DIFFERENCES: listed, "confidence_source": source})


def given(sample: Sample) -> list[Difference] | None:
    """Return the differences that the data gives for a sample; None where its column `differences` is not there.

    An item is an object with `op`, `box` (fractions of the sides) and, as far as they are known, `object` and `coherent`
    (true or false). One with a `confidence` (0 to 1) is a detector's, and no truth.
    Raises DataError for what cannot be read.
    """
    listed = sample.extra.get(DIFFERENCES)
    if listed is None:
        return None
    where = f"sample {sample.key!r}: column {DIFFERENCES!r}"
    if not isinstance(listed, list | tuple):
        raise DataError(f"{where}: expected a list of objects with op and box, found a {type(listed).__name__}")
    return [_given(item, f"{where}, item {number}") for number, item in enumerate(listed, start=1)]


def _given(item: Json, where: str) -> Difference:
    if not isinstance(item, Mapping):
        raise DataError(f"{where}: expected an object with op and box, found {item!r}")
    op, name, coherent = str(item.get("op", "")).strip().upper(), item.get("object"), item.get("coherent")
    if op not in OPS:
        raise DataError(f"{where}: expected op as one of {', '.join(OPS)}, found {item.get('op')!r}")
    if coherent is not None and not isinstance(coherent, bool):
        raise DataError(f"{where}: expected coherent as true or false, found {coherent!r}")
    confidence = finite(item.get("confidence"))
    if "confidence" in item and (confidence is None or not 0 <= confidence <= 1):
        raise DataError(
            f"{where}: expected a detector's confidence from 0 to 1, or no such field for what a person gave, found "
            f"{item['confidence']!r}"
        )
    try:
        quads = read_quads(item.get("box"))
        if len(quads) != 1 or not all(-_ROUNDING <= v <= 1 + _ROUNDING for v in quads[0]):
            raise ValueError(f"found {item.get('box')!r}")
        box = to_px(quads[0], "unit", width=1, height=1).clipped(width=1, height=1)
    except ValueError as error:
        raise DataError(f"{where}: expected a box [x0, y0, x1, y1] in fractions, 0 to 1, of the sides: {error}") from error
    object_ = "" if name is None else " ".join(str(name).split())
    return Difference(op=op, object=object_, box=box, confidence=confidence, coherent=coherent)


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
