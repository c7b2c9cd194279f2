"""DLEBench: Instruction Following and Visual Consistency of small-scale edits, label by label, in three modes.

Reproduced: the two rubrics (Tables 3 and 5); the Tool-driven mode (section 4.2, Eq. 2), the Oracle-guided mode (crops about
each target by Eq. 1 for what concerns the target, the targets masked in white for what concerns the rest) and the plain LMM
as a judge; one base prompt for all three (section 5.3); the normalised score (value − 1) / 3 × 100; the worst label of
several targets; a criterion's average as the macro mean over the seven edit types; the overall score as the mean of the
criteria (Table 1 from Table 4).
Differs: the paper publishes no prompts, so the wording is ours. Data without all seven types gets the macro mean over
those present, printed as "k of 7 types", and a micro mean over all samples beside it.
Open in the paper, and chosen here (`Options`): the frame and padding of crops and masks, and where a reference is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from editloupe.errors import ConfigError, DataError, PromptError
from editloupe.imaging import geometry
from editloupe.imaging.targets import Placed, covered_area, extent, images_of, padded, placed, without_boxes
from editloupe.prompts import render
from editloupe.prompts.tags import neutralise
from editloupe.protocols.base import Cell, Done, Group, Summary
from editloupe.records import STATUSES, Budget, Finding, JudgeTask, Label, Recipe, Status, Task
from editloupe.rubrics.model import Criterion, Rubric
from editloupe.values import ImageRef, Json, Role, Sample, Score, Target, sample_key

PROMPT = "dlebench/judge"

Mode: TypeAlias = Literal["tool", "oracle", "plain"]
MODES: tuple[Mode, ...] = get_args(Mode)

EDIT_TYPES = (
    "Change Material",
    "Change Color",
    "Change OCR",
    "Change Shape",
    "Removal Object",
    "Replace Object",
    "Change Count",
)
"""In the order of the paper's Table 1."""

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


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the paper leaves open; part of a run's identity.

    lambda_max, lambda_min, s_min, s_max: Eq. 1, for the crops of the oracle mode.
    mask_pad: by how much a mask is grown on every side, of the box's shorter side; at least 2 px.
    reference: where the reference image is shown: "oracle" (the paper's way), "always" or "never".
    """

    lambda_max: float = geometry.LAMBDA_MAX
    lambda_min: float = geometry.LAMBDA_MIN
    s_min: float = geometry.S_MIN
    s_max: float = geometry.S_MAX
    mask_pad: float = 0.05
    reference: str = "oracle"

    def __post_init__(self) -> None:
        if not 0 <= self.lambda_min <= self.lambda_max:
            raise ConfigError(f"expected 0 ≤ lambda_min ≤ lambda_max, found {self.lambda_min:g} and {self.lambda_max:g}")
        if not 0 < self.s_min < self.s_max:
            raise ConfigError(f"expected 0 < s_min < s_max, found {self.s_min:g} and {self.s_max:g}")
        if not 0 <= self.mask_pad <= 1:
            raise ConfigError(f"expected mask_pad from 0 to 1, found {self.mask_pad:g}")
        if self.reference not in ("oracle", "always", "never"):
            raise ConfigError(f"expected reference oracle, always or never, found {self.reference!r}")

    @classmethod
    def read(cls, given: Mapping[str, Json]) -> Options:
        """From names and values, numbers also as text. Raises ConfigError, which lists what is known."""
        kinds = {field.name: field.type for field in fields(cls)}
        found: dict[str, float | str] = {}
        for name, value in given.items():
            if name not in kinds:
                raise ConfigError(f"unknown option {name!r} of dlebench; known: {', '.join(kinds)}")
            try:
                found[name] = float(str(value)) if kinds[name] == "float" else str(value)
            except ValueError:
                raise ConfigError(f"option {name}: expected a number, found {value!r}") from None
        return cls(**found)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def edit_type_name(text: str | None) -> str:
    """The paper's name of an edit type, whatever its spelling; other types keep their own name; "" becomes "(none)"."""
    if text is None or not text.strip():
        return "(none)"
    folded = " ".join(re.split(r"[\s_\-/]+", text.strip().casefold()))
    for name, aliases in _ALIASES.items():
        if folded == name.casefold() or folded in aliases:
            return name
    return text.strip()


class DLEBench:
    """The protocol over one rubric: DLEBench's own, or a user's with criteria of their own.

    criteria: ids or short names; None for all of the rubric's.   tools: offered where the mode has tools, in this order.
    prompt: the question's template: the path of a .md file of one's own, which knows `criterion`, `instruction`, `images`
    (names) and `focus` (None, or what the oracle mode leaves to be seen), or the built-in one.
    Raises ConfigError, and PromptError for a prompt that cannot be rendered.
    """

    name = "dlebench"

    def __init__(
        self,
        rubric: Rubric,
        *,
        mode: Mode = "tool",
        criteria: Iterable[str] | None = None,
        tools: Sequence[str] = (),
        budget: Budget | None = None,
        options: Options | None = None,
        prompt: str | Path = PROMPT,
    ) -> None:
        self.rubric, self.mode, self.prompt = rubric, mode, prompt
        chosen = [c.id for c in rubric.criteria] if criteria is None else [rubric.criterion(c).id for c in criteria]
        self.criteria = [c for c in rubric.criteria if c.id in chosen]
        if not self.criteria:
            known = ", ".join(c.id for c in rubric.criteria)
            raise ConfigError(f"no criterion is chosen; rubric {rubric.id!r} has {known}")
        self.tools = () if mode == "plain" else tuple(tools)
        self.budget = budget or Budget()
        self.options = options or Options()
        if prompt != PROMPT:
            self._try_prompt()

    def check(self, samples: Sequence[Sample]) -> None:
        """Raises DataError where the oracle mode is to judge samples without boxes."""
        bare = without_boxes(samples) if self.mode == "oracle" else []
        if bare:
            named = ", ".join(s.key for s in bare[:5]) + (f" and {len(bare) - 5} more" if len(bare) > 5 else "")
            raise DataError(
                f"the oracle mode needs a box around each target; {len(bare)} of {len(samples)} samples have none: "
                f"{named}. Add a column bbox ([x0, y0, x1, y1] in px of the source image), let a detector find boxes "
                f"({_finding(bare)}), or use --mode tool, which needs none"
            )

    def plan(self, group: Group, done: Done) -> list[Task]:
        """One task a criterion and sample, or, where targets are judged one by one, a target. None depends on findings."""
        tasks = [task for sample in group for criterion in self.criteria for task in self._tasks(sample, criterion)]
        return [task for task in tasks if task.id not in done]

    def score(self, group: Group, done: Done) -> list[Score]:
        """The value of each criterion and sample, raw and on 0..100; of several targets the worst.

        Rests on what the findings say they are about, not on task ids: one of an earlier wording of the prompt counts.
        """
        keys = {sample.key for sample in group}
        by_question: dict[tuple[str, str], dict[int, Finding]] = {}
        for finding in done.values():
            key = sample_key(finding.editor, finding.sample_id)
            if key in keys:
                by_question.setdefault((key, finding.criterion), {})[finding.target or 0] = finding
        scores = []
        for sample in group:
            for criterion in self.criteria:
                found = by_question.get((sample.key, criterion.id), {})
                parts = self._parts(sample, criterion)
                scores.append(_score_of(sample, criterion, [found.get(part) for part in parts], several=parts != (0,)))
        return scores

    def summarise(self, scores: Sequence[Score]) -> list[Summary]:
        """One summary an editor, editors in order of appearance."""
        return [self._summary(editor, [s for s in scores if s.editor == editor]) for editor in _unique(scores)]

    def _parts(self, sample: Sample, criterion: Criterion) -> tuple[int, ...]:
        """What is asked of a sample one by one: the numbers of its targets, or (0,) for one question about all."""
        if self.mode == "oracle" and criterion.concerns == "target" and sample.targets and sample.edited is not None:
            return tuple(range(1, len(sample.targets) + 1))
        return (0,)

    def _tasks(self, sample: Sample, criterion: Criterion) -> list[JudgeTask]:
        return [self._task(sample, criterion, part) for part in self._parts(sample, criterion)]

    def _task(self, sample: Sample, criterion: Criterion, number: int) -> JudgeTask:
        """number: of the target, from 1; 0 for one question about all."""
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
        prompt = render(
            self.prompt,
            criterion=criterion,
            instruction=neutralise(" ".join(sample.instruction.split())),
            images=list(names),
            focus=None if shown == "whole" else {"shown": shown, "targets": len(sample.targets), "name": _name(target)},
        )
        return JudgeTask(
            protocol=self.name,
            mode=self.mode,
            sample_id=sample.id,
            editor=sample.editor,
            criterion=criterion.id,
            prompt=prompt,
            views=tuple(views),
            # A crop is as close as one can look: tools would show the rest again, which is left out on purpose.
            tools=() if shown == "crop" else self.tools,
            grammar=criterion.grammar(),
            budget=self.budget,
            target=number or None,
            blocked=blocked,
        )

    def _try_prompt(self) -> None:
        """What is wrong with a prompt is found before anything is asked."""
        focus = {"shown": "crop", "targets": 2, "name": "mug"}
        for criterion in self.criteria:
            for given in (None, focus, {**focus, "shown": "mask"}) if self.mode == "oracle" else (None,):
                images = ["Original Image", "Edited Image"]
                text = render(self.prompt, criterion=criterion, instruction="Make it red.", images=images, focus=given)
                if "Make it red." not in text:
                    raise PromptError(f"prompt {str(self.prompt)!r} never shows {{{{ instruction }}}}")

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

    def _summary(self, editor: str, scores: Sequence[Score]) -> Summary:
        ids = [c.id for c in self.criteria]
        types = sorted({edit_type_name(s.edit_type) for s in scores}, key=type_order)
        rows = {t: _with_overall({c: _cell(_of(scores, metric=c, edit_type=t)) for c in ids}) for t in types}
        known = [t for t in types if t in EDIT_TYPES]
        macro = _with_overall({c: _macro([rows[t][c] for t in known]) for c in ids})
        micro = _with_overall({c: _cell(_of(scores, metric=c)) for c in ids})
        return Summary(
            editor=editor,
            criteria=tuple(ids),
            rows=rows,
            macro=macro,
            micro=micro,
            types_present={c: sum(rows[t][c].mean is not None for t in known) for c in macro},
            types_known=len(EDIT_TYPES),
            histogram={
                c.id: {level.name: sum(s.label == level.name for s in _of(scores, metric=c.id)) for level in c.levels}
                for c in self.criteria
            },
            statuses={
                c: {
                    status: n
                    for status in (*STATUSES, "not judged yet")
                    if (n := sum(s.missing == status for s in _of(scores, metric=c)))
                }
                for c in ids
            },
        )


def _finding(bare: Sequence[Sample]) -> str:
    """The command that adds boxes; the layout of a DLEBench download has a file of its own for them."""
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
    """As the prompt may show it: one line, without tags of ours."""
    return "" if target is None else neutralise(" ".join((target.name or "").split()))


def _shorter(place: Placed) -> float:
    return min(place.box.width, place.box.height)


def _score_of(sample: Sample, criterion: Criterion, found: Sequence[Finding | None], *, several: bool) -> Score:
    """One score of the findings of a criterion: of the only one, or the worst of a finding a target.

    A target without a label leaves the sample without a score: its label could be worse than the others'.
    """
    labels = [f.answer if f is not None and isinstance(f.answer, Label) else None for f in found]
    missing = [("not judged yet" if f is None else f.status) for f, label in zip(found, labels, strict=True) if not label]
    known = [label for label in labels if label is not None]
    worst = min(known, key=lambda label: label.value) if known and not missing else None
    named = (
        label.name if label else f"({'not judged yet' if f is None else f.status})"
        for f, label in zip(found, labels, strict=True)
    )
    return Score(
        sample_id=sample.id,
        editor=sample.editor,
        edit_type=sample.edit_type,
        metric=criterion.id,
        value=None if worst is None else worst.value,
        normalised=None if worst is None else criterion.normalise(worst.value),
        label=None if worst is None else worst.name,
        missing=missing[0] if missing else None,
        findings=tuple(f.task_id for f in found if f is not None),
        by_target=tuple(named) if several else (),
    )


def overall(criteria: Mapping[str, float]) -> float:
    """Table 1 from Table 4: the plain mean over the criteria of one edit type (or of their averages)."""
    return sum(criteria.values()) / len(criteria)


def macro_mean(by_type: Mapping[str, float]) -> float:
    """The average row of Tables 1 and 4: every edit type counts the same."""
    return sum(by_type.values()) / len(by_type)


def _cell(scores: Sequence[Score]) -> Cell:
    values = [s.normalised for s in scores if s.normalised is not None]
    return Cell(mean=sum(values) / len(values) if values else None, judged=len(values), asked=len(scores))


def _macro(cells: Sequence[Cell]) -> Cell:
    """Over the types where something was judged; a type where nothing was is missing, not zero."""
    means = {str(i): c.mean for i, c in enumerate(cells) if c.mean is not None}
    return Cell(
        mean=macro_mean(means) if means else None,
        judged=sum(c.judged for c in cells),
        asked=sum(c.asked for c in cells),
    )


def _with_overall(cells: dict[str, Cell]) -> dict[str, Cell]:
    """Adds "overall": the mean of the criteria, there only where every criterion has a mean."""
    means = {name: cell.mean for name, cell in cells.items() if cell.mean is not None}
    complete = len(means) == len(cells)
    whole = Cell(
        mean=overall(means) if complete else None,
        judged=sum(c.judged for c in cells.values()),
        asked=sum(c.asked for c in cells.values()),
    )
    return cells | {"overall": whole}


def _of(scores: Sequence[Score], *, metric: str, edit_type: str | None = None) -> list[Score]:
    return [s for s in scores if s.metric == metric and (edit_type is None or edit_type_name(s.edit_type) == edit_type)]


def type_order(name: str) -> tuple[int, str]:
    """A sort key: the paper's types in its order, then others by name."""
    return (EDIT_TYPES.index(name), "") if name in EDIT_TYPES else (len(EDIT_TYPES), name)


def _unique(scores: Sequence[Score]) -> list[str]:
    return list(dict.fromkeys(s.editor for s in scores))
