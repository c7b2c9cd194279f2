"""EdiVal-CC: whether what no edit touched is still as it was in the base image (paper, Eq. 3 and appendix I.3).

Reproduced: unchanged objects are found in the base image at 0.35, and the same places of the image after turn t are
compared; the background is what lies outside the boxes of every object that has ever been there, in both images, while no
edit has changed the background; content consistency is the mean of the two that are defined; L1 variants beside them.

Differs, each with a rule in `rules.toml` that does as the published code: register tokens are no patches (`cc_tokens`); the
objects are still compared after a change of the background, and an added text is looked for as "text" (`cc_rules`); no box
found has no value, where the code gives 0 (`cc_no_box`).

Differs without an option: each object is looked for on its own; images keep their size and shape, where the code squashes
them to 512×512 px; a box that touches a pixel covers it; the difference that an alignment leaves stands beside the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Final, TypeAlias

from editloupe.findings import Finding
from editloupe.measures.pixels import residual_left
from editloupe.protocols.base import BaseProtocol, Known, NoValue, score_of, whole
from editloupe.protocols.edival.chain import Chain, gap
from editloupe.protocols.edival.instructions import TEXT_CHANGE
from editloupe.protocols.edival.rules import Rules
from editloupe.protocols.edival.sights import Eyes, Sight, picture_of, spelled
from editloupe.scores import Interval, Metric, Score
from editloupe.tasks import About, Task
from editloupe.values import Json, Sample

FOUND_AT: Final = 0.35
"""The least score of a box (appendix I.3)."""

OBJECTS: Final = "object_consistency"
BACKGROUND: Final = "background_consistency"
CONTENT: Final = "content_consistency"
OBJECTS_L1: Final = "object_l1"
BACKGROUND_L1: Final = "background_l1"
ALIGNMENT: Final = "alignment"

_SHARE: Final = Interval(low=0, high=1)
_METRICS: Final = (
    Metric(id=OBJECTS, name="Object consistency", short="Object", domain=_SHARE, source="Eq. 3"),
    Metric(id=BACKGROUND, name="Background consistency", short="Background", domain=_SHARE, source="Eq. 3"),
    Metric(id=CONTENT, name="Content consistency", short="CC", domain=_SHARE, source="Eq. 3"),
    Metric(id=OBJECTS_L1, name="Object L1 consistency", short="Object L1", domain=_SHARE, source="Table 14"),
    Metric(id=BACKGROUND_L1, name="Background L1 consistency", short="Background L1", domain=_SHARE, source="Table 14"),
    Metric(id=ALIGNMENT, name="Residual after alignment", short="Alignment", domain=_SHARE, better=None),
)
_ASKED: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "none": ((), ()),
    "l1": ((OBJECTS_L1,), (BACKGROUND_L1,)),
    "dino": ((OBJECTS,), (BACKGROUND,)),
    "all": ((OBJECTS, OBJECTS_L1), (BACKGROUND, BACKGROUND_L1)),
}
"""Option `cc` → the measures of the objects, and of the background."""


def consistency_metrics(cc: str) -> list[Metric]:
    """Return the metrics that `score_consistency` reports."""
    objects, background = _ASKED[cc]
    ids = {*objects, *background, *([ALIGNMENT] if objects else []), *([CONTENT] if OBJECTS in objects else [])}
    return [metric for metric in _METRICS if metric.id in ids]


_Look: TypeAlias = tuple[tuple[str, ...], Eyes, Mapping[str, Json] | NoValue]
"""Measures, what is seen for them, and the boxes that they compare, or why there are none."""


def _looks(protocol: BaseProtocol, sample: Sample, chain: Chain, turn: int, known: Known) -> Iterator[_Look]:
    """Yield what is known of the unchanged objects and of the background after a turn."""
    rules: Rules = protocol.options.rules
    blocked = gap(sample, turn, rules)
    for names, places in zip(_ASKED[protocol.options.cc], (_of_objects, _of_background), strict=True):
        eyes = Eyes(protocol=protocol, sample=sample, known=known)
        try:
            if blocked is not None:
                raise NoValue(*blocked)
            yield names, eyes, places(eyes, chain, turn, rules)
        except NoValue as nothing:
            yield names, eyes, nothing


def plan_consistency(protocol: BaseProtocol, sample: Sample, chain: Chain, known: Known) -> Iterator[Task]:
    """Return the detections that are needed and, where they are there, the measures of each turn."""
    rules: Rules = protocol.options.rules
    for turn in _turns(protocol, sample):
        views = whole({"source": sample.source, "edited": picture_of(sample, turn)})
        about, blocked = About.of(sample, turn=turn), gap(sample, turn, rules)
        measure = partial(protocol.measurement, about=about, views=views, blocked=blocked)
        yield measure(ALIGNMENT, measure=ALIGNMENT, args={"mask": "none"})
        tokens: dict[str, Json] = {} if rules.cc_tokens == "paper" else {"tokens": rules.cc_tokens}
        for names, eyes, places in _looks(protocol, sample, chain, turn, known):
            yield from eyes.tasks.values()
            boxes = {} if isinstance(places, NoValue) else places
            for name in names if blocked or places is boxes else ():
                own = tokens if name in (OBJECTS, BACKGROUND) else {}
                yield measure(name, measure=name, args={**boxes, **own}, rests_on=tuple(eyes.found))


def _turns(protocol: BaseProtocol, sample: Sample) -> range:
    """Return the turns that are compared: all, or none."""
    return range(1, len(sample.turns) + 1 if protocol.options.cc != "none" else 1)


class _Nothing(NoValue):
    """There is nothing to compare. The content is then what else is compared.

    counts: what nothing counts, if it counts.
    """

    def __init__(self, reason: str, counts: float | None = None) -> None:
        self.counts = counts
        super().__init__("not_defined", reason)


def _of_objects(eyes: Eyes, chain: Chain, turn: int, rules: Rules) -> dict[str, Json]:
    """Return the boxes of the unchanged objects in the base image. Raises NoValue where there are none to compare."""
    pools = chain.pools[chain.edits_at(turn) - 1]
    if rules.cc_rules == "official" and not pools.background_kept:
        raise _Nothing("the background was changed, and the published code then compares no object")
    names = _phrases(pools.unchanged)
    if not names:
        raise _Nothing("every object was edited")
    if boxes := _boxes(eyes.see(*((0, name) for name in names))):
        return {"boxes": boxes}
    one = len(names) == 1
    count = "the one unchanged object was not found" if one else f"none of the {len(names)} unchanged objects was found"
    why = f"{count} in the base image with a score of {FOUND_AT:g} or more: {', '.join(names)}"
    if rules.cc_no_box == "zero":
        raise _Nothing(f"{why}; it counts 0 by cc_no_box=zero", counts=0.0)
    raise _Nothing(why)


def _of_background(eyes: Eyes, chain: Chain, turn: int, rules: Rules) -> dict[str, Json]:
    """Return the boxes of all objects that have ever been there, in both images. Raises NoValue as `_of_objects`."""
    edits = chain.edits_at(turn)
    pools = chain.pools[edits - 1]
    if not pools.background_kept:
        raise _Nothing("the background was changed")
    added = {spelled(edit.new) for edit in chain.edits[:edits] if edit.edit_type == TEXT_CHANGE}
    names = _phrases("text" if rules.cc_rules == "paper" and spelled(name) in added else name for name in pools.ever)
    seen = eyes.see(*((picture, name) for picture in (0, turn) for name in names))
    return {"source_boxes": _boxes(seen[: len(names)]), "edited_boxes": _boxes(seen[len(names) :])}


def _boxes(found: Iterable[Iterable[Sight]]) -> list[Json]:
    """Return the boxes of what is seen, in thousandths."""
    return [[round(v * 1000, 3) for v in sight.box] for sights in found for sight in sights if sight.score >= FOUND_AT]


def _phrases(names: Iterable[str]) -> list[str]:
    """Return what is looked for, each phrase once."""
    return [phrase for phrase in dict.fromkeys(map(spelled, names)) if phrase]


def score_consistency(protocol: BaseProtocol, sample: Sample, chain: Chain, known: Known) -> Iterator[Score]:
    """Return the scores of each turn. A cosine below 0 counts as 0; the finding keeps it."""
    for turn in _turns(protocol, sample):
        about, dims = About.of(sample, turn=turn), chain.dims_at(turn)
        parts = {
            name: _part(known.finding(name, about), places if isinstance(places, NoValue) else None, tuple(eyes.found))
            for names, eyes, places in _looks(protocol, sample, chain, turn, known)
            for name in names
        }
        if OBJECTS in parts:
            parts[CONTENT] = _content(parts[OBJECTS], parts[BACKGROUND])
        parts[ALIGNMENT] = _aligned(known.finding(ALIGNMENT, about))
        for name, part in parts.items():
            shown = {**dims, "compared": part.compared} if part.compared else dims
            yield score_of(name, about, part.value, reason=part.reason, findings=part.findings, dims=shown)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What is known of one kind of consistency of one turn."""

    value: float | NoValue
    reason: str = ""
    findings: tuple[str, ...] = ()
    compared: str = ""
    """What a content is the mean of."""


