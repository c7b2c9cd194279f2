"""DLEBench: Instruction Following and Visual Consistency of small-scale edits, label by label.

Reproduced: the two rubrics (Tables 3 and 5), the Tool-driven mode (section 4.2, Eq. 2) and the plain LMM as a judge; the
normalised score (value − 1) / 3 × 100; a criterion's average as the macro mean over the seven edit types; the overall
score as the mean of the criteria (Table 1 from Table 4).
Differs: the paper publishes no prompts, so the wording is ours. Data without all seven types gets the macro mean over
those present, printed as "k of 7 types", and a micro mean over all samples beside it.
Not covered: the Oracle-guided mode, per-target verdicts, the object-scale analysis of Figure 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from editloupe.errors import ConfigError
from editloupe.prompts import render
from editloupe.prompts.tags import neutralise
from editloupe.protocols.base import Cell, Done, Group, Summary
from editloupe.records import STATUSES, Budget, JudgeTask, Label, Recipe, Task
from editloupe.rubrics.model import Criterion, Rubric
from editloupe.values import Sample, Score

Mode: TypeAlias = Literal["tool", "plain"]

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

    criteria: ids or short names; None for all of the rubric's.   tools: offered in tool mode, in this order.
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
    ) -> None:
        self.rubric, self.mode = rubric, mode
        chosen = [c.id for c in rubric.criteria] if criteria is None else [rubric.criterion(c).id for c in criteria]
        self.criteria = [c for c in rubric.criteria if c.id in chosen]
        if not self.criteria:
            known = ", ".join(c.id for c in rubric.criteria)
            raise ConfigError(f"no criterion is chosen; rubric {rubric.id!r} has {known}")
        self.tools = tuple(tools) if mode == "tool" else ()
        self.budget = budget or Budget()

    def plan(self, group: Group, done: Done) -> list[Task]:
        """One task a criterion and sample. Nothing here depends on earlier findings."""
        tasks = [self._task(sample, criterion) for sample in group for criterion in self.criteria]
        return [task for task in tasks if task.id not in done]

    def score(self, group: Group, done: Done) -> list[Score]:
        """The value of each finding, raw and on 0..100."""
        scores = []
        for sample in group:
            for criterion in self.criteria:
                finding = done.get(self._task(sample, criterion).id)
                label = finding.answer if finding is not None and isinstance(finding.answer, Label) else None
                scores.append(
                    Score(
                        sample_id=sample.id,
                        editor=sample.editor,
                        edit_type=sample.edit_type,
                        metric=criterion.id,
                        value=None if label is None else label.value,
                        normalised=None if label is None else criterion.normalise(label.value),
                        label=None if label is None else label.name,
                        missing=None if label else "not judged yet" if finding is None else finding.status,
                        findings=() if finding is None else (finding.task_id,),
                    )
                )
        return scores

    def summarise(self, scores: Sequence[Score]) -> list[Summary]:
        """One summary an editor, editors in order of appearance."""
        return [self._summary(editor, [s for s in scores if s.editor == editor]) for editor in _unique(scores)]

    def _task(self, sample: Sample, criterion: Criterion) -> JudgeTask:
        edited = sample.edited
        views = [Recipe(alias="Original Image", origin=sample.source)]
        if edited is not None:
            views.append(Recipe(alias="Edited Image", origin=edited))
        prompt = render(
            "dlebench/judge",
            criterion=criterion,
            instruction=neutralise(" ".join(sample.instruction.split())),
            images=["Original Image", "Edited Image"],
            edit_type=sample.edit_type,
        )
        return JudgeTask(
            protocol=self.name,
            mode=self.mode,
            sample_id=sample.id,
            editor=sample.editor,
            criterion=criterion.id,
            prompt=prompt,
            views=tuple(views),
            tools=self.tools,
            grammar=criterion.grammar(),
            budget=self.budget,
            blocked=("missing_output", "there is no edited image for this sample") if edited is None else None,
        )

    def _summary(self, editor: str, scores: Sequence[Score]) -> Summary:
        ids = [c.id for c in self.criteria]
        types = sorted({edit_type_name(s.edit_type) for s in scores}, key=_type_order)
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


def _type_order(name: str) -> tuple[int, str]:
    return (EDIT_TYPES.index(name), "") if name in EDIT_TYPES else (len(EDIT_TYPES), name)


def _unique(scores: Sequence[Score]) -> list[str]:
    return list(dict.fromkeys(s.editor for s in scores))
