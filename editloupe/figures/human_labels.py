"""Human labels: read from a run's samples or from a table, named by the run's metrics. What cannot be used is counted.

A table is long (a row a rating: item, editor, rater, criterion, label) or wide (a row an item, a column a criterion, with
the rater in its name if there are several). A judge's scores from elsewhere are read in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from editloupe.data.human import NO_RATER, Known, metric_and_rater, named, names_of, turn_and_metric
from editloupe.data.tables import MetadataTable, TableLine, read_table, shown
from editloupe.errors import ConfigError, SampleError
from editloupe.figures.columns import Item, Key, PeopleSaid, key_name, key_of
from editloupe.figures.escape import from_csv_cell
from editloupe.figures.judged import protocol_of, scores_by_people
from editloupe.runs.people import Given
from editloupe.runs.store import RunStore
from editloupe.scores import Metric, Score
from editloupe.values import Json, Sample

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
) -> PeopleSaid:
    """Return the ratings that a run's samples carry, whose names the run has read as metrics.

    people: what people said while they looked at the run; of these, what is about parts of samples is added.
    scores: what the protocol makes of their answers, by rater; added where the rater gave no rating.
    ratings: names of further ratings, which are no metrics of the run.
    """
    shorts = {**{name: name for name in ratings}, **{metric.id: metric.short for metric in metrics}}
    names = names_of([*ratings, *metrics])
    found: dict[str, dict[Key, dict[str, float | str]]] = {}
    unknown, broken = Counter[str](), list[str]()

    def rate(key: Key, metric: str, rater: str, rating: float | str) -> None:
        found.setdefault(metric, {}).setdefault(key, {})[rater] = rating

    for sample in samples:
        for name, by_rater in (named(sample.human, names) if ratings else sample.human).items():
            turn, metric = turn_and_metric(name)
            key = (sample.editor, sample.id, turn, "")
            if metric not in shorts:
                unknown[name] += len(by_rater)
                continue
            for rater, raw in by_rater.items():
                try:
                    if (rating := as_rating(raw)) is not None:
                        rate(key, metric, rater, rating)
                except ValueError as error:
                    broken.append(f"{shorts[metric]} of {key_name(key)} by {rater}: {error}; left out")
    for given in people:
        about, rated = given.finding.about, given.rating
        if about.part and given.finding.metric in shorts and rated is not None:
            key = (about.editor, about.sample_id, about.turn, about.part)
            rate(key, given.finding.metric, given.rater, rated if isinstance(rated, str) else float(rated))
    for rater, score in scores:
        if (
            score.metric in shorts
            and score.value is not None
            and rater not in found.get(score.metric, {}).get(key_of(score), {})
        ):
            rate(key_of(score), score.metric, rater, score.value)
    strangers = [f"human_{name}: no metric of the run; {n} ratings left out" for name, n in unknown.items()]
    items = {key: Item(key[1]) for rated_items in found.values() for key in rated_items}
    return PeopleSaid(name=source, items=items, ratings=found, notes=(*strangers, *broken))


def read_people(store: RunStore, human: Path | None = None, columns: Mapping[str, str] | None = None) -> PeopleSaid:
    """Return people's ratings of a run: a table's, or those that its samples carry. Raises ConfigError if there are none.

    columns: role → column of the table, if names do not say it.
    """
    metrics = store.metric_set().metrics
    if human is not None:
        return read_human(human, metrics, columns or {})
    source = str(store.folder / ("people.jsonl" if store.people else "samples.jsonl"))
    by_protocol = scores_by_people(store, protocol_of(store)) if store.people else ()
    found = labels_in(store.samples.values(), metrics, source, (), store.people.values(), by_protocol)
    if not found.ratings:
        text = f" ({'; '.join(found.notes)})" if found.notes else ""
        raise ConfigError(
            f"{store.folder}: its samples carry no human labels{text}; name a table with --human FILE, add columns "
            "human_<criterion> to the metadata and judge again, or give labels with editloupe annotate"
        )
    return found


def read_human(
    file: Path, metrics: Sequence[Metric], columns: Mapping[str, str], ratings: Sequence[str] = ()
) -> PeopleSaid:
    """Read people's ratings of a run's metrics, and of `ratings`. Raises as `read_label_table`."""
    names: list[Metric | str] = [*ratings, *metrics]
    only = metrics[0].id if len(names) == 1 and metrics else None
    return read_label_table(file, known=names_of(names), columns=columns, option="--columns", only=only)


def read_label_table(
    file: Path, *, known: Known | None, columns: Mapping[str, str], option: str, only: str | None = None
) -> PeopleSaid:
    """Read a table of ratings, or of one judge's scores.

    known: which metrics there are; None if every column of numbers is one.   columns: from `column_names`.
    only: the metric that is meant if the table names none.
    Raises ConfigError and SampleError if nothing in it can be used; lines that cannot be used are in its notes.
    """
    table = read_labels(file)
    roles, wide = _columns_of(table, columns, option, known)
    reader = _LabelReader(roles=roles, wide=wide, known=known, only=only or ONLY)
    for line in table.lines:
        reader.add(line)
    notes = tuple(f"{file.name}: {_lines_named(lines)} left out: {what}" for what, lines in reader.left_out.items())
    if notes and not any(reader.ratings.values()):
        raise ConfigError(f"{file}: no rating can be used: {'; '.join(notes)}")
    return PeopleSaid(name=str(file), items=reader.items, ratings=reader.ratings, notes=notes)


@dataclass(kw_only=True)
class _LabelReader:
    """Gathers a table's ratings, and counts the lines that cannot be used."""

    roles: Mapping[str, str]
    wide: Mapping[str, tuple[str, str]]
    """Column → (metric, rater); empty for a long table."""
    known: Known | None
    only: str
    items: dict[Key, Item] = field(default_factory=dict)
    """What the table says of an item, on the first line that rates it."""
    ratings: dict[str, dict[Key, dict[str, float | str]]] = field(default_factory=dict)
    left_out: dict[str, list[int]] = field(default_factory=dict)
    """Why → lines."""

    def __post_init__(self) -> None:
        self.ratings |= {metric: {} for metric, _ in self.wide.values()}

    def add(self, line: TableLine) -> None:
        """Take one line, or count it among those that are left out."""
        text = {role: text_of(line.values.get(column)) for role, column in self.roles.items()}
        item, turn = text.get("item"), text.get("turn") or "0"
        why = line.fault or ("" if turn.isdecimal() else f"names the turn {turn!r}, which is no whole number")
        if why or item is None:
            self._leave(line, why or "names no item")
            return
        key = (text.get("editor") or "", item, int(turn), text.get("part") or "")
        facts, by = Item(text.get("source") or item, text.get("edit_type")), text.get("rater") or NO_RATER
        for column, (metric, rater) in self.wide.items():
            self._rate(line, column, metric, by if rater == NO_RATER else rater, key, facts)
        if not self.wide and (metric_named := self._metric(line, text.get("criterion"))) is not None:
            self._rate(line, self.roles["label"], metric_named, by, key, facts)

    def _metric(self, line: TableLine, text: str | None) -> str | None:
        if "criterion" not in self.roles:
            return self.only
        found = self.known(text) if text is not None and self.known is not None else text
        if found is None:
            self._leave(line, "names no criterion" if text is None else f"rates {text!r}, which is no criterion here")
        return found

    def _rate(self, line: TableLine, column: str, metric: str, rater: str, key: Key, facts: Item) -> None:
        rated = self.ratings.setdefault(metric, {})
        try:
            rating = as_rating(line.values.get(column))
        except ValueError as error:
            self._leave(line, f"holds no rating: {error}")
            return
        if rating is None:
            return
        self.items.setdefault(key, facts)
        if rated.setdefault(key, {}).setdefault(rater, rating) != rating:
            self._leave(line, "rates again, in another way, what a line above rates (a column rater names several)")

    def _leave(self, line: TableLine, what: str) -> None:
        self.left_out.setdefault(what, []).append(line.number)


