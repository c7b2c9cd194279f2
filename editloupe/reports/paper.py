"""The paper's tables from findings alone: scores by edit type and editor (Tables 1 and 4), labels (section 5.2), one.

Means over edit types count every type the same, as the paper's do; means of samples stand beside them. Intervals are
resampled by source image (`reports.estimate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from editloupe.reports.areas import ByArea
from editloupe.reports.grid import Grid, Row
from editloupe.reports.judged import Judged
from editloupe.reports.summary import Cell, Summary, edit_types, summarise, type_order
from editloupe.reports.table import WORST
from editloupe.scores import Score
from editloupe.stats import bootstrap as estimate
from editloupe.stats.bootstrap import ConfidenceInterval, Estimate
from editloupe.values import Json, sample_key

OVERALL: Final = "overall"

_SCORES = (
    "Scores 0 to 100, higher is better; (samples judged/asked, in Overall each once a criterion). Means with their 95 % "
    "interval, resampled by source image, where there is one."
)


def score_grids(judged: Judged) -> list[Grid]:
    """Table 1 (the mean of the criteria), then one grid a criterion (Table 4): edit types by editor."""
    summaries = judged.summaries()
    lenient = _scores_of_editors(judged.scores)
    strict = None
    if any(score.missing == "missing_output" for score in judged.scores):
        counted = [_as_worst(judged, score) for score in judged.scores]
        strict = summarise(judged.protocol, counted), _scores_of_editors(counted)
    columns = [OVERALL, *judged.criteria] if len(judged.criteria) > 1 else list(judged.criteria)
    return [_score_grid(judged, column, summaries, lenient, strict) for column in columns]


def _score_grid(
    judged: Judged,
    column: str,
    summaries: Sequence[Summary],
    lenient: Mapping[str, list[Score]],
    strict: tuple[list[Summary], Mapping[str, list[Score]]] | None,
) -> Grid:
    editors = [summary.editor for summary in summaries]
    types = sorted({t for summary in summaries for t in summary.rows}, key=type_order(edit_types(judged.protocol)))
    known, rows, records = edit_types(judged.protocol), [], []
    for edit_type in types:
        cells = [summary.rows.get(edit_type, {}).get(column) for summary in summaries]
        rows.append(Row(cells=(edit_type, *(_cell(cell) for cell in cells))))
        records += [_record(judged, column, e, edit_type, cell) for e, cell in zip(editors, cells, strict=True)]
    readings: list[tuple[str, Sequence[Summary], Mapping[str, list[Score]]]] = [("", summaries, lenient)]
    if strict is not None:
        readings.append((", missing outputs as the worst", *strict))
    for reading, found, scores in readings:
        if any(t in known for t in types):
            macro = [summary.macro[column] for summary in found]
            intervals = [_interval(judged, column, scores[e], macro=True) for e in editors]
            name = f"Mean of {_present(found, column)} of {len(known)} types{reading}"
            types_ = [summary.types_present[column] for summary in found]
            told = ["" if len(set(types_)) == 1 else f"; {n} type{'s' * (n != 1)}" for n in types_]
            cells_ = [_cell(cell, found_, n) for cell, found_, n in zip(macro, intervals, told, strict=True)]
            rows.append(Row(cells=(name, *cells_), strong=True))
            for e, cell, found_ in zip(editors, macro, intervals, strict=True):
                records.append(_record(judged, column, e, f"mean over types{reading}", cell, found_))
        micro = [summary.micro[column] for summary in found]
        intervals = [_interval(judged, column, scores[e], macro=False) for e in editors]
        cells_ = [_cell(cell, found_) for cell, found_ in zip(micro, intervals, strict=True)]
        rows.append(Row(cells=(f"Mean of all samples{reading}", *cells_), strong=True))
        for e, cell, found_ in zip(editors, micro, intervals, strict=True):
            records.append(_record(judged, column, e, f"mean of all samples{reading}", cell, found_))
    short = "Overall" if column == OVERALL else judged.metrics.metric(column).name
    return Grid(
        name=f"scores-{column.replace('_', '-')}",
        title=f"{short}, by edit type" + (" (mean of the criteria)" if column == OVERALL else ""),
        head=("Edit type", *(e or "(not named)" for e in editors)),
        rows=tuple(rows),
        caption=f"{_SCORES} {WORST}" if judged.mode == "oracle" else _SCORES,
        records=tuple(records),
    )


def label_grids(judged: Judged) -> list[Grid]:
    """How often each label was given to each editor, a criterion each: what an editor's failures are (section 5.2)."""
    return [_label_grid(judged, criterion, judged.summaries()) for criterion in judged.criteria]


