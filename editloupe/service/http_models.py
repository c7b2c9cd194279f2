"""What goes over the wire of the HTTP service: strict in, described out."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from editloupe.data.boxes import inside
from editloupe.data.images import ImageStore
from editloupe.data.rows import size_note
from editloupe.errors import ImageError, SampleError
from editloupe.findings import Finding
from editloupe.scores import Score
from editloupe.service.bureau import Given
from editloupe.service.paths import below
from editloupe.tasks import Status
from editloupe.values import Box, ImageRef, Sample, Target, Turn

MOST_BOXES = 64
MOST_CRITERIA = 32
MOST_EDITS = 256
"""In one batch, whatever the queue holds."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Inline(_Strict):
    """An image file as it is, in base64; a data URI is taken as well."""

    base64: str = Field(min_length=1, json_schema_extra={"format": "image-base64"})


class OnServer(_Strict):
    """An image file on the server, below the folder that it was started with (--root)."""

    path: str = Field(min_length=1, max_length=4096)


Picture: TypeAlias = Inline | OnServer

Quad: TypeAlias = Annotated[
    list[Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]], Field(min_length=4, max_length=4)
]


class Asked(_Strict):
    """What is asked of one edit, but for its images."""

    instruction: str = Field(
        min_length=1, max_length=8000, pattern=r"\S", description="What the editing model was asked to do."
    )
    id: str | None = Field(
        default=None, max_length=200, description="Comes back with the verdict; nothing else hangs on it."
    )
    boxes: list[Quad] = Field(
        default=[], max_length=MOST_BOXES, description="Targets in the source image: [x0, y0, x1, y1] in px."
    )
    edit_type: str | None = Field(default=None, max_length=200)
    criteria: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        default=[], max_length=MOST_CRITERIA, description="Ids or short names; empty for all that the service judges by."
    )
    repeat: int = Field(
        default=0, ge=0, le=9999, description="The same edit with another number is judged again, independently."
    )


class Edit(Asked):
    """One edit to be judged."""

    source: Picture
    edited: Picture
    reference: Picture | None = None


class Batch(_Strict):
    """Several edits; each gets a verdict or a problem of its own."""

    edits: list[Edit] = Field(min_length=1, max_length=MOST_EDITS)


class Place(BaseModel):
    """A place in one input image: [x0, y0, x1, y1] in px, x right, y down, the end exclusive."""

    image: str
    box: list[float]


class FindingOut(BaseModel):
    """One criterion judged, or why it is not."""

    criterion: str
    target: int | None = Field(description="Where targets are judged one by one, its number, from 1.")
    status: Status
    label: str | None
    value: float | None = Field(description="On the rubric's scale; null unless status is ok.")
    reason: str
    evidence: list[Place]
    turns: int
    seconds: float
    tokens: int
    reused: bool = Field(description="Known before this request, from the run folder.")
    task: str
    trace: str | None = Field(description="Path of the trace inside the run folder.")


class Reward(BaseModel):
    """The scores as a number to train on, or why there is none."""

    value: float | None = Field(description="Mean of the scores, 0..100; null where one of them is missing.")
    why: str | None = Field(description="Why there is no value.")
    scores: dict[str, float | None] = Field(description="Criterion → 0..100; null where it could not be judged.")


class Verdict(BaseModel):
    """One edit judged."""

    id: str | None
    sample: str = Field(description="Its id in the run folder: editloupe show RUN SAMPLE.")
    judge: str
    reward: Reward
    findings: list[FindingOut]
    warnings: list[str]


class Problem(BaseModel):
    """An error, as RFC 9457 has it."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str


class BatchItem(BaseModel):
    """Exactly one of the two."""

    verdict: Verdict | None = None
    problem: Problem | None = None


class BatchVerdicts(BaseModel):
    """In the order of the edits."""

    results: list[BatchItem]


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Who judges here, and how busy it is."""

    status: Literal["ready"] = "ready"
    backend: str
    judge: str
    mode: str
    rubric: str
    criteria: list[str]
    places: int
    taken: int


def opened(picture: Picture, name: str, images: ImageStore, root: Path | None) -> ImageRef:
    """The image that a request names. Raises ImageError."""
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


def sample_of(asked: Asked, refs: Mapping[str, ImageRef]) -> Sample:
    """The edit as a sample whose id is a digest of what a judge sees, so that equal edits are one.

    refs: source and edited, and reference where there is one. Raises SampleError: a box outside the image.
    """
    source, edited = refs["source"], refs["edited"]
    targets = []
    for number, quad in enumerate(asked.boxes, start=1):
        try:
            box = inside(Box(*quad), width=source.width, height=source.height)
        except ValueError as error:
            raise SampleError(f"boxes, number {number}: {error}") from error
        targets.append(Target(boxes={"source": box}))
    sample = Sample(
        id="",
        source=source,
        turns=(Turn(instruction=asked.instruction.strip(), edited=edited),),
        reference=refs.get("reference"),
        targets=tuple(targets),
        edit_type=asked.edit_type,
    )
    return replace(sample, id=sample.content[:20])


def warnings_of(sample: Sample) -> tuple[str, ...]:
    """What a client should know of the images."""
    assert sample.edited is not None
    same = (sample.source.width, sample.source.height) == (sample.edited.width, sample.edited.height)
    return () if same else (size_note(sample.source, sample.edited),)


def finding_out(given: Given) -> FindingOut:
    f: Finding = given.finding
    return FindingOut(
        criterion=f.metric,
        target=f.target,
        status=f.status,
        label=f.label,
        value=f.value,
        reason=_text(f.reason),
        evidence=[Place(image=e.image, box=list(e.box)) for e in f.evidence],
        turns=f.turns,
        seconds=round(f.seconds, 4),
        tokens=f.usage.total,
        reused=given.reused,
        task=f.task_id,
        trace=f.trace,
    )


def reward_of(scores: Sequence[Score]) -> Reward:
    """The mean of the normalised scores where every one is there; else none, and why."""
    by_criterion = {score.metric: score.normalised for score in scores}
    values = [v for v in by_criterion.values() if v is not None]
    missing = [f"{score.metric}: {score.missing}" for score in scores if score.normalised is None]
    return Reward(
        value=sum(values) / len(values) if values and not missing else None,
        why="; ".join(missing) or None,
        scores=by_criterion,
    )


def problem(status: int, title: str, detail: str) -> Problem:
    return Problem(title=title, status=status, detail=_text(detail))


def _text(text: str) -> str:
    # Half a surrogate pair, which JSON can bring and UTF-8 cannot carry.
    return text.encode("utf-8", "replace").decode("utf-8")
