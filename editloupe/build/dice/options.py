"""The options of `editloupe build differences`, and the stage that each belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from editloupe.build.dice.rows import Reply
from editloupe.config import Number, Whole
from editloupe.data.boxes import known_format
from editloupe.protocols.base import Options

Marks: TypeAlias = Literal["both", "paper", "official"]

_OF: Final = {
    1: ("images", "crop", "pairs", "least_similarity", "partners", "most_pairs", "differing_below", "least_side", "iou"),
    2: ("images", "crop", "most_objects", "least_area", "most_overlap", "unchanged", "colour_share", "inpainter",
        "replacer", "grow", "jpeg"),
    3: ("marks", "given_boxes"),
}  # fmt: skip
"""Stage → options that it has beside those of all stages."""
_OF_ALL: Final = ("stage", "seed", "test_share", "reply")


class DifferenceSetOptions(Options):
    """What `editloupe build differences` offers."""

    stage: Whole | None = Field(default=None, ge=1, le=3)
    """1: pairs of similar photographs. 2: inpainted photographs. 3: differences that people annotated."""
    seed: Whole = Field(default=0, ge=0)
    """Seed of all that is drawn."""
    test_share: Number = Field(default=0.16, ge=0, lt=1)
    """Share of source images whose rows are for testing."""
    reply: Reply = "tags"
    """How a model is to answer: tags, as a judge of editloupe does, or plain, the answer alone as in the paper."""
    images: Path | None = None
    """Stages 1 and 2: folder of the annotated images. Default: that of the annotations."""
    crop: bool = False
    """Stages 1 and 2: cut images to their middle square, as the paper does for its models."""
    pairs: Path | None = None
    """Stage 1: a table of pairs to take in place of similar ones, with the columns source and edited."""
    least_similarity: Number = Field(default=0.6, ge=-1, le=1)
    """Stage 1: cosine of two photographs' features that must be exceeded."""
    partners: Whole = Field(default=1, ge=1, le=100)
    """Stage 1: nearest photographs that each one is paired with."""
    most_pairs: Whole | None = Field(default=None, ge=1)
    """Stage 1: at most N pairs, drawn by the seed. Default: all."""
    differing_below: Whole = Field(default=15, ge=1)
    """Stage 1: fewer categories than this may be in one of the two photographs alone."""
    least_side: Whole = Field(default=16, ge=1)
    """Stage 1: objects with a side of fewer px are left out."""
    iou: Number = Field(default=0.5, ge=0, lt=1)
    """Stage 1: two objects of a category that overlap more than this (intersection over union) are one EDIT."""
    most_objects: Whole = Field(default=4, ge=1, le=20)
    """Stage 2: objects of one image that differ, at most."""
    least_area: Number = Field(default=0.03, gt=0, le=1)
    """Stage 2: least share of the image that an object's mask covers."""
    most_overlap: Number = Field(default=0.05, ge=0, le=1)
    """Stage 2: most overlap of two masks, as a share of the smaller one."""
    unchanged: Number = Field(default=0.2, ge=0, le=1)
    """Stage 2: share of images that stay as they are."""
    colour_share: Number = Field(default=0.3, ge=0, le=1)
    """Stage 2: share of EDITs that change the colour; the others put in another object, if --replacer can."""
    inpainter: str = "opencv"
    """Stage 2: what removes an object: opencv, opencv:ns or diffusers:MODEL."""
    replacer: str | None = None
    """Stage 2: what puts in another object: diffusers:MODEL. Without it every EDIT changes the colour."""
    grow: Whole = Field(default=3, ge=0, le=100)
    """Stage 2: px by which a part that is inpainted is larger than its object."""
    jpeg: Number = Field(default=0.5, ge=0, le=1)
    """Stage 2: probability that an image is compressed, with a quality from 50 to 95."""
    marks: Marks = "both"
    """Stage 3: images with the box, as the protocol dice has it: both, paper or official."""
    given_boxes: str = "unit"
    """Stage 3: how boxes are written: unit (0 to 1), thousandths, xyxy in px of the source, …"""

    @field_validator("images", "pairs")
    @classmethod
    def _resolved(cls, path: Path | None) -> Path | None:
        return None if path is None else path.resolve()

    @field_validator("given_boxes")
    @classmethod
    def _known(cls, name: str) -> str:
        return known_format(name)

    @model_validator(mode="after")
    def _of_the_stage(self) -> Self:
        if self.stage is None:
            raise ValueError("name the stage: --stage 1 (similar photographs), 2 (inpainted ones) or 3 (coherence)")
        if others := sorted(self.model_fields_set - {*_OF[self.stage], *_OF_ALL}):
            flag, stages = others[0].replace("_", "-"), [str(s) for s, names in _OF.items() if others[0] in names]
            raise ValueError(f"--{flag} belongs to stage {' and '.join(stages)}, not to stage {self.stage}; leave it out")
        return self
