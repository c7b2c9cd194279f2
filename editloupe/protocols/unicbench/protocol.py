"""UnicBench: four scores from 0 to 10 an edit, each a question of its own; instructions in English and Chinese.

Reproduced:
- the four metrics (Prompts 1 to 4 of the supplement): Instruction Following, Non-edit Consistency and Visual Quality for
  every edit, Reasoning Accuracy for Reasoning Editing alone, with the row's reasoning points;
- scales, penalties and rules of rounding as data (`rubrics/unicbench.toml`);
- a sample's overall as the geometric mean of its metrics, three or four; a group's value as the plain mean over samples;
- Table 4 by language and Tables 9 to 12 by task, over the samples that were judged.

Differs:
- the wording of rubric and prompts is ours; prompts in Chinese are ours too, since the paper asks in English about both
  languages (`prompt_language`);
- a reply that gives no score has a status, and its sample has no overall; the published code counts it as 0;
- a number outside 0 to 10 is `off_menu`; the published code accepts it;
- images are sent as they are and before the form of the reply; the published code sends JPEG of quality 75 behind the text;
- a mode with tools, which is ours and reported apart.

Not covered:
- how the data set was made; the human study (section I), whose ratings are not published.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from editloupe.config import Words
from editloupe.errors import ConfigError, DataError
from editloupe.prompts import render
from editloupe.protocols.base import (
    Group,
    Known,
    Paper,
    RubricOptions,
    RubricProtocol,
    missing_output,
    score_of,
    some_of,
    whole,
)
from editloupe.protocols.unicbench.tables import OVERALL, REASONING, tables
from editloupe.replies import one_line
from editloupe.rubrics import Criterion, Rubric, RubricOption, load_rubric
from editloupe.scores import Interval, Metric, Score
from editloupe.tasks import Ask, Budget, Task
from editloupe.values import Json, Sample

LANGUAGES: Final = ("en", "cn")
REASONING_ACCURACY: Final = "reasoning_accuracy"
_PROMPTS: Final = {"en": "unicbench/judge", "cn": "unicbench/judge_cn"}


class UnicBenchOptions(RubricOptions):
    """What a run may set. The paper is the default."""

    mode: Literal["plain", "tool"] = "plain"
    """plain: one look, as in the paper. tool: an agent with tools, which is ours."""
    rubric: RubricOption = "unicbench"
    """A built-in rubric or your own .toml file, with scales."""
    prompt_language: Literal["en", "cn", "sample"] = "en"
    """Language of the questions. en: as in the paper, also for Chinese instructions. sample: that of the instruction."""
    language: Annotated[Words, some_of("language", LANGUAGES), Field(min_length=1)] = LANGUAGES
    """Comma-separated: en, cn. Samples of which language are asked about; one that names none is always."""


class UnicBench(RubricProtocol):
    """One question a metric and sample.

    Raises ConfigError for a rubric without scales, and for one whose scales have no geometric mean.
    """

    name = "unicbench"
    paper = Paper(
        title="UnicEdit-10M: A Dataset and Benchmark Breaking the Scale-Quality Barrier via Unified Verification for "
        "Reasoning-Enriched Edits",
        url="https://arxiv.org/abs/2512.02790",
    )
    Options = UnicBenchOptions
    takes = "scale"
    of_some = frozenset({REASONING_ACCURACY})

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        rubric: Rubric = self.options.rubric
        # A rubric of the user's own is asked in the language in which it is written.
        chinese = load_rubric("unicbench_cn") if rubric.digest == load_rubric(self.name).digest else rubric
        self._wording = {"en": rubric, "cn": chinese}
        domain = _domain(rubric)
        self.metrics = [Metric(id=c.id, name=c.name, short=c.short, domain=domain) for c in self.criteria]
        self.whole = len(self.criteria) == len(rubric.criteria)
        """Whether all criteria are asked, without which there is no overall."""
        if self.whole:
            self.metrics.append(Metric(id=OVERALL, name="Overall", domain=domain))
        self.tables = tables(self.metrics, mode=self.options.mode)

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for a language that is neither en nor cn, and if no sample is in one that is asked about."""
        for sample in samples:
            if (found := _language(sample)) not in (None, *LANGUAGES):
                raise DataError(f"{sample.key}: language {found!r}; expected en or cn, or no such column")
        if samples and not any(map(self._asks_about, samples)):
            asked, there = ", ".join(self.options.language), ", ".join(sorted({str(_language(s)) for s in samples}))
            raise DataError(f"no sample is in the language asked about ({asked}); the samples are in {there}")

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return one task a metric that applies to a sample, for the languages that are asked about."""
        for sample in group:
            for criterion in self._applicable(sample):
                yield self._task(sample, criterion)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the metrics that apply to each sample, and their geometric mean, which is missing where one of them is."""
        for sample in group:
            dims = {
                "task": _text(sample, "task"),
                "subtask": _text(sample, "subtask"),
                "language": _language(sample),
                "edit_type": sample.edit_type or "(none)",
            }
            found = [self.measured(criterion.id, sample, known, dims=dims) for criterion in self._applicable(sample)]
            yield from found
            if not self.whole or not found:
                continue
            if failed := next((score.metric for score in found if score.value is None), None):
                yield self.missing(OVERALL, sample, known, question=failed, dims=dims)
                continue
            value = geometric_mean([score.value for score in found if score.value is not None])
            ids = tuple(id_ for score in found for id_ in score.findings)
            yield score_of(OVERALL, sample, value, findings=ids, dims=dims)

    def _asks_about(self, sample: Sample) -> bool:
        return _language(sample) in (None, *self.options.language)

    def _applicable(self, sample: Sample) -> list[Criterion]:
        """Return the criteria that a sample is asked: Reasoning Accuracy of Reasoning Editing alone."""
        if not self._asks_about(sample):
            return []
        reasoning = _text(sample, "task") == REASONING
        return [c for c in self.criteria if reasoning or c.id != REASONING_ACCURACY]

    def _task(self, sample: Sample, criterion: Criterion) -> Ask:
        images = sample.originals
        blocked = missing_output(sample)
        points = _points(sample.extra.get("reasoning_points")) if criterion.id == REASONING_ACCURACY else ()
        if sample.edited is not None:
            images["Edited Image"] = sample.edited
            if criterion.id == REASONING_ACCURACY and not points:
                blocked = ("input_error", f"a sample of {REASONING} needs reasoning_points, and this one has none")
        language = (_language(sample) or "en") if self.options.prompt_language == "sample" else self.options.prompt_language
        prompt = render(
            _PROMPTS[language],
            criterion=self._wording[language].criterion(criterion.id),
            instruction=one_line(sample.instruction),
            points=[one_line(point) for point in points],
            images=[*sample.originals, "Edited Image"],
        )
        answer, views = criterion.answer(), whole(images)
        return self.question(criterion.id, sample, prompt, answer, views, blocked=blocked)


