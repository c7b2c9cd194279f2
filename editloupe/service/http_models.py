"""Requests and answers of the HTTP service: strict in, described out."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from editloupe.data.boxes import inside
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError, SampleError
from editloupe.scores import Metric, Score
from editloupe.service.paths import below
from editloupe.service.queue import Result
from editloupe.tasks import Status
from editloupe.values import Box, ImageRef, Json, Sample, Target, Turn, digest

TITLES: Final = {
    400: "Bad request",
    401: "Not authorised",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "The body came too slowly",
    413: "The body is too large",
    415: "The body is no JSON",
    421: "Another host is meant",
    422: "The request cannot be used",
    500: "The service failed",
    503: "Busy, or shutting down",
    504: "No verdict in time",
}
"""HTTP status of an error → what it means."""


class _In(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True)


class _Out(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, from_attributes=True)


class Inline(_In):
    """An image file in base64, or as a data URI."""

    base64: str = Field(min_length=1, json_schema_extra={"format": "image-base64"})


class OnServer(_In):
    """An image file on the server, below the folder that it was started with (--root)."""

    path: str = Field(min_length=1, max_length=4096)


Picture: TypeAlias = Inline | OnServer

Quad: TypeAlias = Annotated[
    list[Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]], Field(min_length=4, max_length=4)
]


class EditFields(_In):
    """What a request says of one edit beside its images."""

    instruction: str = Field(min_length=1, max_length=8000, pattern=r"\S")
    """What the editing model was asked to do."""
    id: str | None = Field(default=None, max_length=200)
    """Comes back with the verdict, and has no other effect."""
    boxes: list[Quad] = Field(default=[], max_length=64)
    """Targets in the source image: [x0, y0, x1, y1] in px."""
    edit_type: str | None = Field(default=None, max_length=200)
    """The benchmark's name for this kind of edit."""
    criteria: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(default=[], max_length=32)
    """The metrics to judge by, as ids or short names; empty for all of the service's."""
    repeat: int = Field(default=0, ge=0, le=9999)
    """The same edit with another number is judged again, independently."""


class Edit(EditFields):
    """One edit to be judged."""

    source: Picture
    """The image before the edit."""
    edited: Picture
    """The image after it."""
    reference: Picture | None = None
    """A right answer, where there is one."""


class Batch(_In):
    """Several edits; each gets a verdict or a problem of its own."""

    edits: list[Edit] = Field(min_length=1, max_length=256)


class Place(_Out):
    """A place in an input image."""

    image: str
    """The image's name in the prompt."""
    box: list[float]
    """[x0, y0, x1, y1] in px, x right, y down, the end exclusive."""


class FindingOut(_Out):
    """One question answered, or the status that says why it is not."""

    metric: str
    """Id of the metric, or of a question on which metrics rest."""
    turn: int
    """From 1; 0 for the edit as a whole."""
    part: str
    """For example "target 2"; "" for all of it."""
    role: str
    """Who answered: "judge", "measure", or a role of the protocol's own."""
    status: Status
    answer: str | None
    """Null unless status is ok."""
    label: str | None
    """The name of a label or an option; null for other answers."""
    value: float | None
    """The answer as a number in the metric's unit; null for an answer without one."""
    reason: str
    """The model's own words, or what went wrong."""
    evidence: list[Place]
    turns: int
    """Turns with tool calls."""
    seconds: float
    tokens: int
    reused: bool
    """The run folder held it before this request."""
    task: str
    """Id of the task."""
    trace: str | None
    """Path of the trace inside the run folder."""
    criterion: str = Field(deprecated=True)
    """The same as `metric`."""
    target: int | None = Field(deprecated=True)
    """The number in a `part` such as "target 2"; else null."""


class ScoreOut(_Out):
    """One number that the protocol makes of the findings, or why there is none."""

    metric: str
    turn: int
    part: str
    value: float | None
    """In the metric's unit."""
    label: str | None
    """The label behind the value, where there is one."""
    missing: str | None
    """The status that left the score without a value."""


class Reward(_Out):
    """The scores as one number to train on, or why there is none."""

    value: float | None
    """Mean of `scores`, 0 to 100, 100 the best; null if one of them is null."""
    why: str | None
    """Why there is no value."""
    scores: dict[str, float | None]
    """Metric → its mean score, 0 to 100, 100 the best; null if a score has no value or the metric no bounds."""


class Verdict(_Out):
    """One edit judged."""

    id: str | None
    """As the request has it."""
    sample: str
    """Its id in the run folder: editloupe show RUN SAMPLE."""
    judge: str
    """Id of the judge: equal for judges whose verdicts are comparable."""
    reward: Reward
    scores: list[ScoreOut]
    findings: list[FindingOut]
    warnings: list[str]


