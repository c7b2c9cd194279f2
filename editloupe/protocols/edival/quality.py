"""EdiVal-VQ: how good the image after a turn looks (paper, 2.4 and appendix G). No part of the overall score.

Reproduced:
- HPSv3's mean of the image after turn t, and |change| from the base image's (Table 4; 18 and 19);
- luminance (Rec. 709) that 99 and 99.9 % of the pixels do not exceed; saturation, sharpness and contrast by the formulas of
  the published code.

Differs, each with an option that does otherwise:
- the same prompt, "", conditions HPSv3 for the base image and for the edited one; the published code gives the edited image
  its instruction, so that a change mixes both (`preference_prompt`);
- luminance is that of linear light, as in the code; the text weighs gamma values (`luminance`).

Differs without an option:
- images are brought to the base image's size for the statistics, in place of 512×512 px;
- a statistic that an image does not have is missing, in place of 0: saturation of a dark image, contrast of a black one;
- Table 4's |change| is that of the means over images; a score here is that of one image, and a mean of scores is larger.

Not covered: RAHF's plausibility and aesthetics, and the code's index of over-exposure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from editloupe.answers import Record
from editloupe.findings import Finding
from editloupe.measures.statistics import Light
from editloupe.protocols.base import Known
from editloupe.protocols.edival.chain import Chain, ChainOptions, gap
from editloupe.protocols.edival.sights import picture_of
from editloupe.scores import NOT_JUDGED, Interval, Metric, Real, Score
from editloupe.tasks import About, Measure, Recipe
from editloupe.values import Json, Sample

STATISTICS: Final = "image_statistics"
"""The question whose answer has the five statistics; also the name of the measure."""
PREFERENCE: Final = "preference"
CHANGE: Final = "_change"
"""Behind the id of a metric: |its value - the base image's|."""

_OF_STATISTICS: Final = (
    Metric(id="luminance_p99", name="Luminance, 99 %", short="p99", domain=Interval(low=0, high=1), better=None),
    Metric(id="luminance_p999", name="Luminance, 99.9 %", short="p999", domain=Interval(low=0, high=1), better=None),
    Metric(id="saturation", name="Saturation", domain=Interval(low=0, high=1), better=None),
    Metric(id="sharpness", name="Sharpness", domain=Real(), better=None),
    Metric(id="contrast", name="Contrast", domain=Real(), better=None),
)
_OF_PREFERENCE: Final = (Metric(id=PREFERENCE, name="Human preference", short="HPS", domain=Real(), source="Table 4"),)


class QualityOptions(ChainOptions):
    """The options of EdiVal-VQ, from which a protocol's own derive."""

    quality: Literal["none", "statistics", "preference", "all"] = "statistics"
    """Statistics of the image (luminance, saturation, sharpness, contrast), human preference (HPSv3, by a server that
    `--preference` names), both, or none."""
    luminance: Light = "linear"
    """Light of which luminance is taken: linear as in the published code, or gamma values as the text says."""
    preference_prompt: Literal["empty", "instruction"] = "empty"
    """Prompt of an edited image: empty, as that of the base image, or its turn's instruction, as in the published code."""


def quality_metrics(options: QualityOptions) -> list[Metric]:
    """Return the metrics that `score_quality` reports: each value of an image, then its change from the base image's."""
    of = {"none": (), "statistics": _OF_STATISTICS, "preference": _OF_PREFERENCE, "all": (*_OF_STATISTICS, *_OF_PREFERENCE)}
    values = of[options.quality]
    return [*values, *map(_change, values)]


def plan_quality(protocol: str, sample: Sample, chain: Chain, known: Known, options: QualityOptions) -> Iterator[Measure]:
    """Return the measures of the base image and of the image after each turn."""
    for turn in range(len(sample.turns) + 1):
        if options.quality in ("statistics", "all"):
            yield _statistics(protocol, sample, turn, options)
        if options.quality in ("preference", "all"):
            yield _preference(protocol, sample, turn, options)