def _points(value: Json) -> tuple[str, ...]:
    """Return the reasoning points that a column holds; () where there are none, or not as texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(point, str) and point.strip() for point in value):
        return ()
    return tuple(map(str, value))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of numbers that are not negative; 0 if one of them is 0.

    Rounded to 12 decimals, so that equal numbers give themselves.
    """
    return 0.0 if min(values) == 0 else round(math.exp(math.fsum(map(math.log, values)) / len(values)), 12)


def _domain(rubric: Rubric) -> Interval:
    """Return the one scale of a rubric. Raises ConfigError for several, and for one that goes below 0."""
    scales = {(c.scale.low, c.scale.high) for c in rubric.criteria if c.scale is not None}
    low, high = min(scales)
    if len(scales) > 1 or low < 0:
        found = ", ".join(f"{a:g} to {b:g}" for a, b in sorted(scales))
        raise ConfigError(
            f"rubric {rubric.id!r}: overall is a geometric mean, so that all criteria need one scale that begins at 0 or "
            f"above; found {found}"
        )
    return Interval(low=low, high=high)


def _text(sample: Sample, column: str) -> str | None:
    value = sample.extra.get(column)
    return value if isinstance(value, str) and value else None


def _language(sample: Sample) -> str | None:
    value = sample.extra.get("language")
    return None if value in (None, "") else str(value)