class Problem(_Out):
    """An error, as RFC 9457 has it."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str


class BatchItem(_Out):
    """Exactly one of the two."""

    verdict: Verdict | None = None
    problem: Problem | None = None


class BatchVerdicts(_Out):
    """In the order of the edits."""

    results: list[BatchItem]


class Health(_Out):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(_Out):
    """Who judges here, and how busy it is."""

    status: Literal["ready"] = "ready"
    backend: str | None
    """URI of the backend. Without the token that the service asks for, it is null, and `options` is empty."""
    judge: str
    """Id of the judge."""
    protocol: str
    options: dict[str, Any]
    """The protocol's options; a rubric, a prompt or another object by its name."""
    mode: str | None
    """The option `mode`; null if the protocol has none."""
    rubric: str | None
    """The option `rubric`; null if the protocol has none."""
    criteria: list[str]
    """Ids of the metrics that a request may name."""
    places: int
    """Edits that may be judged or wait at once."""
    taken: int
    """Edits that are judged or wait."""


def open_picture(picture: Picture, name: str, images: ImageStore, root: Path | None) -> ImageRef:
    """Return the image that a request names. Raises ImageError."""
    if isinstance(picture, OnServer):
        if root is None:
            raise ImageError(f"{name}: this service opens no files (it was started without --root); send the image itself")
        return images.add_file(below(root, picture.path))
    text = picture.base64
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"{name}: not base64 ({error}); expected the bytes of an image file") from error
    return images.add_bytes(data, name=name)


def sample_of(fields: EditFields, refs: Mapping[str, ImageRef]) -> Sample:
    """Return the edit as a sample. Its id is a digest of what a judge sees, so that equal edits are one.

    refs: source and edited, and reference if there is one. Raises SampleError for a box outside the image.
    """
    source, edited = refs["source"], refs["edited"]
    targets = []
    for number, quad in enumerate(fields.boxes, start=1):
        try:
            box = inside(Box(*quad), width=source.width, height=source.height)
        except ValueError as error:
            raise SampleError(f"boxes, number {number}: {error}") from error
        targets.append(Target(boxes={"source": box}))
    sample = Sample(
        id="",
        source=source,
        turns=(Turn(instruction=fields.instruction.strip(), edited=edited),),
        reference=refs.get("reference"),
        targets=tuple(targets),
        edit_type=fields.edit_type,
    )
    return replace(sample, id=sample.content[:20])


def finding_out(result: Result) -> FindingOut:
    """Return a finding as the answer shows it."""
    f = result.finding
    word, _, number = f.part.rpartition(" ")
    return FindingOut(
        metric=f.metric,
        turn=f.turn,
        part=f.part,
        role=f.role,
        status=f.status,
        answer=None if f.answer is None else _text(str(f.answer)),
        label=f.label,
        value=f.value,
        reason=_text(f.reason),
        evidence=[Place(image=e.image, box=list(e.box)) for e in f.evidence],
        turns=f.turns,
        seconds=round(f.seconds, 4),
        tokens=f.usage.total,
        reused=result.reused,
        task=f.task_id,
        trace=f.trace,
        criterion=f.metric,
        target=int(number) if word == "target" and number.isdecimal() else None,
    )


def reward_of(scores: Sequence[Score], metrics: Sequence[Metric]) -> Reward:
    """Return the mean over these metrics, 100 the best; no value, and the reasons, if a metric has none."""
    values: dict[str, float | None] = {}
    reasons = []
    for metric in metrics:
        found = [score for score in scores if score.metric == metric.id]
        reason = _no_reward(metric, found)
        if reason is None:
            mean = fmean(score.normalised for score in found if score.normalised is not None)
            values[metric.id] = 100 - mean if metric.better == "lower" else mean
        else:
            values[metric.id] = None
            reasons.append(f"{metric.id}: {reason}")
    numbers = [value for value in values.values() if value is not None]
    return Reward(value=None if reasons else fmean(numbers), why="; ".join(reasons) or None, scores=values)


def _no_reward(metric: Metric, scores: Sequence[Score]) -> str | None:
    """Return the reason for which a metric's scores make no reward; None if they do."""
    missing = dict.fromkeys(score.missing for score in scores if score.missing is not None)
    if missing:
        return ", ".join(missing)
    if metric.domain.bounds is None or metric.better is None:
        return f"a metric without {'bounds' if metric.better else 'a direction'} is no reward; name others in criteria"
    return None if scores else "the protocol gives no score"


def options_out(options: Mapping[str, Json]) -> dict[str, Json]:
    """Return options with a name, or a digest, in the place of each object, whose texts are nobody else's business."""
    return {
        name: value.get("id") or value.get("name") or digest(dict(value))[:16] if isinstance(value, Mapping) else value
        for name, value in options.items()
    }


def problem(status: int, detail: str) -> Problem:
    """Return an error as the answer shows it."""
    return Problem(title=TITLES.get(status, "Refused"), status=status, detail=_text(detail))


def _text(text: str) -> str:
    # Half a surrogate pair, which JSON can bring and UTF-8 cannot carry.
    return text.encode("utf-8", "replace").decode("utf-8")
