"""Tables that every run has: how often each label was given, and why scores are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from editloupe.figures.summary import BY_EDITOR, counted, statuses
from editloupe.scores import Metric
from editloupe.stats.table import UNNAMED, BarPlot, Cell, Column, Row, Table, label_columns, words

if TYPE_CHECKING:
    import polars

_LABELS: Final = (
    "Samples by label, and the label's share of what was judged; samples judged of asked; then those without a label, and "
    "why."
)


def label_tables(frame: polars.DataFrame, metrics: Sequence[Metric], *, caption: str = "") -> list[Table]:
    """Return how often each label was given to each editor, and why scores are missing.

    A metric with labels has a table of its own; the others share one of what is missing.
    """
    found: list[Table] = []
    others: dict[Metric, dict[str, polars.DataFrame]] = {}
    frame = counted(BY_EDITOR, frame)
    for metric in metrics:
        own = frame.filter(metric=metric.id)
        editors = {key[0]: rows for key, rows in own.partition_by("editor", as_dict=True, maintain_order=True).items()}
        if labels := [level.name for level in reversed(metric.levels)] or sorted(own["label"].drop_nulls().unique()):
            found.append(_label_table(metric, editors, labels, caption))
        elif editors:
            others[metric] = editors
    missing = _missing_table(others, list(frame["editor"].unique(maintain_order=True)))
    return found if missing is None else [*found, missing]


def _missing_table(metrics: Mapping[Metric, Mapping[str, polars.DataFrame]], editors: Sequence[str]) -> Table | None:
    """A row an editor and status, a column a metric; None where nothing is missing."""
    rows = []
    for editor in editors:
        counts = [statuses(own[editor]["missing"]) if editor in own else {} for own in metrics.values()]
        for status in dict.fromkeys(status for of in counts for status in of):
            cells = (Cell(value=of.get(status, 0), name="count") for of in counts)
            named = {"editor": editor, "status": status}
            rows.append(Row(cells=(words(editor or UNNAMED), words(status), *cells), keys=named))
    if not rows:
        return None
    return Table(
        name="missing",
        title="Not judged",
        columns=(*label_columns("Editor", "Status"), *(Column(title=m.short, keys={"metric": m.id}) for m in metrics)),
        rows=tuple(rows),
        fixed=2,
        caption="Scores without a value, by what happened to the question.",
        at_once=6,
    )


def _label_table(metric: Metric, editors: Mapping[str, polars.DataFrame], labels: Sequence[str], caption: str) -> Table:
    """A row a label, then what was judged, then a row a status; a column an editor."""
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
    columns = (Column(title=n, keys={"editor": editor}) for n, editor in zip(named, editors, strict=True))
    return Table(
        name=name,
        title=title,
        columns=(*label_columns("Label"), *columns),
        rows=(
            *(row(label, [of[label] for of in counts], judged) for label in labels),
            Row(cells=(words("Judged"), *totals), strong=True),
            *(row(f"({status})", [of.get(status, 0) for of in lost], [0] * len(lost)) for status in failed),
        ),
        caption=" ".join(filter(None, (_LABELS, caption))),
        at_once=6,
        plots=(BarPlot(name=name, title=title, rows=bars, goods=_goods(metric, labels)),) if any(judged) else (),
    )


def _goods(metric: Metric, labels: Sequence[str]) -> tuple[float, ...]:
    """How good each label is, 0 to 100; () for labels without an order."""
    known = {level.name: metric.normalize(level.value) or 0.0 for level in metric.levels}
    if not metric.better or not known.keys() >= set(labels):
        return ()
    return tuple(known[label] if metric.better == "higher" else 100 - known[label] for label in labels)
