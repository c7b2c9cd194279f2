"""Human labels: read from a run's samples or from a table, named by the run's metrics. What cannot be used is counted.

A table is long (a row a rating: item, editor, rater, criterion, label) or wide (a row an item, a column a criterion, with
the rater in its name if there are several). A judge's scores from elsewhere are read in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from editloupe.data.human import NO_RATER, Known, metric_and_rater, named, names_of, turn_and_metric
from editloupe.data.tables import MetadataTable, TableLine
from editloupe.errors import ConfigError
from editloupe.figures.columns import KEY, Key, Readings, key_name, key_of
from editloupe.figures.judged import protocol_of, scores_by_people
from editloupe.figures.labels import (
    as_rating,
    find_roles,
    is_blank,
    lines_named,
    number_of,
    read_labels,
    text_of,
)
from editloupe.runs.people import Given
from editloupe.runs.store import RunStore
from editloupe.scores import Metric, Score
from editloupe.values import Sample

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "item": ("item", "item_id", "sample_id", "sample", "id", "image_id", "image", "key", "uid", "idx"),
    "editor": ("editor", "model", "system", "method", "generator"),
    "turn": ("turn",),
    "part": ("part",),
    "rater": ("rater", "rater_id", "annotator", "annotator_id", "worker", "worker_id", "user"),
    "criterion": ("criterion", "criteria", "metric", "dimension", "aspect"),
    "label": ("value", "score", "rating", "label", "human", "answer"),
    "edit_type": ("edit_type", "task", "category", "type"),
    "source": ("source", "source_id", "source_image", "source_file_name"),
}
"""What a column may be, with the names by which it is found, the likeliest first."""

ONLY: Final = "score"
"""The metric of a table with one column of ratings and no metric's name."""


def labels_in(
    samples: Iterable[Sample],
    metrics: Sequence[Metric],
    source: str,
    ratings: Sequence[str] = (),
    people: Iterable[Given] = (),
    scores: Iterable[tuple[str, Score]] = (),
) -> Readings:
    """Return the ratings that a run's samples carry, whose names the run has read as metrics.

    people: what people said while they looked at the run; of these, what is about parts of samples is added.
    scores: what the protocol makes of their answers, by rater; added where the rater gave no rating.
    ratings: names of further ratings, which are no metrics of the run.
    """
    known = {**{name: name for name in ratings}, **{metric.id: metric.short for metric in metrics}}
    names = names_of([*ratings, *metrics])
    found: dict[tuple[Key, str, str], float | str] = {}
    unknown, broken = Counter[str](), list[str]()
    for sample in samples:
        for name, by_rater in (named(sample.human, names) if ratings else sample.human).items():
            turn, metric = turn_and_metric(name)
            key = (sample.editor, sample.id, turn, "")
            if metric not in known:
                unknown[name] += len(by_rater)
                continue
            for rater, raw in by_rater.items():
                try:
                    value = as_rating(raw)
                except ValueError as error:
                    broken.append(f"{known[metric]} of {key_name(key)} by {rater}: {error}; left out")
                    continue
                if value is not None:
                    found[key, metric, rater] = value
    for given in people:
        finding = given.finding
        if finding.part and finding.metric in known and given.rating is not None:
            key = (finding.editor, finding.sample_id, finding.turn, finding.part)
            found[key, finding.metric, given.rater] = given.rating
    for rater, score in scores:
        if score.metric in known and score.value is not None:
            found.setdefault((key_of(score), score.metric, rater), score.value)
    strangers = [f"human_{name}: no metric of the run; {n} ratings left out" for name, n in unknown.items()]
    rows = (
        {**dict(zip(KEY, key, strict=True)), "source": key[1], "metric": metric, "who": rater, "answer": answer}
        for (key, metric, rater), answer in found.items()
    )
    rated = tuple(dict.fromkeys(metric for _, metric, _ in found))
    return Readings.of_rows(source, rows, metrics=rated, notes=(*strangers, *broken))


def read_people(store: RunStore, human: Path | None = None, columns: Mapping[str, str] | None = None) -> Readings:
    """Return people's ratings of a run: a table's, or those that its samples carry. Raises ConfigError if there are none.

    columns: role → column of the table, if names do not say it.
    """
    metrics = store.metric_set().metrics
    if human is not None:
        return read_human(human, metrics, columns or {})
    source = str(store.folder / ("people.jsonl" if store.people else "samples.jsonl"))
    by_protocol = scores_by_people(store, protocol_of(store)) if store.people else ()
    found = labels_in(store.samples.values(), metrics, source, (), store.people.values(), by_protocol)
    if not found.metrics:
        text = f" ({'; '.join(found.notes)})" if found.notes else ""
        raise ConfigError(
            f"{store.folder}: its samples carry no human labels{text}; name a table with --human FILE, add columns "
            "human_<criterion> to the metadata and judge again, or give labels with editloupe annotate"
        )
    return found


def read_human(file: Path, metrics: Sequence[Metric], columns: Mapping[str, str], ratings: Sequence[str] = ()) -> Readings:
    """Read people's ratings of a run's metrics, and of `ratings`. Raises as `read_label_table`."""
    names: list[Metric | str] = [*ratings, *metrics]
    only = metrics[0].id if len(names) == 1 and metrics else None
    return read_label_table(file, known=names_of(names), columns=columns, option="--columns", only=only)