def _label_grid(judged: Judged, criterion: str, summaries: Sequence[Summary]) -> Grid:
    rule = judged.metrics.metric(criterion)
    labels = [level.name for level in reversed(rule.levels)]
    statuses = list(dict.fromkeys(status for s in summaries for status in s.statuses.get(criterion, {})))
    columns, records = [], []
    for summary in summaries:
        given, failed = summary.histogram[criterion], summary.statuses.get(criterion, {})
        judged_, asked = sum(given.values()), sum(given.values()) + sum(failed.values())
        shares = [_share(given[label], judged_) for label in labels]
        columns.append([*shares, f"{judged_}/{asked}", *(str(failed.get(status, 0)) for status in statuses)])
        for label in labels:
            share = given[label] / judged_ if judged_ else None
            records.append(_label_record(judged, criterion, summary.editor, label, given[label], share))
        for status in statuses:
            records.append(_label_record(judged, criterion, summary.editor, f"({status})", failed.get(status, 0), None))
    return Grid(
        name=f"labels-{criterion.replace('_', '-')}",
        title=f"{rule.name}: labels",
        head=("Label", *(summary.editor or "(not named)" for summary in summaries)),
        rows=tuple(
            Row(cells=(name, *(column[i] for column in columns)), strong=i == len(labels))
            for i, name in enumerate([*labels, "Judged", *(f"({status})" for status in statuses)])
        ),
        caption=(
            "Samples by label, and the label's share of what was judged; samples judged of asked; then those without a "
            "label, and why." + (f" {WORST}" if judged.mode == "oracle" else "")
        ),
        records=tuple(records),
    )


def area_grids(judged: Judged, found: Sequence[ByArea]) -> list[Grid]:
    """Scores against target areas (Figure 6); nothing where no sample has a box."""
    shown = [one for one in found if one.points]
    if not shown:
        return []
    names = list(dict.fromkeys(name for one in shown for name in one.buckets))
    rows, records = [], []
    for one in shown:
        short = judged.metrics.metric(one.criterion).short
        buckets = [_estimate(one.buckets.get(name)) for name in names]
        rows.append(
            Row(
                cells=(
                    one.editor or "(not named)",
                    short,
                    *buckets,
                    _correlation(one.windowed.r, one.windowed.p, one.windowed.why),
                    _correlation(one.single.r, one.single.p, one.single.why),
                )
            )
        )
        base: dict[str, Json] = {"judge": judged.name, "editor": one.editor, "criterion": one.criterion}
        for name in names:
            mean = one.buckets.get(name)
            records.append(base | {"figure": f"mean, {name}", **(mean.to_json() if mean else {"value": None})})
        for title, r in (("r, windows of 10", one.windowed), ("r, samples, log area", one.single)):
            records.append(base | {"figure": title, "value": r.r, "p": r.p, "judged": r.n, "why": r.why or None})
        records.append(base | {"figure": "without a box", "value": one.without})
    without = max(one.without for one in shown)
    more = f" {without} samples without a box are left out." if without else ""
    return [
        Grid(
            name="scale",
            title="Target area and score",
            head=("Editor", "", *names, "r (p), windows of 10", "r (p), samples"),
            rows=tuple(rows),
            caption=(
                "Mean scores 0 to 100 by target area (share of the source image), judged of asked in brackets. Pearson's r "
                "of area and score: over sliding windows of 10 samples sorted by area, as in the paper's Figure 6, where p "
                f"is too small since windows overlap; and over single samples with the area's logarithm.{more}"
            ),
            fixed=2,
            records=tuple(records),
        )
    ]


