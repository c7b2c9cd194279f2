"""Measures of every edit: numbers that are computed from source, edited image and mask. No model is asked.

Of an edit of several turns the last output is measured, against the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from editloupe import plugins
from editloupe.config import Words
from editloupe.errors import ConfigError
from editloupe.imaging.warp import How
from editloupe.measures.base import open_measure
from editloupe.measures.pair import MaskUse
from editloupe.measures.pixels import residual_left
from editloupe.protocols.base import BaseProtocol, Group, Known, Options, missing_output, whole
from editloupe.scores import Metric, Real, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import Budget, Measure, Task
from editloupe.values import Json, Sample, is_empty

MASK: Final = "edit"
"""The role of a sample's mask that is measured by."""
_COMPARED: Final = {"apply": "outside the mask", "none": "the whole image", "official": "as published"}


def _installed(names: tuple[str, ...]) -> tuple[str, ...]:
    installed = plugins.names("measures")
    if any(name not in installed or _asks(name) for name in names):
        usable = [name for name in installed if not _asks(name)]
        unknown = next(name for name in names if name not in usable)
        raise ValueError(f"{unknown!r} is no measure of an edit that is installed; there are {', '.join(usable)}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"the measure {twice[0]!r} is named twice")
    return names


def _asks(name: str) -> bool:
    """Return whether a measure needs arguments of its own, such as the name of an object."""
    return any(field.is_required() for field in open_measure(name).Args.model_fields.values())


class MeasuresOptions(Options):
    """What is measured, and how. Options but the first are given to the measures that have them."""

    measures: Annotated[Words, AfterValidator(_installed)] = ("mse", "psnr", "ssim")
    """Comma-separated measures, such as mse,psnr,ssim."""
    mask: Literal["auto"] | MaskUse = "auto"
    """apply: outside the mask. none: the whole image. official: as GIE-Bench's scripts. auto: apply where a mask is."""
    dilate: bool = True
    """Grow a mask that is stretched to the image by one of its own cells."""
    align: How | None = None
    """How the edited image is laid onto the source: none or sift. Default: none; of alignment itself sift."""
    ssim: Literal["outside", "official"] = "outside"
    """Mean SSIM outside the mask, or with the mask painted black, as published."""
    side: int | None = Field(default=None, ge=0, le=8192)
    """px to which SSIM squashes both images; 0 keeps the source's size. Default: 224, as published."""
    pool: Literal["pure", "any"] = "pure"
    """Patches that count for clip and dino: wholly outside the mask (pure), or with any pixel there."""
    # Left out where they are not given, so that runs from before they existed can be continued by the same judge.
    face_score: float | None = Field(default=None, ge=0, le=1, exclude_if=is_empty)
    """The least score of a face that counts. Default: 0.9."""


class Measures(BaseProtocol):
    """One question for each edit and measure."""

    name = "measures"
    Options = MeasuresOptions
    roles: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, budget=budget)
        self.metrics = [_metric(name) for name in self.options.measures]
        # The means of edits with and without a mask are never one, nor those of two editors.
        rows = "edits" if self.options.mask == "auto" else "editor"
        self.tables = (TableSpec(title="Measures", rows=rows, overall=False),)

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise ConfigError for a measure that does not take what it would be given, such as a mask."""
        by_use = {(name, self._mask(s)): s.key for s in reversed(samples) for name in self.options.measures}
        for (name, use), key in by_use.items():
            try:
                open_measure(name).Args.model_validate(self._args(name, use))
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"]))
                hint = "; it measures whole images with --mask none" if place == "mask" else ""
                wrong = f"{place} is {first['input']!r}: {first['msg']}{hint}"
                raise ConfigError(f"the measure {name!r} cannot be taken of sample {key!r}: {wrong}") from error

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the measures of each edit."""
        for sample in group:
            for name in self.options.measures:
                yield self._measure(sample, name)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return what was measured. Of an alignment: which share of the difference is left after it."""
        for sample in group:
            compared = _COMPARED[self._mask(sample)]
            edits = ", ".join(filter(None, [sample.editor, compared]))
            dims = {"edits": edits, "compared": compared, "edit_type": sample.edit_type}
            for name in self.options.measures:
                score = self.measured(name, sample, known, dims={key: dim for key, dim in dims.items() if dim is not None})
                answer = known.answer(name, sample)
                if answer is not None and answer.value is None:
                    left, why = residual_left(answer)
                    score = replace(score, value=left, missing="not_defined" if left is None else None, reason=why)
                yield score

    def _mask(self, sample: Sample) -> MaskUse:
        """Return how the mask of a sample is used."""
        given: Literal["auto"] | MaskUse = self.options.mask
        if given != "auto":
            return given
        return "apply" if MASK in sample.masks else "none"

    def _args(self, name: str, use: MaskUse) -> dict[str, Json]:
        """Return those of the options that a measure has, but for what it does by default."""
        given: dict[str, Json] = {**self.options.model_dump(exclude={"measures"}), "mask": use}
        known = open_measure(name).Args.model_fields
        return {key: value for key, value in given.items() if key in known and value not in (None, known[key].default)}

    def _measure(self, sample: Sample, name: str) -> Measure:
        use = self._mask(sample)
        mask = sample.masks.get(MASK) if use != "none" else None
        views = whole({"source": sample.source, "edited": sample.edited, "mask": mask})
        given = {"args": self._args(name, use), "views": views, "blocked": missing_output(sample)}
        return self.measurement(name, sample, name, **given)


def _metric(name: str) -> Metric:
    """Return what a measure says of its answer; any number, without a direction, for one that says nothing."""
    said = getattr(open_measure(name), "metric", None)
    return said if isinstance(said, Metric) and said.id == name else Metric(id=name, domain=Real(), better=None)