def _part(finding: Finding | None, nothing: NoValue | None, seen: tuple[str, ...]) -> _Part:
    """Return what a measure says, or why it was not taken.   seen: the detections that its boxes come from."""
    if finding is not None and finding.ending == "answer":
        # What a result file says is taken as it is, also where its image is not here.
        nothing, seen = None, ()
    if nothing is not None:
        counts = nothing.counts if isinstance(nothing, _Nothing) else None
        return _Part(value=nothing if counts is None else counts, reason=nothing.reason, findings=seen)
    ids = seen if finding is None else (finding.task_id, *seen)
    if finding is None or finding.answer is None or finding.answer.value is None:
        none = NoValue.of(finding)
        undefined = finding is not None and (finding.answer is not None or finding.status == "not_defined")
        return _Part(value=_Nothing(none.reason) if undefined else none, reason=none.reason, findings=ids)
    cosine = finding.answer.value
    reason = f"the cosine is {cosine:.3f} and counts 0" if cosine < 0 else ""
    return _Part(value=max(cosine, 0.0), reason=reason, findings=ids)


def _content(objects: _Part, background: _Part) -> _Part:
    """Return the mean of objects and background; one of them where the other has nothing to compare."""
    named = {"objects": objects, "background": background}
    ids = tuple(dict.fromkeys((*objects.findings, *background.findings)))
    lost = {name: part for name, part in named.items() if isinstance(part.value, NoValue)}
    if failed := next((part for part in lost.values() if not isinstance(part.value, _Nothing)), None):
        return replace(failed, findings=ids)
    left_out = "; ".join(f"no {name}: {part.reason}" for name, part in lost.items())
    values = {name: part.value for name, part in named.items() if not isinstance(part.value, NoValue)}
    if not values:
        return _Part(value=NoValue("not_defined"), reason=left_out, findings=ids)
    return _Part(value=fmean(values.values()), reason=left_out, findings=ids, compared=" and ".join(values))


def _aligned(finding: Finding | None) -> _Part:
    """Return which share of the difference between the two images an alignment leaves."""
    if finding is None or finding.answer is None:
        return _part(finding, None, ())
    left, why = residual_left(finding.answer)
    return _Part(value=NoValue("not_defined") if left is None else left, reason=why, findings=(finding.task_id,))
