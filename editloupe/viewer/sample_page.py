"""Gather what one sample's page shows: the labels, the images with their boxes, and each verdict step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from editloupe.scores import Metric
from editloupe.values import ImageRef
from editloupe.viewer.grid import grid, put_beside
from editloupe.viewer.marks import home, targets
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunSample
from editloupe.viewer.rows import OwnScore, own_scores, question_name, score_scope, score_words, target_area, tone
from editloupe.viewer.site_run import SiteRun
from editloupe.viewer.verdicts import VerdictView, verdicts


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
    found, columns = list[VerdictView](), dict[str, str]()
    for one, own in together:
        names = one.reader.judge_names()
        named = {id_: name if often[name] == 1 else f"{name} · {one.reader.name}" for id_, name in names.items()}
        at = "../" if one is run else f"../../{one.folder}"
        found += verdicts(one, own, metrics, numbers, at=at, named=named)
        columns |= {f"{one.folder}{id_}": named[id_] for id_ in one.reader.info.judge_names()}
    put_beside(found)
    marks = [*targets(edit), *(m for v in found for m in v.marks)]
    mains = reader.info.judges()
    judges = reader.judge_names() if len(mains) > 1 else {}
    main, more = _panes(sample)
    return {
        "sample": edit,
        "verdicts": found,
        "labels": grid(sample, found, metrics, columns),
        "metrics": metrics,
        "home": home(edit, marks),
        "scores": list(_scores(sample, own_scores(sample, scored, mains), metrics, judges)),
        "panes": main,
        "more": more,
        "strip": _strip(sample),
        "marks": marks,
        "area": target_area(edit) if edit else None,
    }


def _scores(sample: RunSample, own: Sequence[OwnScore], metrics: Mapping[str, Metric], judges: Mapping[str, str]) -> Any:
    """Scores that are no mere copy of an answer, those of the whole sample first.

    Yields (judge, metric, scope, words, colour, reason). What is said of single parts stands in the grid, where an answer
    says it.
    """
    answered = {(f.metric, f.about.scope) for f in sample.findings}
    for judge, s in sorted(own, key=lambda one: (bool(score_scope(one[1])), one[1].turn)):
        if not (s.part and (s.metric, score_scope(s)) in answered):
            shade = tone(metrics.get(s.metric), s.value)
            yield judges.get(judge, ""), question_name(s.metric, metrics), score_scope(s), score_words(s), shade, s.reason


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


def _strip(entry: RunSample) -> list[tuple[str, str, ImageRef | None]]:
    """The sources and each turn of a chain as (heading, instruction, image or None); [] for a single turn."""
    sample = entry.sample
    if sample is None or len(sample.turns) == 1:
        return []
    sources = enumerate(sample.sources, start=1)
    return [
        *(("Source" if number == 1 else f"Source {number}", "", image) for number, image in sources),
        *((f"After turn {number}", turn.instruction, turn.edited) for number, turn in enumerate(sample.turns, start=1)),
    ]
