"""DLEBench: Instruction Following and Visual Consistency of small-scale edits, label by label, in three modes.

Reproduced:
- the two rubrics (Tables 3 and 5);
- the Tool-driven mode (section 4.2, Eq. 2), the Oracle-guided mode and the plain LMM as a judge, with one base prompt for
  all three (section 5.3);
- of the Oracle-guided mode: crops about each target by Eq. 1 for what concerns the target, the targets masked in white for
  what concerns the rest;
- the normalised score (value − 1) / 3 × 100, and the worst label of several targets;
- a criterion's average as the macro mean over the seven edit types, and the overall score as the mean of the criteria
  (Table 1 from Table 4).

Differs:
- the wording of the prompts is ours, since the paper publishes none;
- data without all seven types gets the macro mean over those present, printed as "k of 7 types", and a micro mean over all
  samples beside it;
- the frame and padding of crops and masks, and where a reference is shown, are left open by the paper and are options here.

Not covered:
- how the data set was made; the names and areas of its targets (Figure 3, appendix 11) are the protocol `targets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from editloupe.answers import Label
from editloupe.config import Words
from editloupe.errors import ConfigError, DataError, PromptError
from editloupe.findings import Finding
from editloupe.imaging import geometry
from editloupe.imaging.targets import Placed, covered_area, extent, images_of, padded, placed, relative_area, without_boxes
from editloupe.prompts import OwnTemplate, render
from editloupe.prompts.tags import neutralise
from editloupe.protocols.base import BaseProtocol, Group, Known, Options, Paper
from editloupe.protocols.dlebench.tables import tables
from editloupe.rubrics.model import Criterion, RubricOption
from editloupe.scores import NOT_JUDGED, Levels, Metric, Score
from editloupe.tasks import About, Ask, Budget, Recipe, Status, Task
from editloupe.values import ImageRef, Json, Role, Sample, Target

PROMPT: Final = Path(__file__).parent / "prompts" / "judge.md"

Mode: TypeAlias = Literal["tool", "oracle", "plain"]

_ALIASES = {
    "Change Material": ("material", "material alter", "material change", "change attribute material"),
    "Change Color": ("color", "colour", "change colour", "color alter", "color change", "recolor", "recolour"),
    "Change OCR": ("ocr", "text", "change text", "text change", "text alter"),
    "Change Shape": ("shape", "shape change", "shape alter"),
    "Removal Object": ("removal", "remove", "remove object", "object removal", "subject remove", "delete"),
    "Replace Object": ("replace", "replacement", "object replacement", "subject replace", "object replace"),
    "Change Count": ("count", "count change", "object count"),
}


_MOVING = ("Removal Object", "Replace Object", "Change Count")
"""After these, something is gone, of another size, or elsewhere: the target is where it was and where it is."""

_ALIAS: Mapping[Role, str] = {"source": "Original Image", "edited": "Edited Image", "reference": "Reference Image"}


def _template(value: Any) -> Any:
    """Return a template by its path, or as a run recorded it."""
    return value if value is None or isinstance(value, Mapping | OwnTemplate) else OwnTemplate.read(value)


class DLEBenchOptions(Options):
    """What a run may set, and what the paper leaves open."""

    free: ClassVar[frozenset[str]] = frozenset({"criteria"})
    """Options that may differ from visit to visit of one run."""
    mode: Mode = "tool"
    """tool: an agent with tools. oracle: with known boxes. plain: one look."""
    rubric: RubricOption = "dlebench"
    """A built-in rubric or your own .toml file."""
    criteria: Words | None = None
    """Comma-separated, such as if,vc. Default: all."""
    prompt: Annotated[OwnTemplate | None, BeforeValidator(_template)] = None
    """Your own template (.md) of the question. It knows `criterion`, `instruction`, `images` and `focus`."""
    lambda_max: float = geometry.LAMBDA_MAX
    """Eq. 1, for the crops of the oracle mode."""
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
    if text is None or not text.strip():
        return "(none)"
    folded = " ".join(re.split(r"[\s_\-/]+", text.strip().casefold()))
    for name, aliases in _ALIASES.items():
        if folded == name.casefold() or folded in aliases:
            return name
    return text.strip()


class DLEBench(BaseProtocol):
    """The protocol over one rubric: DLEBench's own, or a user's with criteria of their own.

    Raises ConfigError, and PromptError for a prompt that cannot be rendered.
    """

    name = "dlebench"
    paper = Paper(title="DLEBench: evaluating small-scale object editing", url="https://arxiv.org/abs/2602.23622")
    Options = DLEBenchOptions

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given: DLEBenchOptions = self.options
        self.mode, self.rubric, self.prompt = given.mode, given.rubric, given.prompt
        chosen = None if given.criteria is None else {self.rubric.criterion(c).id for c in given.criteria}
        self.criteria = [c for c in self.rubric.criteria if chosen is None or c.id in chosen]
        if not self.criteria:
            known = ", ".join(c.id for c in self.rubric.criteria)
            raise ConfigError(f"no criterion is chosen; rubric {self.rubric.id!r} has {known}")
        if self.mode == "plain":
            self.tools = ()
        self.metrics = [_metric(criterion) for criterion in self.criteria]
        self.tables = tables(self.metrics, mode=self.mode)
        if self.prompt is not None:
            self._try_prompt()

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError if the oracle mode is to judge samples without boxes."""
        bare = without_boxes(samples) if self.mode == "oracle" else []
        if bare:
            named = ", ".join(s.key for s in bare[:5]) + (f" and {len(bare) - 5} more" if len(bare) > 5 else "")
            raise DataError(
                f"the oracle mode needs a box around each target; {len(bare)} of {len(samples)} samples have none: "
                f"{named}. Add a column bbox ([x0, y0, x1, y1] in px of the source image), let a detector find boxes "
                f"({_finding(bare)}), or use --mode tool, which needs none"
            )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return one task a criterion and sample, or, where targets are judged one by one, a target."""
        for sample in group:
            for criterion in self.criteria:
                for number in self._targets(sample, criterion):
                    yield self._task(sample, criterion, number)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the value of each criterion and sample; of several targets the worst."""
        for sample in group:
            for criterion in self.criteria:
                numbers = self._targets(sample, criterion)
                found = [known.finding(criterion.id, _about(sample, number)) for number in numbers]
                yield _score_of(sample, criterion, found, several=numbers != (0,))

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
        shown = self._shown(criterion) if blocked is None else "whole"
        target = sample.targets[number - 1] if number else None
        views = [self._recipe(sample, role, images, shown, target) for role in images]
        names = dict.fromkeys(["Original Image", "Edited Image", *(view.alias for view in views)])
        prompt = self._render(
            criterion=criterion,
            instruction=neutralise(" ".join(sample.instruction.split())),
            images=list(names),
            focus=None if shown == "whole" else {"shown": shown, "targets": len(sample.targets), "name": _name(target)},
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

    def _render(self, **variables: object) -> str:
        return render(PROMPT, **variables) if self.prompt is None else self.prompt.render(**variables)

    def _try_prompt(self) -> None:
        """Raise PromptError for a prompt that cannot be rendered, before anything is asked."""
        focus = {"shown": "crop", "targets": 2, "name": "mug"}
        for criterion in self.criteria:
            for given in (None, focus, {**focus, "shown": "mask"}) if self.mode == "oracle" else (None,):
                images = ["Original Image", "Edited Image"]
                text = self._render(criterion=criterion, instruction="Make it red.", images=images, focus=given)
                if "Make it red." not in text:
                    raise PromptError(f"prompt {self.prompt and self.prompt.name!r} never shows {{{{ instruction }}}}")

    def _shown(self, criterion: Criterion) -> Literal["whole", "crop", "mask"]:
        if self.mode != "oracle" or criterion.concerns is None:
            return "whole"
        return "crop" if criterion.concerns == "target" else "mask"

    def _recipe(
        self, sample: Sample, role: Role, images: Mapping[Role, ImageRef], shown: str, target: Target | None
    ) -> Recipe:
        image, alias = images[role], _ALIAS[role]
        # A reference that the judge does not see still says how far a target reaches.
        known = images_of(sample)
        find = extent if edit_type_name(sample.edit_type) in _MOVING else placed
        if shown == "crop" and target is not None:
            found, at_source = find(target, role, known), find(target, "source", known)
            assert found is not None and at_source is not None, "a sample without boxes is not asked"
            return _crop(alias, image, found, ratio=self._ratio(at_source), shorter=_shorter(at_source))
        if shown == "mask":
            places = [place for t in sample.targets if (place := find(t, role, known)) is not None]
            return self._mask(alias, image, places)
        return Recipe(alias=alias, origin=image)

    def _ratio(self, at_source: Placed) -> float:
        o = self.options
        return geometry.expansion_ratio(
            _shorter(at_source), lambda_max=o.lambda_max, lambda_min=o.lambda_min, s_min=o.s_min, s_max=o.s_max
        )

    def _mask(self, alias: str, image: ImageRef, places: Sequence[Placed]) -> Recipe:
        boxes = [padded(place.box, pad=self.options.mask_pad, width=image.width, height=image.height) for place in places]
        scaled = sorted({place.scaled_from for place in places if place.scaled_from is not None})
        params: dict[str, Json] = {
            "boxes": [list(box.ints()) for box in boxes],
            "share": round(covered_area(boxes) / (image.width * image.height), 6),
            **({"scaled_from": list(scaled)} if scaled else {}),
        }
        return Recipe(alias=alias, origin=image, op="mask", params=params)


def _finding(bare: Sequence[Sample]) -> str:
    """Return the command that adds boxes. The layout of a DLEBench download has a file of its own for them."""
    if all(sample.dataset == "DLEBench" for sample in bare):
        return "`editloupe targets PATH --write PATH/boxes.jsonl`, then judge again"
    return "`editloupe targets PATH --write PATH/metadata-boxes.jsonl`, then judge that file"


def _crop(alias: str, image: ImageRef, place: Placed, *, ratio: float, shorter: float) -> Recipe:
    region = geometry.expand(place.box, width=image.width, height=image.height, ratio=ratio)
    params: dict[str, Json] = {
        "box": [round(v, 2) for v in place.box],
        "lambda": round(ratio, 4),
        "s": round(shorter, 2),
        **({} if place.scaled_from is None else {"scaled_from": place.scaled_from}),
    }
    return Recipe(alias=alias, origin=image, op="crop", region=region, params=params)


def _name(target: Target | None) -> str:
    """Return a target's name as the prompt may show it: one line, without tags of ours."""
    return "" if target is None else neutralise(" ".join((target.name or "").split()))


def _shorter(place: Placed) -> float:
    return min(place.box.width, place.box.height)


def _about(sample: Sample, number: int) -> About:
    return About.of(sample, part=f"target {number}" if number else "")


def _metric(criterion: Criterion) -> Metric:
    domain = Levels(levels=tuple(reversed(criterion.answer().labels)))
    return Metric(id=criterion.id, name=criterion.name, short=criterion.short, domain=domain, concerns=criterion.concerns)


def _score_of(sample: Sample, criterion: Criterion, found: Sequence[Finding | None], *, several: bool) -> Score:
    """Return the score of a criterion: of its only finding, or of the worst of one finding a target.

    A target without a label leaves the sample without a score: its label could be worse than the others'.
    """
    labels = [f.answer if f is not None and isinstance(f.answer, Label) else None for f in found]
    missing = [(NOT_JUDGED if f is None else f.status) for f, label in zip(found, labels, strict=True) if not label]
    known = [label for label in labels if label is not None]
    worst = min(known, key=lambda label: label.value) if known and not missing else None
    named = (
        label.name if label else f"({NOT_JUDGED if f is None else f.status})"
        for f, label in zip(found, labels, strict=True)
    )
    return Score(
        sample_id=sample.id,
        editor=sample.editor,
        metric=criterion.id,
        value=None if worst is None else worst.value,
        label=None if worst is None else worst.name,
        missing=missing[0] if missing else None,
        findings=tuple(f.task_id for f in found if f is not None),
        parts=tuple(named) if several else (),
        dims={"edit_type": edit_type_name(sample.edit_type), "target_area": relative_area(sample)},
    )
