"""EdiVal-VQ: how good the image after a turn looks (paper, 2.4 and appendix G). No part of the overall score.

Reproduced: HPSv3's mean of the image after turn t, and |change| from the base image's (Tables 4, 18 and 19); luminance
(Rec. 709) that 99 and 99.9 % of the pixels do not exceed; saturation, sharpness and contrast as in the published code.

Differs, each with a rule in `rules.toml` that does otherwise: the prompt of HPSv3 is "" for both images, where the code
gives the edited one its instruction (`preference_prompt`); luminance is that of linear light, as in the code; the text
weighs gamma values (`luminance`).

Differs without an option: images are brought to the base image's size for the statistics; a statistic that an image does
not have is missing, in place of 0; Table 4's |change| is that of the means over images, a score here is of one image.

Not covered: RAHF's plausibility and aesthetics, and the code's index of over-exposure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from editloupe.answers import Record
from editloupe.findings import Finding
from editloupe.protocols.base import BaseProtocol, Known, NoValue, score_of, whole
from editloupe.protocols.edival.chain import Chain, gap
from editloupe.protocols.edival.rules import Rules
from editloupe.protocols.edival.sights import picture_of
from editloupe.scores import Interval, Metric, Real, Score
from editloupe.tasks import About, Measure
from editloupe.values import Json, Sample

STATISTICS: Final = "image_statistics"
"""The question whose answer has the five statistics; also the name of the measure."""
PREFERENCE: Final = "preference"
CHANGE: Final = "_change"
"""Behind the id of a metric: |its value - the base image's|."""

_METRICS: Final[Mapping[str, tuple[Metric, ...]]] = {
    STATISTICS: (
        Metric(id="luminance_p99", name="Luminance, 99 %", short="p99", domain=Interval(low=0, high=1), better=None),
        Metric(id="luminance_p999", name="Luminance, 99.9 %", short="p999", domain=Interval(low=0, high=1), better=None),
        Metric(id="saturation", name="Saturation", domain=Interval(low=0, high=1), better=None),
        Metric(id="sharpness", name="Sharpness", domain=Real(), better=None),
        Metric(id="contrast", name="Contrast", domain=Real(), better=None),
    ),
    PREFERENCE: (Metric(id=PREFERENCE, name="Human preference", short="HPS", domain=Real(), source="Table 4"),),
}
"""Question → its metrics."""
_ASKED: Final = {"none": (), "statistics": (STATISTICS,), "preference": (PREFERENCE,), "all": (STATISTICS, PREFERENCE)}
"""Option `quality` → questions."""


def quality_metrics(quality: str) -> list[Metric]:
    """Return the metrics that `score_quality` reports: each value of an image, then its change from the base image's."""
    values = [metric for question in _ASKED[quality] for metric in _METRICS[question]]
    return [*values, *map(_change, values)]


def _change(metric: Metric) -> Metric:
    name, short = f"{metric.name}, |change|", f"|Δ {metric.short}|"
    return replace(metric, id=metric.id + CHANGE, name=name, short=short, better=None)


def plan_quality(protocol: BaseProtocol, sample: Sample) -> Iterator[Measure]:
    """Return the measures of the base image and of the image after each turn."""
    rules: Rules = protocol.options.rules
    for turn in range(len(sample.turns) + 1):
        about, views = About.of(sample, turn=turn), whole({"image": picture_of(sample, turn)})
        for question in _ASKED[protocol.options.quality]:
            args = (_light if question == STATISTICS else _prompt)(sample, turn, rules)
            more = {"args": args, "views": views, "blocked": gap(sample, turn, rules)}
            yield protocol.measurement(question, about, question, **more)


def _light(sample: Sample, turn: int, rules: Rules) -> dict[str, Json]:
    picture, base = picture_of(sample, turn), sample.source
    other = picture is not None and (picture.width, picture.height) != (base.width, base.height)
    return {"light": rules.luminance, **({"size": [base.width, base.height]} if other else {})}


def _prompt(sample: Sample, turn: int, rules: Rules) -> dict[str, Json]:
    asked = turn > 0 and rules.preference_prompt == "instruction"
    return {"prompt": sample.turns[turn - 1].instruction if asked else ""}


def score_quality(protocol: BaseProtocol, sample: Sample, chain: Chain, known: Known) -> Iterator[Score]:
    """Return the scores of the image after each turn: a value, and its change from the base image's."""
    for turn in range(1, len(sample.turns) + 1):
        score = partial(score_of, about=About.of(sample, turn=turn), dims=chain.dims_at(turn))
        for question in _ASKED[protocol.options.quality]:
            base, after = (known.finding(question, About.of(sample, turn=number)) for number in (0, turn))
            ids = tuple(finding.task_id for finding in (base, after) if finding is not None)
            own = () if after is None else (after.task_id,)
            for metric in _METRICS[question]:
                value, first = _value(metric.id, after), _value(metric.id, base)
                yield score(metric.id, value=value, findings=own)
                if isinstance(first, NoValue):
                    value = NoValue(first.status, first.reason and f"the base image: {first.reason}")
                change = value if isinstance(value, NoValue) else abs(value - first)
                yield score(metric.id + CHANGE, value=change, findings=ids)


def _value(metric: str, finding: Finding | None) -> Any:
    """Return the value of a metric, a float, or a NoValue."""
    if finding is None or finding.answer is None:
        return NoValue.of(finding)
    data = finding.answer.data if isinstance(finding.answer, Record) else None
    value = data.get(metric) if isinstance(data, Mapping) else finding.answer.value
    if isinstance(value, int | float):
        return float(value)
    # What ends in an answer comes from a result file.
    why = "the file has none on its scale" if finding.ending == "answer" else "an image that is dark all over has none"
    return NoValue("not_defined", f"no {metric} is known: {why}")