def _lines_named(numbers: Sequence[int]) -> str:
    """Return "line 4", or "3 lines (4, 9, 12)"."""
    first = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"line {first}" if len(numbers) == 1 else f"{len(numbers)} lines ({first})"


def _columns_of(
    table: MetadataTable, columns: Mapping[str, str], option: str, known: Known | None
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return role → column, and of a wide table column → (metric, rater). The user's names come before the usual ones.

    Raises ConfigError: a column that is not there, no column of items, none of ratings.
    """
    there = ", ".join(table.columns)
    for role, column in columns.items():
        if column not in table.columns:
            raise ConfigError(f"{option} {role}={column}: {table.file} has no column {column!r}; it has {there}")
    roles = {role: column for role, column in columns.items() if role in ROLES}
    folded = {name.strip().casefold().replace(" ", "_").replace("-", "_"): name for name in reversed(table.columns)}
    for role, names in ROLES.items():
        taken = {*columns.values(), *roles.values()}
        found = next((folded[name] for name in names if name in folded and folded[name] not in taken), None)
        if role not in roles and found is not None:
            roles[role] = found
    if "item" not in roles:
        raise ConfigError(
            f"{table.file}: no column names the item; expected one of {', '.join(ROLES['item'])}; found {there}; or say "
            f"which: {option} item=COLUMN"
        )
    wide = {}
    for role, column in columns.items():
        if role not in ROLES:
            name, _, rater = role.partition("@")
            metric = name if known is None else known(name)
            if metric is None:
                raise ConfigError(
                    f"{option} {role}={column}: {name!r} is no role ({', '.join(ROLES)}) and no criterion here"
                )
            wide[column] = metric, rater or NO_RATER
    if not wide and "criterion" not in roles and (known is not None or "label" not in roles):
        wide = _wide(table, set(roles.values()), known)
    if "label" not in roles and not wide:
        raise ConfigError(
            f"{table.file}: no column holds ratings; expected a column label, value or score, or one of finite numbers for "
            f"each criterion, found {there}; or say which: {option} label=COLUMN or {option} CRITERION=COLUMN"
        )
    return roles, wide


def _wide(table: MetadataTable, taken: set[str], known: Known | None) -> dict[str, tuple[str, str]]:
    """Return column → (metric, rater) of every column whose name holds a metric, or, if none is known, of numbers alone."""
    columns = [column for column in table.columns if column and column not in taken]
    if known is not None:
        return {column: place for column in columns if (place := metric_and_rater(column, known)) is not None}

    def is_rating(value: object) -> bool:
        try:
            return not isinstance(as_rating(value), str)  # type: ignore[arg-type]
        except ValueError:
            return False

    lines = [line.values for line in table.lines if line.fault is None]
    return {column: (column, NO_RATER) for column in columns if all(is_rating(values.get(column)) for values in lines)}


def column_names(text: str | None, option: str) -> dict[str, str]:
    """Return "item=image_id,if@anna=anna_if" as role, or criterion[@rater], → column. Raises ConfigError."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        role, _, column = (word.strip() for word in part.partition("="))
        if not role or not column or role in found:
            raise ConfigError(
                f"{option} {part!r}: expected ROLE=COLUMN, such as item=image_id, or CRITERION[@RATER]=COLUMN, each once"
            )
        found[role] = column
    return found


def read_labels(file: Path) -> MetadataTable:
    """Read a table that must have columns. Raises SampleError if no line of it can be read."""
    table = read_table(file)
    if not table.columns:
        line = table.lines[0]
        raise SampleError(
            f"{line.fault or 'holds no values'}; expected CSV (.csv, .tsv), JSON Lines or Parquet, by the file's ending",
            file=file,
            line=line.number,
        )
    if not table.text_only:
        return table
    # The table may be one that editloupe wrote.
    lines = (
        replace(line, values={from_csv_cell(name): from_csv_cell(str(value)) for name, value in line.values.items()})
        for line in table.lines
    )
    return replace(table, columns=tuple(map(from_csv_cell, table.columns)), lines=tuple(lines))


def as_rating(value: Json) -> float | str | None:
    """Return a finite number, or text; None for an empty cell and what tables write for nothing. Raises ValueError."""
    if value is None or (isinstance(value, str) and value.strip().casefold() in ("", "nan", "null", "na", "n/a")):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a label or a number, found {shown(value)}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return str(value).strip()
    if not math.isfinite(number):
        raise ValueError(f"expected a label or a finite number, found {shown(value)}")
    return number


def text_of(value: Json) -> str | None:
    """Return a name; a whole number is one too, however it is written (12 and 12.0)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or isinstance(value, bool) else str(value).strip() or None