def score_quality(sample: Sample, chain: Chain, known: Known, options: QualityOptions) -> Iterator[Score]:
    """Return the scores of the image after each turn."""
    metrics = [metric.id for metric in quality_metrics(options) if not metric.id.endswith(CHANGE)]
    for turn in range(1, len(sample.turns) + 1):
        for metric in metrics:
            question = PREFERENCE if metric == PREFERENCE else STATISTICS
            base, after = (known.finding(question, About.of(sample, turn=number)) for number in (0, turn))
            yield _score(metric, sample, turn, chain, {"after": after})
            yield _score(metric, sample, turn, chain, {"base": base, "after": after})


def _change(metric: Metric) -> Metric:
    domain = Interval(low=0, high=1) if isinstance(metric.domain, Interval) else Real()
    return Metric(
        id=metric.id + CHANGE,
        name=f"{metric.name}, |change|",
        short=f"|Δ {metric.short}|",
        domain=domain,
        better=None,
        source=metric.source,
    )


def _task(
    protocol: str, sample: Sample, turn: int, measure: str, args: Mapping[str, Json], options: QualityOptions
) -> Measure:
    picture = picture_of(sample, turn)
    return Measure(
        protocol=protocol,
        metric=measure,
        about=About.of(sample, turn=turn),
        measure=measure,
        args=args,
        views=() if picture is None else (Recipe(alias="image", origin=picture),),
        blocked=gap(sample, turn, options),
    )


def _statistics(protocol: str, sample: Sample, turn: int, options: QualityOptions) -> Measure:
    args: dict[str, Json] = {"light": options.luminance}
    picture, base = picture_of(sample, turn), sample.source
    if picture is not None and (picture.width, picture.height) != (base.width, base.height):
        args["size"] = [base.width, base.height]
    return _task(protocol, sample, turn, STATISTICS, args, options)


def _preference(protocol: str, sample: Sample, turn: int, options: QualityOptions) -> Measure:
    edited = turn > 0 and options.preference_prompt == "instruction"
    prompt = sample.turns[turn - 1].instruction if edited else ""
    return _task(protocol, sample, turn, PREFERENCE, {"prompt": prompt}, options)


def _score(metric: str, sample: Sample, turn: int, chain: Chain, findings: Mapping[str, Finding | None]) -> Score:
    """Return the value of the image after a turn, or its change if there is a finding on the base image too."""
    values: list[float] = []
    missing: tuple[str, str] | None = None
    for name, finding in findings.items():
        value, status, reason = _value(metric, finding)
        if value is not None:
            values.append(value)
        elif missing is None:
            missing = (status, f"the base image: {reason}" if name == "base" and reason else reason)
    changed = "base" in findings
    return Score(
        **vars(About.of(sample, turn=turn)),
        metric=metric + CHANGE if changed else metric,
        value=None if missing else abs(values[-1] - values[0]) if changed else values[0],
        missing=None if missing is None else missing[0],
        reason="" if missing is None else missing[1],
        findings=tuple(finding.task_id for finding in findings.values() if finding is not None),
        dims=chain.dims_at(turn),
    )


def _value(metric: str, finding: Finding | None) -> tuple[float | None, str, str]:
    """Return the value of a metric, or None with status and reason."""
    if finding is None or finding.answer is None:
        return None, NOT_JUDGED if finding is None else finding.status, "" if finding is None else finding.reason
    data = finding.answer.data if isinstance(finding.answer, Record) else None
    value = data.get(metric) if isinstance(data, Mapping) else finding.answer.value
    if isinstance(value, int | float):
        return float(value), "ok", ""
    # What ends in an answer comes from a result file.
    why = "the file has none on its scale" if finding.ending == "answer" else "an image that is dark all over has none"
    return None, "not_defined", f"no {metric} is known: {why}"
