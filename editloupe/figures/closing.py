"""The means of all samples, and what stands at the end of a run: scores, labels, and what could not be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from editloupe.errors import EditLoupeError
from editloupe.figures import render
from editloupe.figures.escape import safe
from editloupe.figures.frame import score_frame
from editloupe.figures.judged import judged_in, to_go
from editloupe.figures.label_tables import label_tables
from editloupe.figures.summary import TableScores, specs
from editloupe.figures.tables import spec_table
from editloupe.protocols.base import EvalProtocol
from editloupe.runs.index import is_large
from editloupe.runs.store import RunStore
from editloupe.scores import Score
from editloupe.stats.bootstrap import Drawing
from editloupe.stats.table import Table
from editloupe.values import Json, Serializable, is_empty

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, kw_only=True)
class MeanOfAll(Serializable):
    """The mean of all samples of a run for one metric, by one judge."""

    metric: str
    """Its id; "overall" for the mean of all metrics, where they share a scale."""
    short: str
    """Its name in columns."""
    mean: float | None
    """In the unit of the protocol's tables; None if nothing was judged."""
    judged: int
    asked: int

    @property
    def text(self) -> str:
        """What a list shows: "IF 56.67 (9/10)"."""
        return f"{self.short} {'–' if self.mean is None else f'{self.mean:.4g}'} ({self.judged}/{self.asked})"


def means_table(
    protocol: EvalProtocol, frame: polars.DataFrame, *, together: bool, drawing: Drawing | None = None
) -> Table | None:
    """Return the means of all samples, a row an editor and a column a metric; None if there is no score.

    Where rows, such as languages, are never put together, they are the rows of the protocol's first table.
    together: add a row over all editors.   drawing: how intervals are drawn; None for none.
    """
    first = specs(protocol)[0]
    spec = replace(first, title="Means of all samples", name="means", columns="metric", metrics=(), transposed=False)
    if first.apart:
        return spec_table(replace(spec, overall=False), frame, protocol.metrics, drawing=drawing)
    spec = replace(spec, rows="editor", order=(), cell="rate" if first.cell == "rate" else "mean", overall=together)
    return spec_table(spec, frame, protocol.metrics, drawing=drawing)


def means_of_all(protocol: EvalProtocol, frame: polars.DataFrame) -> tuple[MeanOfAll, ...]:
    """Return the mean of each metric over all samples; () where rows are never put together, and without a score."""
    table = None if specs(protocol)[0].apart else means_table(protocol, frame, together=True)
    if table is None:
        return ()
    return tuple(
        MeanOfAll(
            metric=str(column.keys["metric"]),
            short=column.title,
            mean=cell.value if isinstance(cell.value, float) else None,
            judged=cell.judged or 0,
            asked=cell.asked or 0,
        )
        for column, cell in zip(table.columns[1:], table.rows[-1].cells[1:], strict=True)
    )


def brief_tables(protocol: EvalProtocol, frame: polars.DataFrame) -> list[Table]:
    """Return the means of all samples, a row an editor and a column a metric.

    Where rows, such as languages, are never put together, there is such a table for each row.
    """
    spec = replace(specs(protocol)[0], columns="metric", metrics=())
    if not spec.apart:
        made = [means_table(protocol, frame, together=False)]
    else:
        found = TableScores.of(spec, frame, protocol.metrics)
        alone = replace(spec, name="scores", transposed=False, rows="editor", order=(), cell="mean", overall=False)
        titles = {row: f"{spec.rows.capitalize()}: {row}" for row in found.rows}
        parts = {row: found.where(row=row).frame for row in titles}
        made = [spec_table(replace(alone, title=titles[row]), part, protocol.metrics) for row, part in parts.items()]
    return [table for table in made if table is not None]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands, as far as it is known."""

    means: Mapping[str, tuple[MeanOfAll, ...]] = field(default_factory=dict)
    """Judge id → means; "" for what nobody with the role "judge" found."""
    to_go: int | None = None
    """Samples about which some judge was not asked everything yet; None where they were not counted."""


def standing_of_run(folder: Path) -> Standing:
    """Return where a run stands. A large run is not read whole for this: its means are what `editloupe report` shows."""
    if is_large(folder):
        return Standing()
    try:
        store = RunStore.read(folder)
        found = judged_in(store)
    except EditLoupeError:
        return Standing()
    waiting = set().union(*map(to_go, found))
    unbegun = set(store.judges()) - {one.judge_id for one in found}
    return Standing(
        means={one.judge_id: means_of_all(one.protocol, one.frame) for one in found},
        to_go=len(store.samples) if unbegun else len(waiting),
    )


@dataclass(frozen=True, kw_only=True)
class Heading(Serializable):
    """What stands above the numbers, so that no table travels without it."""

    judge: str
    """URI, with the judge's name."""
    describes: str
    """What kind of judge: "pixel baseline: ... not an LMM"."""
    mode: str
    """The protocol's option of this name; "" if it has none."""
    rubric: str
    """The rubric's id, or the protocol's name."""
    by: Annotated[Literal["rubric", "protocol"], Field(exclude_if=lambda by: by == "rubric")] = "rubric"
    """Which of the two it is."""
    ablations: Annotated[tuple[str, ...], Field(exclude_if=is_empty)] = ()
    """What of the tools was hidden."""
    notes: tuple[str, ...] = ()
    """Absent tools and the like."""

    @property
    def text(self) -> str:
        """The heading as one line."""
        ablated = f" ablated by {' and '.join(self.ablations)}" if self.ablations else ""
        asked = f"mode {self.mode}{ablated}; {self.by} {self.rubric}" if self.mode else f"protocol {self.rubric}{ablated}"
        return f"Judge: {self.judge} ({self.describes}); {asked}"


@dataclass(frozen=True, kw_only=True)
class Closing:
    """What the scores of one judge come to, in all forms in which it is told."""

    scored: bool
    """Whether there is any score."""
    agreement: tuple[str, ...]
    """How far the judge agrees with itself."""
    brief: tuple[Table, ...]
    """The means of all samples (`brief_tables`)."""
    labels: tuple[Table, ...]
    """How often each label was given."""
    means: tuple[MeanOfAll, ...]

    @classmethod
    def of(cls, protocol: EvalProtocol, scores: Sequence[Score], agreement: Sequence[str]) -> Closing:
        """Return what these scores come to."""
        frame = score_frame(scores)
        return cls(
            scored=bool(scores),
            agreement=tuple(agreement),
            brief=tuple(brief_tables(protocol, frame)) if scores else (),
            labels=tuple(label_tables(frame, protocol.metrics)),
            means=means_of_all(protocol, frame),
        )

    def markdown(self, heading: Heading) -> str:
        """Return the heading with its notes and the closing tables as Markdown."""
        notes = (f"> {safe(note)}\n" for note in heading.notes)
        return "\n".join([safe(heading.text), "", *notes, *map(render.markdown, (*self.brief, *self.labels))])

    def summary(self, heading: Heading, *, judge_id: str) -> dict[str, Json]:
        """Return the means of all samples for programs; a number that does not exist is null.

        judge_id: "" where nobody has the role "judge".
        """
        return {**heading.to_json(), "judge_id": judge_id, "means": [one.to_json() for one in self.means]}
