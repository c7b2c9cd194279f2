"""Tables that every run has: how often each label was given, and why scores are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from editloupe.figures.summary import BY_EDITOR, counted, statuses
from editloupe.scores import Metric
from editloupe.stats.table import UNNAMED, BarPlot, Cell, Column, Row, Table, label_columns, words
from editloupe.values import Json

if TYPE_CHECKING:
    import polars

_LABELS: Final = (
    "Samples by label, and the label's share of what was judged; samples judged of asked; then those without a label, and "
    "why."
)


def label_tables(
    frame: polars.DataFrame, metrics: Sequence[Metric], *, caption: str = "", keys: Mapping[str, Json] | None = None
) -> list[Table]:
    """Return how often each label was given to each editor, and why scores are missing.

    A metric with labels has a table of its own; the others share one of what is missing.
    """
    found, others = [], []
    frame = counted(BY_EDITOR, frame)
    for metric in metrics:
        own = frame.filter(metric=metric.id)
        labels = [level.name for level in reversed(metric.levels)] or sorted(own["label"].drop_nulls().unique())
        if labels:
            found.append(_label_table(metric, own, labels, caption, keys or {}))
        elif len(own):
            others.append(metric)
    lost = [
        (editor, status, counts)
        for editor, own in by_editor(frame).items()
        if (counts := {metric.id: statuses(own.filter(metric=metric.id)["missing"]) for metric in others})
        for status in dict.fromkeys(status for of in counts.values() for status in of)
    ]
    if lost:
        found.append(_missing_table(others, lost, keys or {}))
    return found


def by_editor(frame: polars.DataFrame) -> dict[str, polars.DataFrame]:
    """Return the scores of each editor, editors in order of appearance."""
    return {key[0]: own for key, own in frame.partition_by("editor", as_dict=True, maintain_order=True).items()}


def _missing_table(
    metrics: Sequence[Metric], lost: Sequence[tuple[str, str, Mapping[str, Mapping[str, int]]]], keys: Mapping[str, Json]
) -> Table:
    """A row an editor and status, a column a metric."""
    count = partial(Cell, name="count")
    rows = (
        Row(
            cells=(words(editor or UNNAMED), words(status), *(count(value=of.get(status, 0)) for of in counts.values())),
            keys={"editor": editor, "status": status},
        )
        for editor, status, counts in lost
    )  # fmt: skip
    return Table(
        name="missing",
        title="Not judged",
        columns=(*label_columns("Editor", "Status"), *(Column(title=m.short, keys={"metric": m.id}) for m in metrics)),
        rows=tuple(rows),
        fixed=2,
        caption="Scores without a value, by what happened to the question.",
        keys=keys,
        at_once=6,
    )


def _label_table(
    metric: Metric, frame: polars.DataFrame, labels: Sequence[str], caption: str, keys: Mapping[str, Json]
) -> Table:
    """A row a label, then what was judged, then a row a status; a column an editor."""
    editors = by_editor(frame)
    named = [editor or UNNAMED for editor in editors]
    counts = [Counter(own["label"]) for own in editors.values()]
    lost = [statuses(own["missing"]) for own in editors.values()]
    judged = [len(own["value"].drop_nulls()) for own in editors.values()]

    def row(label: str, given: Sequence[int], of: Sequence[int]) -> Row:
        shares = [count / n if n else None for count, n in zip(given, of, strict=True)]
        notes = ["" if share is None else f"{100 * share:.0f} %" for share in shares]
        cells = (
            Cell(value=count, name="count", note=note, more={"share": share})
            for count, share, note in zip(given, shares, notes, strict=True)
        )
        return Row(cells=(words(label), *cells), keys={"metric": metric.id, "label": label})

    totals = (words(f"{n}/{len(own)}") for n, own in zip(judged, editors.values(), strict=True))
    failed = dict.fromkeys(status for of in lost for status in of)
    name, title = f"labels-{metric.id.replace('_', '-')}", f"{metric.name}: labels"
    bars = tuple((n, tuple((label, of[label]) for label in labels)) for n, of in zip(named, counts, strict=True))
    return Table(
        name=name,
        title=title,
        columns=(
            *label_columns("Label"),
            *(Column(title=n, keys={"editor": editor}) for n, editor in zip(named, editors, strict=True)),
        ),
        rows=(
            *(row(label, [of[label] for of in counts], judged) for label in labels),
            Row(cells=(words("Judged"), *totals), strong=True),
            *(row(f"({status})", [of.get(status, 0) for of in lost], [0] * len(lost)) for status in failed),
        ),
        caption=" ".join(filter(None, (_LABELS, caption))),
        keys=keys,
        at_once=6,
        plots=(BarPlot(name=name, title=title, rows=bars, goods=_goods(metric, labels)),) if any(judged) else (),
    )


def _goods(metric: Metric, labels: Sequence[str]) -> tuple[float, ...]:
    """How good each label is, 0 to 100; () for labels without an order."""
    known = {level.name: metric.normalize(level.value) or 0.0 for level in metric.levels}
    if not metric.better or not known.keys() >= set(labels):
        return ()
    return tuple(known[label] if metric.better == "higher" else 100 - known[label] for label in labels)
