"""The join of judges and people: what each said of which item, as a frame with a row a reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from editloupe.errors import ConfigError
from editloupe.figures.frame import as_text, typed
from editloupe.figures.judged import Judged
from editloupe.protocols.base import EvalProtocol
from editloupe.scores import Binary, Score
from editloupe.values import Sample, sample_key

if TYPE_CHECKING:
    import polars

Key: TypeAlias = tuple[str, str, int, str]
"""(editor, sample id, turn, part); the editor is "" if none is named, the turn 0 for the sample as a whole."""

Answer: TypeAlias = float | str | None
"""A value or a label; None if the judge was asked and has none."""

Dimension: TypeAlias = Literal["edit_type", "editor"]

DIMENSIONS: Final[Mapping[Dimension, str]] = {"edit_type": "Edit type", "editor": "Editor"}

KEY: Final = ("editor", "sample", "turn", "part")
"""What a reading is about."""

SCHEMA: Final[Mapping[str, type]] = {
    **{name: int if name == "turn" else str for name in (*KEY, "source", "edit_type", "metric", "who")},
    "number": float,
    "label": str,
}
"""Column → type. `source` is shared by the edits of one source image, which are resampled together; `who` is the judge or
the rater; of `number` and `label` one holds the answer, and none where the judge was asked and has none.
"""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What one judge, or several people, said."""

    name: str
    """The judge, or the file that the labels are from."""
    frame: polars.DataFrame
    """A row a reading (`SCHEMA`)."""
    metrics: tuple[str, ...] = ()
    """Those that have a reading or a column."""
    notes: tuple[str, ...] = ()
    """What could not be used."""

    @classmethod
    def of_rows(cls, name: str, rows: Iterable[Mapping[str, Any]], **more: Any) -> Readings:
        """Return readings of rows with the columns of `SCHEMA`, and an `answer` in the place of number and label."""
        listed = list(rows)
        columns = {column: [row.get(column) for row in listed] for column in SCHEMA if column not in ("number", "label")}
        answers = [row["answer"] for row in listed]
        columns["number"] = [None if isinstance(one, str) else one for one in answers]
        columns["label"] = [one if isinstance(one, str) else None for one in answers]
        return cls(name=name, frame=typed(columns, SCHEMA), **more)

    def of(self, metric: str) -> dict[Key, Answer]:
        """Return one judge's answers of one metric."""
        own = self.frame.filter(metric=metric)
        return {(e, s, t, p): n if label is None else label for e, s, t, p, n, label in own.select(*KEY, *_SAID).rows()}

    def rated(self, metric: str) -> dict[Key, dict[str, float | str]]:
        """Return people's ratings of one metric by item and rater."""
        found: dict[Key, dict[str, float | str]] = {}
        own = self.frame.filter(metric=metric)
        for e, s, t, p, who, number, label in own.select(*KEY, "who", *_SAID).rows():
            found.setdefault((e, s, t, p), {})[who] = number if label is None else label
        return found

    @property
    def editors(self) -> list[str]:
        """The editors whose edits were read, by name; "" for one that is not named."""
        return sorted(self.frame["editor"].unique())


_SAID: Final = ("number", "label")


def key_of(score: Score) -> Key:
    """Return what a score is about, in the text of frames."""
    return as_text(score.editor), as_text(score.sample_id), score.turn, as_text(score.part)


def column_of(judged: Judged) -> Readings:
    """Return what one judge of a run said, with rows of the data that could not be read.

    An answer is the value; of right-or-wrong metrics the label, where there is one: two wrong answers need not be the same.
    """
    import polars

    frame, col = judged.frame, polars.col
    kind = col("edit_type") if "edit_type" in frame.columns else polars.lit(None, polars.String)
    labeled = col("metric").is_in([m.id for m in judged.metrics.metrics if isinstance(m.domain, Binary)])
    labeled &= col("label").is_not_null()
    found = frame.select(
        *KEY,
        col("source").fill_null(col("sample")),
        kind.alias("edit_type"),
        "metric",
        polars.lit(judged.name).alias("who"),
        polars.when(~labeled).then("value").alias("number"),
        polars.when(labeled).then("label").alias("label"),
    )
    return Readings(name=judged.name, frame=found)


def column_of_table(table: Readings, name: str) -> Readings:
    """Return a table of scores as one judge's. Raises ConfigError for an item that several judges scored."""
    import polars

    twice = table.frame.group_by(*KEY, "metric", maintain_order=True).agg("who").filter(polars.col("who").list.len() > 1)
    for sample, metric, who in twice.select("sample", "metric", "who").rows():
        raise ConfigError(
            f"{table.name}: item {sample!r} has {len(who)} scores for {metric!r} ({', '.join(who)}); expected one judge's: "
            "give each judge a file of its own"
        )
    return replace(table, name=name)


