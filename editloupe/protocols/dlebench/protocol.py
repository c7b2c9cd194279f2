"""DLEBench: Instruction Following and Visual Consistency of small-scale edits, label by label, in three modes.

Reproduced:
- the two rubrics (Tables 3 and 5);
- the Tool-driven mode (section 4.2, Eq. 2), the Oracle-guided mode and the plain LMM as a judge, with one base prompt for
  all three (section 5.3);
- of the Oracle-guided mode: crops about each target for what concerns the target, the targets masked in white for what
  concerns the rest;
- the normalised score (value − 1) / 3 × 100, and the worst label of several targets;
- a criterion's average as the macro mean over the seven edit types, and the overall score as the mean of the criteria
  (Table 1 from Table 4).

Differs:
- the wording of the prompts is ours, since the paper publishes none;
- data without all seven types gets the macro mean over those present, printed as "k of 7 types", and a micro mean over all
  samples beside it;
- the size of the crops follows Eq. 1: the paper's rule for making reference images (section 3.1), whose use here is ours;
- the paper names four tools and enhances every crop; here there are five, and small crops are enlarged (docs/tools.md);
- the frame and padding of crops and masks, and where a reference is shown, are left open by the paper and are options here.

Not covered:
- how the data set was made; the names and areas of its targets (Figure 3, appendix 11) are the protocol `targets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from editloupe.answers import Label
from editloupe.errors import DataError, PromptError
from editloupe.findings import Finding
from editloupe.imaging import geometry
from editloupe.imaging.targets import (
    covered_area,
    extent,
    images_of,
    padded,
    placed,
    relative_area,
    relative_size,
    without_boxes,
)
from editloupe.prompts import OwnTemplate, render
from editloupe.protocols.base import Group, Known, Paper, RubricOptions, RubricProtocol
from editloupe.protocols.dlebench.tables import ALIASES, tables
from editloupe.rubrics import Criterion
from editloupe.scores import NOT_JUDGED, Levels, Metric, Score
from editloupe.tags import one_line
from editloupe.tasks import About, Ask, Budget, Recipe, Status, Task
from editloupe.values import ImageRef, Json, Role, Sample, Target

PROMPT: Final = Path(__file__).parent / "prompts" / "judge.md"

Mode: TypeAlias = Literal["tool", "oracle", "plain"]

_MOVING = ("Removal Object", "Replace Object", "Change Count")
"""After these, something is gone, of another size, or elsewhere: the target is where it was and where it is."""

_NAMES: Mapping[Role, str] = {"source": "Original Image", "edited": "Edited Image", "reference": "Reference Image"}


def _template(value: Any) -> Any:
    """Return a template by its path, or as a run recorded it."""
    return value if value is None or isinstance(value, Mapping | OwnTemplate) else OwnTemplate.read(value)


class DLEBenchOptions(RubricOptions):
    """What a run may set, and what the paper leaves open."""

    mode: Mode = "tool"
    """tool: an agent with tools. oracle: with known boxes, crops sized by Eq. 1 (our choice). plain: one look."""
    prompt: Annotated[OwnTemplate | None, BeforeValidator(_template)] = None
    """Your own template (.md) of the question. It knows `criterion`, `instruction`, `images` and `focus`."""
    lambda_max: float = geometry.LAMBDA_MAX
    """λ of Eq. 1, for crops of the oracle mode. The paper has it for reference images; its use for crops is ours."""
    lambda_min: float = geometry.LAMBDA_MIN
    s_min: float = geometry.S_MIN
    """In px."""
    s_max: float = geometry.S_MAX
    """In px."""
    mask_pad: float = Field(0.05, ge=0, le=1)
    """How far a mask is grown on every side, of the box's shorter side; at least 2 px."""
    reference: Literal["oracle", "always", "never"] = "oracle"
    """Where the reference image is shown; "oracle" is the paper's way."""

    @model_validator(mode="after")
    def _ordered(self) -> DLEBenchOptions:
        if not 0 <= self.lambda_min <= self.lambda_max:
            raise ValueError(f"expected 0 ≤ lambda_min ≤ lambda_max, found {self.lambda_min:g} and {self.lambda_max:g}")
        if not 0 < self.s_min < self.s_max:
            raise ValueError(f"expected 0 < s_min < s_max, found {self.s_min:g} and {self.s_max:g}")
        return self