def read_label_table(
    file: Path, *, known: Known | None, columns: Mapping[str, str], option: str, only: str | None = None
) -> Readings:
    """Read a table of ratings, or of one judge's scores.

    known: which metrics there are; None if every column of numbers is one.   columns: from `column_names`.
    only: the metric that is meant if the table names none.
    Raises ConfigError and SampleError if nothing in it can be used; lines that cannot be used are in its notes.
    """
    table = read_labels(file)
    roles, named = find_roles(table, columns, option, ROLES, "item")
    wide = _named_wide(named, known, option)
    if not wide and "criterion" not in roles and (known is not None or "label" not in roles):
        wide = _wide(table, set(roles.values()), known)
    if "label" not in roles and not wide:
        raise ConfigError(
            f"{file}: no column holds ratings; expected a column label, value or score, or one of finite numbers for each "
            f"criterion, found {', '.join(table.columns)}; or say which: {option} label=COLUMN or {option} CRITERION=COLUMN"
        )
    reader = _LabelReader(roles=roles, wide=wide, known=known, only=only or ONLY)
    for line in table.lines:
        reader.add(line)
    notes = tuple(f"{file.name}: {lines_named(lines)} left out: {what}" for what, lines in reader.left_out.items())
    if notes and not reader.ratings:
        raise ConfigError(f"{file}: no rating can be used: {'; '.join(notes)}")
    return Readings.of_rows(str(file), reader.rows(), metrics=tuple(reader.metrics), notes=notes)


@dataclass(kw_only=True)
class _LabelReader:
    """Gathers a table's ratings, and counts the lines that cannot be used."""

    roles: Mapping[str, str]
    wide: Mapping[str, tuple[str, str]]
    """Column → (metric, rater); empty for a long table."""
    known: Known | None
    only: str
    items: dict[Key, dict[str, str | None]] = field(default_factory=dict)
    """What the table says of an item, on its first line."""
    ratings: dict[tuple[Key, str, str], float | str] = field(default_factory=dict)
    """(item, metric, rater) → rating."""
    metrics: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, list[int]] = field(default_factory=dict)
    """Why → lines."""

    def __post_init__(self) -> None:
        self.metrics |= dict.fromkeys(metric for metric, _ in self.wide.values())

    def add(self, line: TableLine) -> None:
        """Take one line, or count it among those that are left out."""
        text = {role: text_of(line.values.get(column)) for role, column in self.roles.items()}
        item, turn = text.get("item"), text.get("turn") or "0"
        why = line.fault or ("" if turn.isdecimal() else f"names the turn {turn!r}, which is no whole number")
        if why or item is None:
            self._leave(line, why or "names no item")
            return
        key = (text.get("editor") or "", item, int(turn), text.get("part") or "")
        self.items.setdefault(key, {"source": text.get("source") or item, "edit_type": text.get("edit_type")})
        by = text.get("rater") or NO_RATER
        for column, (metric, rater) in self.wide.items():
            self._rate(line, (key, metric, by if rater == NO_RATER else rater), column)
        if not self.wide and (named := self._metric(line, text.get("criterion"))) is not None:
            self._rate(line, (key, named, by), self.roles["label"])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row a rating, with the columns of `Readings`."""
        for (key, metric, rater), answer in self.ratings.items():
            about = {**dict(zip(KEY, key, strict=True)), **self.items[key]}
            yield {**about, "metric": metric, "who": rater, "answer": answer}

    def _metric(self, line: TableLine, text: str | None) -> str | None:
        found: str | None = self.only
        if "criterion" in self.roles:
            found = self.known(text) if text is not None and self.known is not None else text
        if found is None:
            self._leave(line, "names no criterion" if text is None else f"rates {text!r}, which is no criterion here")
        else:
            self.metrics.setdefault(found)
        return found

    def _rate(self, line: TableLine, place: tuple[Key, str, str], column: str) -> None:
        try:
            rating = as_rating(line.values.get(column))
        except ValueError as error:
            self._leave(line, f"holds no rating: {error}")
            return
        if rating is not None and self.ratings.setdefault(place, rating) != rating:
            self._leave(line, "rates again, in another way, what a line above rates (a column rater names several)")

    def _leave(self, line: TableLine, what: str) -> None:
        self.left_out.setdefault(what, []).append(line.number)


def _named_wide(named: Mapping[str, str], known: Known | None, option: str) -> dict[str, tuple[str, str]]:
    """Return column → (metric, rater) of those that the user named."""
    found = {}
    for role, column in named.items():
        name, _, rater = role.partition("@")
        metric = name if known is None else known(name)
        if metric is None:
            raise ConfigError(f"{option} {role}={column}: {name!r} is no role ({', '.join(ROLES)}) and no criterion here")
        found[column] = metric, rater or NO_RATER
    return found


def _wide(table: MetadataTable, taken: set[str], known: Known | None) -> dict[str, tuple[str, str]]:
    """Return column → (metric, rater) of every column whose name holds a metric, or, if none is known, of numbers alone."""
    columns = [column for column in table.columns if column and column not in taken]
    if known is not None:
        return {column: place for column in columns if (place := metric_and_rater(column, known)) is not None}
    cells = {column: [line.values.get(column) for line in table.lines if line.fault is None] for column in columns}
    return {
        column: (column, NO_RATER)
        for column, values in cells.items()
        if all(is_blank(value) or number_of(value) is not None for value in values)
    }
