"""EdiVal-CC: whether what no edit touched is still as it was in the base image (paper, Eq. 3 and appendix I.3).

Reproduced:
- unchanged objects are found in the base image at 0.35; the same places of the image after turn t are compared, and their
  mean is the object consistency;
- the background is what lies outside the boxes of every object that has ever been there, found in the base image and in
  the image after turn t, while no edit has changed the background;
- content consistency is the mean of the two that are defined; L1 variants beside them.

Differs, each with an option that does as the published code:
- patches of the encoder are patches (`cc_tokens`); the code counts register tokens as patches;
- after a change of the background the objects are still compared, and an added text is looked for as "text"; the code
  compares nothing after such a change and looks for the words of the text (`cc_rules`);
- no box found has no value; the code gives 0 (`cc_no_box`);
- black bars of padded base images may be left out (`cc_bars`).

Differs without an option:
- each object is looked for on its own; the code asks for all in one caption;
- images keep their size and shape, and a place is a share of the sides; the code squashes all images to 512×512 px. Both
  compare the same places;
- a box that touches a pixel covers it; the code cuts its edges off to whole px;
- the difference that an alignment of the two images leaves stands beside the values, since boxes of the base image are
  laid on an output that may have moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal

from editloupe.findings import Finding
from editloupe.measures.pixels import residual_left
from editloupe.protocols.base import Known
from editloupe.protocols.edival.chain import Chain, ChainOptions, gap
from editloupe.protocols.edival.instructions import TEXT_CHANGE
from editloupe.protocols.edival.sights import Sight, detect, looked, picture_of, sights_of, spelled
from editloupe.scores import NOT_JUDGED, Interval, Metric, Score
from editloupe.tasks import About, Measure, Recipe
from editloupe.values import Box, Json, Sample

FOUND_AT: Final = 0.35
"""The least score of a box (appendix I.3)."""

OBJECTS: Final = "object_consistency"
BACKGROUND: Final = "background_consistency"
CONTENT: Final = "content_consistency"
OBJECTS_L1: Final = "object_l1"
BACKGROUND_L1: Final = "background_l1"
ALIGNMENT: Final = "alignment"

_SHARE: Final = Interval(low=0, high=1)
_METRICS: Final[Mapping[str, Metric]] = {
    metric.id: metric
    for metric in (
        Metric(id=OBJECTS, name="Object consistency", short="Object", domain=_SHARE, source="Eq. 3"),
        Metric(id=BACKGROUND, name="Background consistency", short="Background", domain=_SHARE, source="Eq. 3"),
        Metric(id=CONTENT, name="Content consistency", short="CC", domain=_SHARE, source="Eq. 3"),
        Metric(id=OBJECTS_L1, name="Object L1 consistency", short="Object L1", domain=_SHARE, source="Table 14"),
        Metric(id=BACKGROUND_L1, name="Background L1 consistency", short="Background L1", domain=_SHARE, source="Table 14"),
        Metric(id=ALIGNMENT, name="Residual after alignment", short="Alignment", domain=_SHARE, better=None),
    )
}


class ConsistencyOptions(ChainOptions):
    """The options of EdiVal-CC, from which a protocol's own derive.

    The published code is cc_tokens=official, cc_rules=official, cc_no_box=zero.
    """

    cc: Literal["none", "l1", "dino", "all"] = "all"
    """Consistency of what no edit touched: by an encoder (dino), by pixels (l1), both (all), or none."""
    cc_tokens: Literal["paper", "official"] = "paper"
    """paper: an encoder's patches are patches. official: register tokens count as patches, as in the published code."""
    cc_rules: Literal["paper", "official"] = "paper"
    """official: nothing is compared once the background was changed, and the words of an added text are an object."""
    cc_no_box: Literal["missing", "zero"] = "missing"
    """What unchanged objects count that the detector does not find: no value, or 0 as in the published code."""
    cc_bars: Literal["count", "leave_out"] = "count"
    """Whether black bars that pad the base image count."""


def consistency_metrics(options: ConsistencyOptions) -> list[Metric]:
    """Return the metrics that `score_consistency` reports."""
    if options.cc == "none":
        return []
    names = [*_of_objects(options), *_of_background(options)]
    ids = {*names, ALIGNMENT, *([CONTENT] if OBJECTS in names else [])}
    return [metric for id_, metric in _METRICS.items() if id_ in ids]


def plan_consistency(
    protocol: str, sample: Sample, chain: Chain, known: Known, options: ConsistencyOptions
) -> Iterator[Measure]:
    """Return the detections that are needed and, where they are there, the measures of each turn, each task once.

    A protocol that asks for detections elsewhere too may get a task from both places.
    """
    planned: dict[str, Measure] = {}
    if options.cc != "none":
        for turn in range(1, len(sample.turns) + 1):
            for task in _of_turn(protocol, sample, chain, turn, known, options):
                planned.setdefault(task.id, task)
    yield from planned.values()