def by_editor(said: Readings) -> Readings:
    """Return the same with an item an editor: the mean of each one's numbers for the editor's samples.

    A table that names no editors rates editors itself: its items are their names.
    """
    import polars

    editor = polars.when(polars.col("editor") != "").then("editor").otherwise("sample")
    means = said.frame.group_by(editor.alias("sample"), "metric", "who", maintain_order=True).agg(
        polars.col("number").mean()
    )
    rows = ({**row, "editor": "", "turn": 0, "part": "", "source": row["sample"], "answer": row["number"]}
            for row in means.to_dicts())  # fmt: skip
    return Readings.of_rows(said.name, rows, metrics=said.metrics, notes=said.notes)


def with_facts(people: Readings, samples: Mapping[str, Sample], protocol: EvalProtocol) -> Readings:
    """Return people's ratings with what a run knows of the items: source image and edit type."""
    named = getattr(protocol, "edit_type_name", str)

    def facts() -> Iterator[tuple[str | None, str | None]]:
        for editor, id_, source, kind in people.frame.select("editor", "sample", "source", "edit_type").rows():
            sample = samples.get(sample_key(editor, id_))
            own = (source, kind) if sample is None else (sample.source.sha256, sample.edit_type and named(sample.edit_type))
            yield own

    sources, kinds = zip(*facts(), strict=True) if len(people.frame) else ((), ())
    columns = typed({"source": sources, "edit_type": kinds}, {"source": str, "edit_type": str})
    return replace(people, frame=people.frame.with_columns(columns))


def join(judge: Readings, people: Readings, *, where: str, closed: bool) -> Readings:
    """Return people's ratings under the judge's keys, with its source images and edit types; notes say what did not meet.

    where: what the judge's items are from, for messages.   closed: an item that people rated and that is not there is left
    out and counted (a run holds what was asked); else it stays, without an answer.
    Raises ConfigError if nothing meets, or if editors are named on one side only and cannot be matched.
    """
    import polars

    theirs = _matched(judge, people, where)
    facts = judge.frame.unique(KEY, keep="first", maintain_order=True).select(*KEY, "source", "edit_type", there=True)
    both = theirs.join(facts, on=KEY, how="left", suffix="_here", maintain_order="left")
    both = both.with_columns(
        source=polars.coalesce("source_here", "source"), edit_type=polars.coalesce("edit_type_here", "edit_type")
    )
    lost = both.filter(polars.col("there").is_null()).select(KEY).unique(maintain_order=True)
    if len(lost) == theirs.n_unique(KEY):
        ours, names = (
            ", ".join(list(dict.fromkeys(map(key_name, f.select(KEY).rows())))[:4]) for f in (facts, people.frame)
        )
        raise ConfigError(
            f"none of the {len(lost)} items of {people.name} is in {where}: people rated {names}, … and it has {ours}, …"
        )
    notes = list(people.notes)
    if len(lost):
        first = ", ".join(map(key_name, lost.rows()[:4])) + (", …" if len(lost) > 4 else "")
        what = f"not in {where}, and left out" if closed else f"without a row in {where}, and counted as not judged"
        notes.append(f"rated, but {what}: {len(lost)} ({first})")
    kept = both.filter(polars.col("there").is_not_null()) if closed else both
    return replace(people, frame=kept.select(*SCHEMA), notes=tuple(notes))


def _matched(judge: Readings, people: Readings, where: str) -> polars.DataFrame:
    """People's ratings under the judge's names: by editor and sample, or by sample alone if that can mean one edit only."""
    import polars

    ours, theirs = judge.editors, people.editors
    if (theirs == [""]) == (ours == [""]):
        return people.frame
    if len(ours) == len(theirs) == 1:
        return people.frame.with_columns(editor=polars.lit(ours[0]))
    named = {
        sample_key(editor, id_): (editor, id_) for editor, id_ in judge.frame.select("editor", "sample").unique().rows()
    }
    samples = people.frame["sample"].to_list()
    if theirs == [""] and not named.keys().isdisjoint(samples):
        found = [named.get(name, ("", name)) for name in samples]
        return people.frame.with_columns(
            editor=polars.Series([editor for editor, _ in found]), sample=polars.Series([id_ for _, id_ in found])
        )
    silent, several = (people.name, where) if theirs == [""] else (where, people.name)
    editors = ", ".join(filter(None, ours if theirs == [""] else theirs))
    raise ConfigError(
        f"{silent} names no editor, and {several} has several ({editors}); both must name them, or neither "
        "(a table in a column editor, or by items written as EDITOR/ITEM)"
    )


def key_name(key: Sequence[Any]) -> str:
    """Return "EDITOR/SAMPLE", with the turn and the part if it is about one."""
    editor, sample, turn, part = key
    return ", ".join(filter(None, (sample_key(editor, sample), f"turn {turn}" if turn else "", part)))