def side_by_side(all_judged: Sequence[Judged]) -> Grid | None:
    """Several judges on the same samples: each one's mean over what all could judge, and the difference from the first.

    A judge without any verdict on a criterion is left out of "all" there, and named.
    """
    if len(all_judged) < 2:
        return None
    criteria = _common_criteria(all_judged)
    shared, differing = _same_samples(all_judged)
    if not criteria or not shared:
        return None
    values = [{(s.metric, sample_key(s.editor, s.sample_id)): s for s in j.scores} for j in all_judged]
    rows: list[Row] = []
    records: list[Mapping[str, Json]] = []
    able = {c: [any(k[0] == c and s.normalised is not None for k, s in v.items()) for v in values] for c in criteria}
    common = {
        c: [
            key
            for key in values[0]
            if key[0] == c
            and key[1] in shared
            and any(able[c])
            and all(
                (s := v.get(key)) is not None and s.normalised is not None
                for v, some in zip(values, able[c], strict=True)
                if some
            )
        ]
        for c in criteria
    }
    for number, (judged, own) in enumerate(zip(all_judged, values, strict=True)):
        cells: list[str] = []
        for criterion in criteria:
            keys = common[criterion] if able[criterion][number] else []
            mine = [_value(own[key]) for key in keys]
            clusters = [judged.cluster(own[key]) for key in keys]
            found = estimate.mean(mine, clusters)
            asked = [s for key, s in own.items() if key[0] == criterion]
            judged_ = sum(s.normalised is not None for s in asked)
            differs = None
            if number and able[criterion][0]:
                first = [_value(values[0][key]) for key in keys]
                differs = estimate.mean([a - b for a, b in zip(mine, first, strict=True)], clusters)
            cells += [_estimate(found, counts=False, digits=1), _signed(differs), f"{judged_}/{len(asked)}"]
            records.append(
                {
                    "judge": judged.name,
                    "criterion": criterion,
                    "common": len(keys),
                    "mean": found.value,
                    "low": None if found.interval is None else found.interval.low,
                    "high": None if found.interval is None else found.interval.high,
                    "difference": None if differs is None else differs.value,
                    "difference_low": None if differs is None or differs.interval is None else differs.interval.low,
                    "difference_high": None if differs is None or differs.interval is None else differs.interval.high,
                    "judged": judged_,
                    "asked": len(asked),
                }
            )
        rows.append(Row(cells=(judged.name, *cells)))
    shorts = [all_judged[0].metrics.metric(c).short for c in criteria]
    left_out = [
        f"{j.name} ({', '.join(without)})"
        for n, j in enumerate(all_judged)
        if (without := [s for s, c in zip(shorts, criteria, strict=True) if any(able[c]) and not able[c][n]])
    ]
    counts = ", ".join(f"{short} {len(common[c])}" for short, c in zip(shorts, criteria, strict=True))
    return Grid(
        name="side-by-side",
        title="Judges side by side, on the samples that all of them could judge",
        head=("Judge", *(title for s in shorts for title in (s, f"{s} − first", f"{s} judged"))),
        rows=tuple(rows),
        caption=(
            f"Means of samples judged by all ({counts}), with 95 % intervals; judged: of all that each was asked."
            + (f" Without any verdict and not among all: {', '.join(left_out)}." if left_out else "")
            + (f" {_left_out(len(differing))}." if differing else "")
        ),
        records=tuple(records),
    )


def not_side_by_side(all_judged: Sequence[Judged]) -> str:
    """Why several judges do not stand side by side; empty where they do, and where there is one alone."""
    if len(all_judged) < 2:
        return ""
    shared, differing = _same_samples(all_judged)
    why = "" if _common_criteria(all_judged) else "no criterion was judged by all of them"
    if not shared:
        why = _left_out(len(differing)) if differing else "no sample was given to all of them"
    return why and f"The judges do not stand side by side: {why}; compare runs over the same data."


def _common_criteria(all_judged: Sequence[Judged]) -> list[str]:
    return [c for c in all_judged[0].criteria if all(c in j.criteria for j in all_judged)]