def score_consistency(sample: Sample, chain: Chain, known: Known, options: ConsistencyOptions) -> Iterator[Score]:
    """Return the scores of each turn. A cosine below 0 counts as 0; the finding keeps it."""
    if options.cc == "none":
        return
    for turn in range(1, len(sample.turns) + 1):
        about = About.of(sample, turn=turn)
        dims = chain.dims_at(turn)
        blocked = gap(sample, turn, options)
        parts: dict[str, _Part] = {}
        for names, found in (
            (_of_objects(options), _objects(sample, chain, turn, known, options)),
            (_of_background(options), _background(sample, chain, turn, known, options)),
        ):
            for name in names:
                finding = known.finding(name, about)
                # What a result file says is taken as it is, also where its image is not here.
                given = finding is not None and finding.ending == "answer"
                parts[name] = _part(finding, _Boxes() if given else _Part(missing=blocked) if blocked else found)
        for name, part in parts.items():
            yield part.score(name, about, dims)
        if OBJECTS in parts:
            yield _content(parts, about, dims)
        yield _alignment(known.finding(ALIGNMENT, about), about, dims)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What is known of one kind of consistency of one turn: a value, or why there is none."""

    value: float | None = None
    missing: tuple[str, str] | None = None
    """Status and reason."""
    undefined: bool = False
    """Whether there is no value because there is nothing to compare. The content is then what else is compared."""
    reason: str = ""
    findings: tuple[str, ...] = ()

    def score(self, metric: str, about: About, dims: Mapping[str, str | int | float | None]) -> Score:
        """Return the part as a score."""
        status, reason = self.missing or (None, self.reason)
        return Score(
            **vars(about),
            metric=metric,
            value=self.value,
            missing=status,
            reason=reason,
            findings=self.findings,
            dims=dims,
        )


@dataclass(frozen=True, kw_only=True)
class _Boxes:
    """What the detections of some objects in one or two pictures say."""

    base: tuple[Box, ...] = ()
    """Boxes of the base image, in thousandths."""
    after: tuple[Box, ...] = ()
    """Boxes of the image after the turn, in thousandths."""
    wanted: tuple[tuple[int, str], ...] = ()
    """Picture and phrase of what nobody has looked for yet."""
    findings: tuple[str, ...] = ()
    """Task ids of the detections."""


def _of_objects(options: ConsistencyOptions) -> list[str]:
    return {"none": [], "l1": [OBJECTS_L1], "dino": [OBJECTS], "all": [OBJECTS, OBJECTS_L1]}[options.cc]


def _of_background(options: ConsistencyOptions) -> list[str]:
    return {"none": [], "l1": [BACKGROUND_L1], "dino": [BACKGROUND], "all": [BACKGROUND, BACKGROUND_L1]}[options.cc]


def _of_turn(
    protocol: str, sample: Sample, chain: Chain, turn: int, known: Known, options: ConsistencyOptions
) -> Iterator[Measure]:
    blocked, edited = gap(sample, turn, options), picture_of(sample, turn)
    images = {"source": sample.source, **({} if edited is None else {"edited": edited})}

    def measure(name: str, args: Mapping[str, Json], rests_on: tuple[str, ...] = ()) -> Measure:
        return Measure(
            protocol=protocol,
            metric=name,
            about=About.of(sample, turn=turn),
            measure=name,
            args=args,
            views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items()),
            rests_on=rests_on,
            blocked=blocked,
        )

    yield measure(ALIGNMENT, {"mask": "none"})
    for names, found in (
        (_of_objects(options), _objects(sample, chain, turn, known, options)),
        (_of_background(options), _background(sample, chain, turn, known, options)),
    ):
        for name in names if blocked else ():
            yield measure(name, _args(name, _Boxes(), options))
        if blocked or isinstance(found, _Part):
            continue
        for picture, phrase in found.wanted:
            yield detect(protocol, sample, picture, phrase)
        for name in names if not found.wanted else ():
            yield measure(name, _args(name, found, options), found.findings)


def _args(name: str, boxes: _Boxes, options: ConsistencyOptions) -> dict[str, Json]:
    """Return the arguments of a measure; options are left out where they are its default."""
    base: Json = [list(box) for box in boxes.base]
    after: Json = [list(box) for box in boxes.after]
    args: dict[str, Json] = (
        {"boxes": base} if name in (OBJECTS, OBJECTS_L1) else {"source_boxes": base, "edited_boxes": after}
    )
    if options.cc_bars != "count":
        args["bars"] = options.cc_bars
    if name in (OBJECTS, BACKGROUND) and options.cc_tokens != "paper":
        args["tokens"] = options.cc_tokens
    return args


def _objects(sample: Sample, chain: Chain, turn: int, known: Known, options: ConsistencyOptions) -> _Boxes | _Part:
    """Return the boxes of the unchanged objects in the base image, or why nothing is compared."""
    pools = chain.pools[chain.edits_at(turn) - 1]
    if options.cc_rules == "official" and not pools.background_kept:
        return _nothing("the background was changed, and the published code then compares no object")
    names = _phrases(pools.unchanged)
    if not names:
        return _nothing("every object was edited")
    found = _found(sample, known, [(0, name) for name in names])
    if isinstance(found, _Part) or found.wanted or found.base:
        return found
    count = (
        "the one unchanged object was not found"
        if len(names) == 1
        else f"none of the {len(names)} unchanged objects was found"
    )
    why = f"{count} in the base image with a score of {FOUND_AT:g} or more: {', '.join(names)}"
    if options.cc_no_box == "zero":
        return _Part(value=0.0, reason=f"{why}; it counts 0 by cc_no_box=zero", findings=found.findings)
    return _nothing(why, found.findings)


def _background(sample: Sample, chain: Chain, turn: int, known: Known, options: ConsistencyOptions) -> _Boxes | _Part:
    """Return the boxes of all objects that have ever been there, in both images, or why nothing is compared."""
    edits = chain.edits_at(turn)
    pools = chain.pools[edits - 1]
    if not pools.background_kept:
        return _nothing("the background was changed")
    added = {spelled(edit.new) for edit in chain.edits[:edits] if edit.edit_type == TEXT_CHANGE}
    names = _phrases("text" if options.cc_rules == "paper" and spelled(name) in added else name for name in pools.ever)
    return _found(sample, known, [(picture, name) for picture in (0, turn) for name in names])


def _found(sample: Sample, known: Known, places: Sequence[tuple[int, str]]) -> _Boxes | _Part:
    """Return the boxes of phrases in pictures; a part without a value if the search for one of them failed."""
    findings = {place: finding for place in places if (finding := looked(known, sample, *place)) is not None}
    ids = tuple(finding.task_id for finding in findings.values())
    if wanted := tuple(place for place in places if place not in findings):
        return _Boxes(wanted=wanted, findings=ids)
    base: list[Box] = []
    after: list[Box] = []
    for (picture, phrase), finding in findings.items():
        sights = sights_of(finding)
        if sights is None:
            where = "the base image" if picture == 0 else f"the image after turn {picture}"
            status = finding.status if finding.answer is None else "input_error"
            why = f"{phrase!r} could not be looked for in {where}: {finding.reason or 'its answer cannot be read'}"
            return _Part(missing=(status, why), findings=ids)
        found = base if picture == 0 else after
        found += [_thousandths(sight) for sight in sights if sight.score >= FOUND_AT]
    return _Boxes(base=tuple(base), after=tuple(after), findings=ids)


def _thousandths(sight: Sight) -> Box:
    return Box(*(round(v * 1000, 3) for v in sight.box))


def _phrases(names: Iterable[str]) -> list[str]:
    """Return what is looked for, each phrase once."""
    return [phrase for phrase in dict.fromkeys(map(spelled, names)) if phrase]


def _nothing(why: str, findings: tuple[str, ...] = ()) -> _Part:
    return _Part(missing=("not_defined", why), undefined=True, findings=findings)


def _part(finding: Finding | None, found: _Boxes | _Part) -> _Part:
    """Return what a measure says, or why it was not taken."""
    if isinstance(found, _Part):
        return found
    if finding is None:
        return _Part(missing=(NOT_JUDGED, ""), findings=found.findings)
    ids = (finding.task_id, *found.findings)
    if finding.answer is None or finding.answer.value is None:
        status = "not_defined" if finding.answer is not None else finding.status
        return _Part(missing=(status, finding.reason), undefined=status == "not_defined", findings=ids)
    cosine = finding.answer.value
    reason = f"the cosine is {cosine:.3f} and counts 0" if cosine < 0 else ""
    return _Part(value=max(cosine, 0.0), reason=reason, findings=ids)


def _content(parts: Mapping[str, _Part], about: About, dims: Mapping[str, str | int | float | None]) -> Score:
    """Return the mean of objects and background; of one of them where the other has nothing to compare."""
    named = {"objects": parts[OBJECTS], "background": parts[BACKGROUND]}
    failed = next((part for part in named.values() if part.missing is not None and not part.undefined), None)
    values = {name: part.value for name, part in named.items() if part.value is not None}
    ids = tuple(dict.fromkeys(id_ for part in named.values() for id_ in part.findings))
    left_out = "; ".join(f"no {name}: {part.missing[1]}" for name, part in named.items() if part.missing is not None)
    if failed is not None or not values:
        missing = failed.missing if failed is not None and failed.missing else ("not_defined", left_out)
        return _Part(missing=missing, findings=ids).score(CONTENT, about, dims)
    part = _Part(value=fmean(values.values()), reason=left_out, findings=ids)
    return part.score(CONTENT, about, {**dims, "compared": " and ".join(values)})


def _alignment(finding: Finding | None, about: About, dims: Mapping[str, str | int | float | None]) -> Score:
    """Return which share of the difference between the two images an alignment leaves."""
    if finding is None:
        return _Part(missing=(NOT_JUDGED, "")).score(ALIGNMENT, about, dims)
    if finding.answer is None:
        return _Part(missing=(finding.status, finding.reason), findings=(finding.task_id,)).score(ALIGNMENT, about, dims)
    left, why = residual_left(finding.answer)
    missing = None if left is not None else ("not_defined", why)
    return _Part(value=left, missing=missing, findings=(finding.task_id,)).score(ALIGNMENT, about, dims)
