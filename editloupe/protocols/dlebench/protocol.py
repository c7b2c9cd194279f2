"""DLEBench: Instruction Following and Visual Consistency of small-scale edits, label by label, in three modes.

Reproduced:
- the two rubrics (Tables 3 and 5);
- the Tool-driven mode (section 4.2, Eq. 2), the Oracle-guided mode and the plain LMM as a judge, with one base prompt for
  all three (section 5.3);
- of the Oracle-guided mode: crops about each target for what concerns the target, the targets masked in white for what
  concerns the rest;
- the normalized score (value − 1) / 3 × 100, and the worst label of several targets;
- a criterion's average as the macro mean over the seven edit types, and the overall score as the mean of the criteria
  (Table 1 from Table 4).

Differs:
- the wording of the prompts is ours, since the paper publishes none;
- data of other types gets the micro mean over all samples first, and then the macro mean over those of the seven that are
  present, printed as "k of 7 benchmark types";
- the frame and padding of crops and masks, and where a reference is shown, are left open by the paper and are options here;
  the crops are framed by Eq. 1, the paper's rule for making reference images (section 3.1), whose use here is ours;
- the paper names four tools and enhances every crop; here there are five, and small crops are enlarged (docs/tools.md);
- targets are outlined on crops, and a Change Count, which is about all targets together, is asked about once.

Not covered:
- how the data set was made: that is the protocol `dlebench-build` (docs/build.md#small-edits-dlebench);
- the names and areas of its targets (Figure 3, appendix 11): that is the protocol `targets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import Field, model_validator

from editloupe.answers import Label
from editloupe.errors import ConfigError, DataError
from editloupe.findings import Finding
from editloupe.imaging import geometry
from editloupe.imaging.target_views import target_crops, target_masks
from editloupe.imaging.targets import images_of, relative_area, relative_size, without_boxes
from editloupe.prompts import TemplateOption, render
from editloupe.protocols.base import Group, Known, Paper, RubricOptions, RubricProtocol, missing_output, whole
from editloupe.protocols.dlebench.tables import edit_type_name, tables
from editloupe.protocols.names import Names
from editloupe.replies import one_line
from editloupe.rubrics import Criterion
from editloupe.scores import NOT_JUDGED, Levels, Metric, Score
from editloupe.tasks import About, Ask, Budget, Recipe, Task
from editloupe.values import ImageRef, Json, Role, Sample, Target, box_from_json

PAPER: Final = Paper(title="DLEBench: evaluating small-scale object editing", url="https://arxiv.org/abs/2602.23622")
PROMPT: Final = "dlebench/judge"

Mode: TypeAlias = Literal["tool", "oracle", "plain"]

_ABOUT_A_SET: Final = "Change Count"
"""The edit type that is about all targets together: what it asks of one depends on the others."""

_NAMES: Mapping[Role, str] = {"source": "Original Image", "edited": "Edited Image", "reference": "Reference Image"}


class DLEBenchOptions(RubricOptions):
    """What a run may set, and what the paper leaves open."""

    mode: Mode = "tool"
    """tool: an agent with tools. oracle: with known boxes, crops sized by Eq. 1 (our choice). plain: one look."""
    prompt: TemplateOption = None
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
    targets: Literal["auto", "each", "together"] = "auto"
    """How the oracle mode asks about several targets: each by itself, or once about all. auto: by the edit type, once for
    Change Count."""

    @model_validator(mode="after")
    def _ordered(self) -> DLEBenchOptions:
        if not 0 <= self.lambda_min <= self.lambda_max:
            raise ValueError(f"expected 0 ≤ lambda_min ≤ lambda_max, found {self.lambda_min:g} and {self.lambda_max:g}")
        if not 0 < self.s_min < self.s_max:
            raise ValueError(f"expected 0 < s_min < s_max, found {self.s_min:g} and {self.s_max:g}")
        return self


class DLEBench(RubricProtocol):
    """The protocol over one rubric: DLEBench's own, or a user's with criteria of their own.

    Raises ConfigError, also for a prompt that cannot be rendered.
    """

    name = "dlebench"
    paper = PAPER
    Options = DLEBenchOptions

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        self.mode: Mode = self.options.mode
        self.metrics = [
            Metric(
                id=criterion.id,
                name=criterion.name,
                short=criterion.short,
                domain=Levels(levels=tuple(reversed(criterion.labels))),
                concerns=criterion.concerns,
            )
            for criterion in self.criteria
        ]
        benchmark = self.options.rubric.id == self.name
        self.edit_type_name = edit_type_name if benchmark else Names({})
        """Edit type in any spelling → the benchmark's name of it. With another rubric it stays as the data spell it."""
        self.tables = tables(self.metrics, mode=self.mode, benchmark=benchmark)
        if self.options.prompt is not None:
            self._try_prompt()

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError if the oracle mode is to judge samples without boxes, or several targets without an edit type."""
        if self.mode != "oracle":
            return
        if untyped := [sample for sample in samples if self._undecided(sample)]:
            raise DataError(
                f"{len(untyped)} of {len(samples)} samples have several targets and no edit type: {_named(untyped)}. The "
                "oracle mode asks about targets one by one, or, where the instruction is about all of them together, once. "
                f"Add a column edit_type ({_ABOUT_A_SET} is asked about once), or say --set targets=each or "
                "targets=together"
            )
        bare = without_boxes(samples)
        if not bare:
            return
        # The layout of a DLEBench download has a file of its own for boxes.
        download = all(sample.dataset == "DLEBench" for sample in bare)
        file, then = ("boxes.jsonl", "judge again") if download else ("metadata-boxes.jsonl", "judge that file")
        raise DataError(
            f"the oracle mode needs a box around each target; {len(bare)} of {len(samples)} samples have none: "
            f"{_named(bare)}. Add a column bbox ([x0, y0, x1, y1] in px of the source image), let a detector find boxes "
            f"(`editloupe build targets PATH --write PATH/{file}`, then {then}), or use --mode tool, which needs none"
        )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return one task a criterion and sample, or, where targets are judged one by one, a target."""
        for sample in group:
            images = images_of(sample)
            if self.options.reference == "never" or (self.options.reference == "oracle" and self.mode != "oracle"):
                images.pop("reference", None)
            # One for all questions: pictures are much of what a large plan holds.
            first, *others = whole({_NAMES[role]: image for role, image in images.items()})
            shown = first, *_further(sample), *others
            for criterion in self.criteria:
                for number in self._targets(sample, criterion):
                    yield self._task(sample, criterion, number, images, shown)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the value of each criterion and sample; of several targets the worst.

        A target without a label leaves the sample without a score: its label could be worse than the others'.
        """
        for sample in group:
            dims = {"edit_type": self.edit_type_name(sample.edit_type), **_sizes(sample)}
            for criterion in self.criteria:
                numbers = self._targets(sample, criterion)
                found = [known.finding(criterion.id, _about(sample, number) if number else sample) for number in numbers]
                missing = next((status for status in map(_status, found) if status != "ok"), None)
                answers = [f.answer for f in found if f is not None and isinstance(f.answer, Label)]
                worst = None if missing else min(answers, key=attrgetter("value"))
                yield Score(
                    **vars(About.of(sample)),
                    metric=criterion.id,
                    value=None if worst is None else worst.value,
                    label=None if worst is None else worst.name,
                    missing=missing,
                    findings=tuple([f.task_id for f in found if f is not None]),
                    parts=() if numbers == (0,) else tuple((f and f.label) or f"({_status(f)})" for f in found),
                    dims=dims,
                )

    def _targets(self, sample: Sample, criterion: Criterion) -> tuple[int, ...]:
        """Return the numbers of the targets that are asked about one by one, or (0,) for one question about all."""
        if self.mode != "oracle" or criterion.concerns != "target" or sample.edited is None or self._is_set(sample):
            return (0,)
        return tuple(range(1, len(sample.targets) + 1)) or (0,)

    def _is_set(self, sample: Sample) -> bool:
        """Return True if the instruction is about all targets as one set, so that none can be judged by itself."""
        if self.options.targets != "auto":
            return bool(self.options.targets == "together")
        return edit_type_name(sample.edit_type) == _ABOUT_A_SET

    def _undecided(self, sample: Sample) -> bool:
        """Return True if nothing says whether the targets of a sample are one set."""
        return bool(self.options.targets == "auto") and len(sample.targets) > 1 and sample.edit_type is None

    def _task(
        self,
        sample: Sample,
        criterion: Criterion,
        number: int,
        images: Mapping[Role, ImageRef],
        plain: tuple[Recipe, ...],
    ) -> Ask:
        """Return one question.

        number: of the target, from 1; 0 for one question about all.   images: what is shown, by role.   plain: as they are.
        """
        blocked = missing_output(sample)
        shown = "whole"
        if self.mode == "oracle" and blocked is None and criterion.concerns is not None:
            shown = "crop" if criterion.concerns == "target" else "mask"
        targets = [sample.targets[number - 1]] if number else list(sample.targets)
        named = {role: (_NAMES[role], image) for role, image in images.items()}
        match shown:
            case "crop":
                views = target_crops(sample, named, targets, self._enlarged)
            case "mask":
                views = target_masks(sample, named, pad=self.options.mask_pad)
            case _:
                views = plain
        names = dict.fromkeys([*sample.originals, "Edited Image", *(view.alias for view in views)])
        if shown != "whole":
            views = (views[0], *_further(sample), *views[1:])
        focus = None if shown == "whole" else _focus(views[0], sample, targets, together=not number)
        asked = {"criterion": criterion, "instruction": one_line(sample.instruction), "images": list(names), "focus": focus}
        prompt = render(self.options.prompt or PROMPT, **asked)
        about, answer = _about(sample, number), criterion.answer()
        # A crop is as close as one can look: tools would show the rest again, left out on purpose.
        tools = () if shown == "crop" else self.tools
        return self.question(criterion.id, about, prompt, answer, views, tools=tools, blocked=blocked)

    def _try_prompt(self) -> None:
        """Raise ConfigError for a prompt that cannot be rendered, before anything is asked."""
        images, prompt = ["Original Image", "Edited Image"], self.options.prompt
        for criterion in self.criteria:
            for shown in (None, "crop", "mask") if self.mode == "oracle" else (None,):
                boxes: list[Json] = [[450, 450, 550, 550]]
                focus = shown and {"shown": shown, "targets": 2, "together": False, "name": "mug", "boxes": boxes}
                text = render(prompt, criterion=criterion, instruction="Make it red.", images=images, focus=focus)
                if "Make it red." not in text:
                    raise ConfigError(f"prompt {prompt.name!r} never shows {{{{ instruction }}}}")

    def _enlarged(self, shorter: float) -> float:
        """Return λ of Eq. 1 for a box of this shorter side, in px."""
        sizes = {name: getattr(self.options, name) for name in ("lambda_max", "lambda_min", "s_min", "s_max")}
        return geometry.expansion_ratio(shorter, **sizes)


def _further(sample: Sample) -> tuple[Recipe, ...]:
    """Return the input images after the source, as they are."""
    return whole(sample.originals)[1:]


def _focus(view: Recipe, sample: Sample, targets: Sequence[Target], *, together: bool) -> dict[str, Json]:
    """Return what a prompt is told of crops and masks. boxes: in thousandths, where the pictures have marks or masks."""
    width, height = cast("Sequence[int]", view.params.get("size", [view.origin.width, view.origin.height]))
    boxes = cast("Sequence[Json]", view.params.get("marks", view.params.get("boxes")))
    names = {one_line(target.name or "") for target in targets}
    return {
        "shown": view.op,
        "targets": len(sample.targets),
        "together": together,
        "name": names.pop() if len(names) == 1 else "",
        "boxes": [list(box_from_json(box).to_thousandths(width=width, height=height)) for box in boxes],
    }


def _named(samples: Sequence[Sample]) -> str:
    """Return the first five keys, and how many more there are."""
    return ", ".join(s.key for s in samples[:5]) + (f" and {len(samples) - 5} more" if len(samples) > 5 else "")


def _sizes(sample: Sample) -> dict[str, float | None]:
    width, height = relative_size(sample) or (None, None)
    return {"target_area": relative_area(sample), "target_width": width, "target_height": height}


def _about(sample: Sample, number: int) -> About:
    return About.of(sample, part=f"target {number}" if number else "")


def _status(finding: Finding | None) -> str:
    return NOT_JUDGED if finding is None else finding.status