def _same_samples(all_judged: Sequence[Judged]) -> tuple[set[str], list[str]]:
    """Keys of the samples that all were given, and of those of one name whose content differs between runs.

    A row that could not be read has no content, and is the same as any of its name: it has no score either.
    """
    given = [{sample_key(s.editor, s.sample_id) for s in j.scores} for j in all_judged]
    named = set[str]().union(*given)
    content = {key: {j.samples[key].content for j in all_judged if key in j.samples} for key in named}
    differing = sorted(key for key, found in content.items() if len(found) > 1)
    return set.intersection(*given).difference(differing), differing


def _left_out(count: int) -> str:
    if count == 1:
        return "1 sample has the same name and other content: left out"
    return f"{count} samples have the same name and other content: left out"


def _scores_of_editors(scores: Sequence[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.editor, []).append(score)
    return found


def _as_worst(judged: Judged, score: Score) -> Score:
    """The other reading of a missing output: the editor's fault, so the lowest label's value."""
    if score.missing != "missing_output":
        return score
    return replace(score, value=judged.metrics.metric(score.metric).levels[0].value, missing=None, normalised=0.0)


def _interval(judged: Judged, column: str, scores: Sequence[Score], *, macro: bool) -> ConfidenceInterval | None:
    """The interval of one mean. None where the criteria rest on different types: no one resampling gives that mean."""
    chosen = [s for s in scores if column in (OVERALL, s.metric)]
    if macro:
        chosen = [s for s in chosen if s.edit_type in edit_types(judged.protocol)]
    groups = [(s.metric, s.edit_type if macro else "") for s in chosen]
    types = {
        c: {t for s, (m, t) in zip(chosen, groups, strict=True) if m == c and s.normalised is not None}
        for c in {m for m, _ in groups}
    }
    if len({frozenset(found) for found in types.values()}) > 1:
        return None
    return estimate.mean([s.normalised for s in chosen], [judged.cluster(s) for s in chosen], groups=groups).interval


def _record(
    judged: Judged, column: str, editor: str, row: str, cell: Cell | None, interval: ConfidenceInterval | None = None
) -> dict[str, Json]:
    return {
        "judge": judged.name,
        "editor": editor,
        "criterion": column,
        "edit_type": row,
        "mean": None if cell is None else cell.mean,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "judged": 0 if cell is None else cell.judged,
        "asked": 0 if cell is None else cell.asked,
    }


def _label_record(
    judged: Judged, criterion: str, editor: str, label: str, count: int, share: float | None
) -> dict[str, Json]:
    return {
        "judge": judged.name,
        "editor": editor,
        "criterion": criterion,
        "label": label,
        "count": count,
        "share": share,
    }


def _cell(cell: Cell | None, interval: ConfidenceInterval | None = None, more: str = "") -> str:
    if cell is None or not cell.asked:
        return "–"
    mean = "–" if cell.mean is None else f"{cell.mean:.2f}"
    return f"{mean}{_between(interval)} ({cell.judged}/{cell.asked}{more})"


def _estimate(found: Estimate | None, *, counts: bool = True, digits: int = 2) -> str:
    if found is None or not found.asked:
        return "–"
    value = "–" if found.value is None else f"{found.value:.{digits}f}"
    return f"{value}{_between(found.interval)}" + (f" ({found.judged}/{found.asked})" if counts else "")


def _signed(found: Estimate | None) -> str:
    if found is None or found.value is None:
        return "–"
    between = "" if found.interval is None else f" [{found.interval.low:+z.1f}, {found.interval.high:+z.1f}]"
    return f"{found.value:+z.1f}{between}"


def _between(interval: ConfidenceInterval | None) -> str:
    return "" if interval is None else f" [{interval.low:.1f}, {interval.high:.1f}]"


def _share(count: int, of: int) -> str:
    return f"{count} ({100 * count / of:.0f} %)" if of else "0"


def _correlation(r: float | None, p: float | None, why: str) -> str:
    if r is None:
        return f"– ({why})"
    told = "" if p is None else " (<0.001)" if p < 0.001 else f" ({p:.3f})"
    return f"{r:+z.2f}{told}"


def _present(summaries: Sequence[Summary], column: str) -> str:
    counts = sorted({summary.types_present[column] for summary in summaries})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _value(score: Score) -> float:
    """Of a score that has one."""
    assert score.normalised is not None
    return score.normalised
