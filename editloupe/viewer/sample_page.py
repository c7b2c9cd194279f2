"""Gather what one sample's page shows: the labels, the images with their boxes, and each verdict step by step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.scores import NOT_JUDGED, Metric
from editloupe.values import ImageRef, Json
from editloupe.viewer.grid import grid, put_beside
from editloupe.viewer.marks import home, targets
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunSample
from editloupe.viewer.rows import OwnScore, own_scores, question_name, score_scope, score_words, target_area, tone
from editloupe.viewer.site_run import SiteRun
from editloupe.viewer.verdicts import Verdict, verdicts


@dataclass(frozen=True, kw_only=True)
class ShownScore:
    """A score that is no mere copy of an answer."""

    name: str
    scope: str
    by: str
    """The judge's name; "" where there is one judge."""
    words: str
    tone: str
    reason: str


def sample_values(
    run: SiteRun, sample: RunSample, numbers: Numbers, peers: Sequence[tuple[SiteRun, RunSample]] = ()
) -> dict[str, Any]:
    """Return what the template of a sample's page names, but for what lies around the sample.

    peers: other runs that judged the very same sample; their judges stand beside those of the run.
    """
    metrics, edit, reader = run.metrics, sample.sample, run.reader
    scored = numbers.scores(reader).get(sample.key, ())
    together = [(run, sample), *peers]
    often = Counter(name for one, _ in together for name in one.reader.judge_names().values())
    found, columns = list[Verdict](), dict[str, str]()
    for one, own in together:
        names = one.reader.judge_names()
        named = {id_: name if often[name] == 1 else f"{name} · {one.reader.name}" for id_, name in names.items()}
        at = "../" if one is run else f"../../{one.folder}"
        found += verdicts(one, own, metrics, numbers, at=at, named=named)
        columns |= {f"{one.folder}{id_}": named[id_] for id_ in one.reader.info.judge_names()}
    put_beside(found)
    marks = [*targets(edit), *(m for v in found for m in v.marks)]
    mask = edit.masks.get("edit") if edit else None
    mains = reader.info.judges()
    judges = reader.judge_names() if len(mains) > 1 else {}
    scores, by_turn = _scores(sample, own_scores(sample, scored, mains), scored, metrics, judges)
    main, more = _panes(sample)
    return {
        "sample": edit,
        "verdicts": found,
        "labels": grid(sample, found, metrics, columns),
        "metrics": metrics,
        "home": home(edit, marks),
        "scores": scores,
        "by_turn": by_turn,
        "panes": main,
        "more": more,
        "strip": _strip(sample),
        "marks": marks,
        "area": target_area(edit) if edit else None,
        "overlay": run.pictures.overlay_name(mask) if mask is not None else None,
    }


def _scores(
    sample: RunSample,
    own: Sequence[OwnScore],
    scored: Sequence[OwnScore],
    metrics: Mapping[str, Metric],
    judges: Mapping[str, str],
) -> tuple[list[ShownScore], dict[tuple[str, str], dict[int, ShownScore]]]:
    """The scores of the whole sample first, and of a chain those of its turns as (metric, judge) → turn → score."""
    several = sample.sample is not None and len(sample.sample.turns) > 1

    def shown(judge: str, score: Any) -> ShownScore:
        return ShownScore(
            name=question_name(score.metric, metrics),
            scope=score_scope(score),
            by=judges.get(judge, ""),
            words=score_words(score),
            tone=tone(metrics.get(score.metric), score.value),
            reason=score.reason,
        )

    ordered = sorted(own, key=lambda one: (bool(score_scope(one[1])), one[1].turn))
    # What is said of single parts stands in the grid, where an answer says it.
    answered = {(f.metric, f.about.scope) for f in sample.findings}
    whole = [
        shown(judge, s)
        for judge, s in ordered
        if (not several or not s.turn or s.part) and not (s.part and (s.metric, score_scope(s)) in answered)
    ]
    by_turn: dict[tuple[str, str], dict[int, ShownScore]] = {}
    for judge, s in scored if several else ():
        if s.turn and not s.part and s.missing != NOT_JUDGED:
            one = shown(judge, s)
            by_turn.setdefault((one.name, one.by), {})[s.turn] = one
    return whole, by_turn


def _panes(entry: RunSample) -> tuple[list[tuple[str, str, ImageRef]], list[tuple[str, ImageRef]]]:
    """The images to look at as (role, heading, image), source and edited first, and further ones as (heading, image).

    Of a pair of edits both are looked at.
    """
    sample = entry.sample
    if sample is None:
        return [], []
    found = [("source", "Source", sample.source)]
    # Of a chain the last turn that has an output; the strip of turns says where there is none.
    last = next((n for n in range(len(sample.turns), 0, -1) if sample.turns[n - 1].edited is not None), 0)
    edited = sample.turns[last - 1].edited if last else None
    if edited is not None:
        heading = f"Edit of {sample.editor}" if entry.partners else "Edited"
        found.append(("edited", heading if len(sample.turns) == 1 else f"After turn {last}", edited))
    others = [(other, other.edited) for other in entry.partners if other.edited is not None]
    found += [("other", f"Edit of {other.editor or other.key}", image) for other, image in others[:1]]
    more = [(f"Source {number}", image) for number, image in enumerate(sample.further, start=2)]
    more += [("Reference", sample.reference)] if sample.reference is not None else []
    more += [(f"Edit of {other.editor or other.key}", image) for other, image in others[1:]]
    return found, more + [(f"Mask: {name}", mask) for name, mask in sample.masks.items()]


def _strip(entry: RunSample) -> list[tuple[str, str, ImageRef | None, list[tuple[str, str]]]]:
    """The source and each turn of a chain as (heading, instruction, image or None, columns); [] for a single turn."""
    sample = entry.sample
    if sample is None or len(sample.turns) == 1:
        return []
    found: list[tuple[str, str, ImageRef | None, list[tuple[str, str]]]] = [
        ("Source" if number == 1 else f"Source {number}", "", image, [])
        for number, image in enumerate(sample.sources, start=1)
    ]
    by_turn = {k: v for k, v in sample.extra.items() if isinstance(v, list | tuple) and len(v) == len(sample.turns)}
    for number, turn in enumerate(sample.turns):
        columns = [(name.replace("_", " "), _value(values[number])) for name, values in by_turn.items()]
        shown = [(name, words) for name, words in columns if words != turn.instruction]
        found.append((f"After turn {number + 1}", turn.instruction, turn.edited, shown))
    return found


def _value(value: Json) -> str:
    """A column's value in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
