"""What stands at the end of a run: scores, labels, and what could not be judged, of one judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import Field
from rich.console import Group, RenderableType
from rich.text import Text

from editloupe.protocols.base import EvalProtocol
from editloupe.reports import render
from editloupe.reports.escape import plain, safe
from editloupe.reports.means import MeanOfAll, means_of_all, means_table
from editloupe.reports.pivot import label_tables, spec_table
from editloupe.reports.summary import column_of, row_order, specs, summarise
from editloupe.scores import Score
from editloupe.stats.table import Table
from editloupe.values import Json, Serialisable, is_empty

MANY_EDITORS: Final = 3
"""Above this number a table for each editor would bury the reader: they share one, and another has all together."""


@dataclass(frozen=True, kw_only=True)
class Heading(Serialisable):
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
    agreement: tuple[str, ...] = ()
    """How far the judge agrees with itself."""
    tables: str = ""
    """The closing tables as Markdown."""
    brief: tuple[Table, ...] = ()
    """The means of all samples (`brief_tables`)."""
    means: tuple[MeanOfAll, ...] = ()
    editors: tuple[Mapping[str, Json], ...] = ()
    """What `summarise` has of each editor."""

    @classmethod
    def of(cls, protocol: EvalProtocol, scores: Sequence[Score], agreement: Sequence[str]) -> Closing:
        """Return what these scores come to."""
        return cls(
            scored=bool(scores),
            agreement=tuple(agreement),
            tables="\n".join(map(render.markdown, closing_tables(protocol, scores))),
            brief=tuple(brief_tables(protocol, scores)) if scores else (),
            means=means_of_all(protocol, scores),
            editors=tuple(one.to_json() for one in summarise(protocol, scores)),
        )

    def terminal(self, heading: Heading) -> RenderableType:
        """Return the heading with its notes and the means as Rich renderables."""
        notes = (plain(note, "yellow") for note in heading.notes)
        return Group(plain(heading.text, "bold"), *notes, Text(), *map(render.terminal, self.brief))

    def markdown(self, heading: Heading) -> str:
        """Return the heading with its notes and the closing tables as Markdown."""
        notes = (f"> {safe(note)}\n" for note in heading.notes)
        return "\n".join([safe(heading.text), "", *notes, *([self.tables] if self.tables else [])])

    def summary(self, heading: Heading, *, judge_id: str) -> dict[str, Json]:
        """Return the numbers for programs, of all samples and by editor; a mean that does not exist is null.

        judge_id: "" where nobody has the role "judge".
        """
        means: list[Json] = [one.to_json() for one in self.means]
        return {**heading.to_json(), "judge_id": judge_id, "means": means, "editors": list(self.editors)}


def closing_tables(protocol: EvalProtocol, scores: Sequence[Score]) -> list[Table]:
    """Return the tables at the end of a run: the protocol's first one with a column a metric, then the labels."""
    return [*score_tables(protocol, scores), *label_tables(scores, protocol.metrics)]


def brief_tables(protocol: EvalProtocol, scores: Sequence[Score]) -> list[Table]:
    """Return the means of all samples, a row an editor and a column a metric.

    Where rows, such as languages, are never put together, they are the tables of `score_tables`.
    """
    if specs(protocol)[0].apart:
        return score_tables(protocol, scores)
    table = means_table(protocol, scores, together=False)
    return [] if table is None else [table]


def score_tables(protocol: EvalProtocol, scores: Sequence[Score]) -> list[Table]:
    """Return one table an editor; of more than `MANY_EDITORS` one table with a row an editor and one of all together.

    Where rows are never put together, those are tables with a row an editor, one for each row.
    """
    spec = replace(specs(protocol)[0], columns="metric", metrics=(), name="scores", transposed=False)
    by_editor = replace(spec, title="Editors (means of all samples)", rows="editor", order=(), cell="mean", overall=False)
    editors = dict.fromkeys(score.editor for score in scores)
    if spec.rows == "editor":
        wanted = [(spec, list(scores))]
    elif len(editors) > MANY_EDITORS and spec.apart:
        wanted = [
            (
                replace(by_editor, title=f"{spec.rows.replace('_', ' ').capitalize()}: {row}"),
                [score for score in scores if column_of(score, spec.rows) == row],
            )
            for row in row_order(spec, scores)
        ]
    elif len(editors) > MANY_EDITORS:
        wanted = [(by_editor, list(scores)), (replace(spec, title=f"All {len(editors)} editors together"), list(scores))]
    else:
        wanted = [
            (replace(spec, title=f"Editor: {editor}" if editor else "Scores"), [s for s in scores if s.editor == editor])
            for editor in editors
        ]
    made = (spec_table(one, of, protocol.metrics) for one, of in wanted)
    return [table for table in made if table is not None]