def edit_type_name(text: str | None) -> str:
    """Return the paper's name of an edit type in any spelling. Other types keep their name; "" becomes "(none)"."""
    given = (text or "").strip()
    folded = " ".join(re.split(r"[\s_\-/]+", given.casefold()))
    known = (name for name, aliases in ALIASES.items() if folded in (name.casefold(), *aliases))
    return next(known, given or "(none)")


class DLEBench(RubricProtocol):
    """The protocol over one rubric: DLEBench's own, or a user's with criteria of their own.

    Raises ConfigError, and PromptError for a prompt that cannot be rendered.
    """

    name = "dlebench"
    paper = Paper(title="DLEBench: evaluating small-scale object editing", url="https://arxiv.org/abs/2602.23622")
    Options = DLEBenchOptions

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        self.mode: Mode = self.options.mode
        self.metrics = [
            Metric(
                id=criterion.id,
                name=criterion.name,
                short=criterion.short,
                domain=Levels(levels=tuple(reversed(criterion.answer().labels))),
                concerns=criterion.concerns,
            )
            for criterion in self.criteria
        ]
        self.tables = tables(self.metrics, mode=self.mode)
        if self.options.prompt is not None:
            self._try_prompt()

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError if the oracle mode is to judge samples without boxes."""
        bare = without_boxes(samples) if self.mode == "oracle" else []
        if not bare:
            return
        named = ", ".join(s.key for s in bare[:5]) + (f" and {len(bare) - 5} more" if len(bare) > 5 else "")
        # The layout of a DLEBench download has a file of its own for boxes.
        download = all(sample.dataset == "DLEBench" for sample in bare)
        file, then = ("boxes.jsonl", "judge again") if download else ("metadata-boxes.jsonl", "judge that file")
        raise DataError(
            f"the oracle mode needs a box around each target; {len(bare)} of {len(samples)} samples have none: "
            f"{named}. Add a column bbox ([x0, y0, x1, y1] in px of the source image), let a detector find boxes "
            f"(`editloupe targets PATH --write PATH/{file}`, then {then}), or use --mode tool, which needs none"
        )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return one task a criterion and sample, or, where targets are judged one by one, a target."""
        for sample in group:
            for criterion in self.criteria:
                for number in self._targets(sample, criterion):
                    yield self._task(sample, criterion, number)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the value of each criterion and sample; of several targets the worst.

        A target without a label leaves the sample without a score: its label could be worse than the others'.
        """
        for sample in group:
            for criterion in self.criteria:
                numbers = self._targets(sample, criterion)
                found = [known.finding(criterion.id, _about(sample, number)) for number in numbers]
                missing = next((_status(f) for f in found if _status(f) != "ok"), None)
                answers = [f.answer for f in found if f is not None and isinstance(f.answer, Label)]
                worst = None if missing else min(answers, key=lambda label: label.value)
                yield Score(
                    sample_id=sample.id,
                    editor=sample.editor,
                    metric=criterion.id,
                    value=None if worst is None else worst.value,
                    label=None if worst is None else worst.name,
                    missing=missing,
                    findings=tuple(f.task_id for f in found if f is not None),
                    parts=() if numbers == (0,) else tuple((f and f.label) or f"({_status(f)})" for f in found),
                    dims=_dims(sample),
                )

    def _targets(self, sample: Sample, criterion: Criterion) -> tuple[int, ...]:
        """Return the numbers of the targets that are asked about one by one, or (0,) for one question about all."""
        if self.mode == "oracle" and criterion.concerns == "target" and sample.targets and sample.edited is not None:
            return tuple(range(1, len(sample.targets) + 1))
        return (0,)

    def _task(self, sample: Sample, criterion: Criterion, number: int) -> Ask:
        """Return one question. number: of the target, from 1; 0 for one question about all."""
        images = images_of(sample)
        if self.options.reference == "never" or (self.options.reference == "oracle" and self.mode != "oracle"):
            images.pop("reference", None)
        blocked: tuple[Status, str] | None = None
        if sample.edited is None:
            blocked = ("missing_output", "there is no edited image for this sample")
        elif self.mode == "oracle" and without_boxes([sample]):
            blocked = ("input_error", "the oracle mode needs a box around each target; this sample has none")
        shown = "whole"
        if self.mode == "oracle" and blocked is None and criterion.concerns is not None:
            shown = "crop" if criterion.concerns == "target" else "mask"
        target = sample.targets[number - 1] if number else None
        views = [self._recipe(sample, role, image, shown, target) for role, image in images.items()]
        names = dict.fromkeys(["Original Image", "Edited Image", *(view.alias for view in views)])
        name = one_line(target.name or "") if target else ""
        prompt = render(
            self.options.prompt or PROMPT,
            criterion=criterion,
            instruction=one_line(sample.instruction),
            images=list(names),
            focus=None if shown == "whole" else {"shown": shown, "targets": len(sample.targets), "name": name},
        )
        return Ask(
            protocol=self.name,
            metric=criterion.id,
            about=_about(sample, number),
            prompt=prompt,
            views=tuple(views),
            # A crop is as close as one can look: tools would show the rest again, which is left out on purpose.
            tools=() if shown == "crop" else self.tools,
            answer=criterion.answer(),
            budget=self.budget,
            blocked=blocked,
        )

    def _try_prompt(self) -> None:
        """Raise PromptError for a prompt that cannot be rendered, before anything is asked."""
        images, prompt = ["Original Image", "Edited Image"], self.options.prompt
        for criterion in self.criteria:
            for shown in (None, "crop", "mask") if self.mode == "oracle" else (None,):
                focus = shown and {"shown": shown, "targets": 2, "name": "mug"}
                text = render(prompt, criterion=criterion, instruction="Make it red.", images=images, focus=focus)
                if "Make it red." not in text:
                    raise PromptError(f"prompt {prompt.name!r} never shows {{{{ instruction }}}}")

    def _recipe(self, sample: Sample, role: Role, image: ImageRef, shown: str, target: Target | None) -> Recipe:
        """Return the whole image, the crop about a target by Eq. 1, or the image with all targets masked."""
        # A reference that the judge does not see still says how far a target reaches.
        known, options = images_of(sample), self.options
        find = extent if edit_type_name(sample.edit_type) in _MOVING else placed
        if shown == "crop" and target is not None:
            place, at_source = find(target, role, known), find(target, "source", known)
            assert place is not None and at_source is not None, "a sample without boxes is not asked"
            shorter = min(at_source.box.width, at_source.box.height)
            ratio = geometry.expansion_ratio(
                shorter,
                lambda_max=options.lambda_max,
                lambda_min=options.lambda_min,
                s_min=options.s_min,
                s_max=options.s_max,
            )
            region = geometry.expand(place.box, width=image.width, height=image.height, ratio=ratio)
            params: dict[str, Json] = {
                "box": [round(v, 2) for v in place.box],
                "lambda": round(ratio, 4),
                "s": round(shorter, 2),
                **({} if place.scaled_from is None else {"scaled_from": place.scaled_from}),
            }
            return Recipe(alias=_NAMES[role], origin=image, op="crop", region=region, params=params)
        if shown == "mask":
            places = [place for t in sample.targets if (place := find(t, role, known)) is not None]
            boxes = [padded(p.box, pad=options.mask_pad, width=image.width, height=image.height) for p in places]
            scaled = sorted({place.scaled_from for place in places if place.scaled_from is not None})
            params = {
                "boxes": [list(box.ints()) for box in boxes],
                "share": round(covered_area(boxes) / (image.width * image.height), 6),
                **({"scaled_from": list(scaled)} if scaled else {}),
            }
            return Recipe(alias=_NAMES[role], origin=image, op="mask", params=params)
        return Recipe(alias=_NAMES[role], origin=image)


def _dims(sample: Sample) -> dict[str, str | float | None]:
    width, height = relative_size(sample) or (None, None)
    sizes = {"target_area": relative_area(sample), "target_width": width, "target_height": height}
    return {"edit_type": edit_type_name(sample.edit_type), **sizes}


def _about(sample: Sample, number: int) -> About:
    return About.of(sample, part=f"target {number}" if number else "")


def _status(finding: Finding | None) -> str:
    return NOT_JUDGED if finding is None else finding.status
