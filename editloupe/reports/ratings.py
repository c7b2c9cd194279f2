"""Tables of ratings, by people or by a judge, read into one shape. What cannot be used is counted and named.

Long (a row a rating: item, editor, rater, criterion, label) or wide (a row an item, a column a criterion, and a rater
where the column's name has one). Columns are found by their usual names, or as the user says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from editloupe.data.rows import human_column
from editloupe.data.tables import Table, TableLine, read_table, shown
from editloupe.errors import ConfigError, SampleError
from editloupe.values import Json

Key: TypeAlias = tuple[str, str]
"""(editor, item); the editor is "" where none is named."""

Known: TypeAlias = Callable[[str], str | None]
"""The criterion that a name means; None where it means none."""

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "item": ("item", "item_id", "sample_id", "sample", "id", "image_id", "image", "key", "uid", "idx"),
    "editor": ("editor", "model", "system", "method", "generator"),
    "rater": ("rater", "rater_id", "annotator", "annotator_id", "worker", "worker_id", "user"),
    "criterion": ("criterion", "criteria", "metric", "dimension", "aspect"),
    "label": ("value", "score", "rating", "label", "human", "answer"),
    "edit_type": ("edit_type", "task", "category", "type"),
    "area": ("area", "area_ratio", "relative_area"),
    "source": ("source", "source_id", "source_image", "source_file_name"),
}
"""What a column may be, with the names by which it is found, the likeliest first."""

NO_RATER: Final = "human"
ONLY: Final = "score"
"""The criterion of a table that has one column of ratings and no criterion's name."""


@dataclass(frozen=True, kw_only=True)
class Rated:
    """All that a table says of one edit.

    ratings: criterion → rater → number or label.   area: share of the image, 0..1.   source: the source image's name.
    """

    ratings: dict[str, dict[str, float | str]] = field(default_factory=dict)
    edit_type: str | None = None
    area: float | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class RatingTable:
    """items: in the order of the file.   criteria: that have a rating or a column.   notes: what a reader must know."""

    file: Path
    items: Mapping[Key, Rated]
    criteria: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def editors(self) -> tuple[str, ...]:
        """Those named, each once."""
        return tuple(dict.fromkeys(editor for editor, _ in self.items if editor))


def column_names(text: str | None, option: str) -> dict[str, str]:
    """ "item=image_id,if@anna=anna_if" as role, or criterion[@rater], → column. Raises ConfigError."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        role, equals, column = (word.strip() for word in part.partition("="))
        if not equals or not role or not column:
            raise ConfigError(
                f"{option} {part!r}: expected ROLE=COLUMN, such as item=image_id, or CRITERION[@RATER]=COLUMN"
            )
        if role in found:
            raise ConfigError(f"{option} names {role!r} twice")
        found[role] = column
    return found


def read_ratings(
    file: Path, *, known: Known | None, columns: Mapping[str, str], option: str, only: str | None = None
) -> RatingTable:
    """A table of ratings.

    known: which criteria there are; None where every column of numbers is one.   columns: from `column_names`.
    only: the criterion that is meant where the table names none.
    Raises ConfigError and SampleError where nothing in it can be used; lines that cannot be used are in its notes.
    """
    table = read_labels(file)
    roles, named = find_roles(table, columns, option, ROLES)
    if "item" not in roles:
        raise ConfigError(
            f"{file}: no column names the item; expected one of {', '.join(ROLES['item'])}, "
            f"found {', '.join(table.columns)}; or say which: {option} item=COLUMN"
        )
    wide, strays = _named_wide(named, known, option), list[str]()
    if not wide and "criterion" not in roles and (known is not None or "label" not in roles):
        wide, strays = _wide(table, set(roles.values()), known)
    if "label" not in roles and not wide:
        if strays:
            raise ConfigError(
                f"{file}: {'; '.join(strays)}; expected finite numbers, or nothing, in every line of a column of ratings: "
                f"mend the file, or say that it holds ratings, words included: {option} CRITERION=COLUMN"
            )
        raise ConfigError(
            f"{file}: no column holds ratings; expected a column label, value or score, or one for each criterion, "
            f"found {', '.join(table.columns)}; or say which: {option} label=COLUMN or {option} CRITERION=COLUMN"
        )
    reader = _Reader(table, roles, wide, known, only, option)
    reader.notes += [f"{table.file.name}: {stray}; it is not taken for ratings" for stray in strays]
    for line in table.lines:
        reader.add(line)
    return reader.finish()


class _Reader:
    """Gathers a table's lines by item, and counts those that cannot be used."""

    def __init__(
        self,
        table: Table,
        roles: Mapping[str, str],
        wide: Mapping[str, tuple[str, str]],
        known: Known | None,
        only: str | None,
        option: str,
    ) -> None:
        self.table, self.roles, self.wide, self.known, self.only, self.option = table, roles, wide, known, only, option
        self.items: dict[Key, Rated] = {}
        self.notes: list[str] = []
        self.criteria = dict.fromkeys(criterion for criterion, _ in wide.values())
        self.left_out: dict[str, list[int]] = {}
        self.twice: list[int] = []
        self.split: dict[tuple[Key, str, str], list[int]] = {}

    def add(self, line: TableLine) -> None:
        if line.fault is not None:
            self._leave(line, line.fault)
            return
        item = text_of(line.values.get(self.roles["item"]))
        if item is None:
            self._leave(line, "names no item")
            return
        editor = text_of(line.values.get(self.roles["editor"])) if "editor" in self.roles else None
        key = editor or "", item
        rated = self.items.setdefault(key, self._facts(line))
        if self.wide:
            for column, (criterion, rater) in self.wide.items():
                self._rate(line, key, rated, criterion, rater, line.values.get(column))
        else:
            named = self._criterion(line)
            if named is not None:
                self._rate(line, key, rated, named, self._rater(line), line.values.get(self.roles["label"]))

    def finish(self) -> RatingTable:
        name = self.table.file.name
        notes = [*self.notes]
        notes += [f"{name}: {lines_named(lines)} left out: {what}" for what, lines in self.left_out.items()]
        if self.twice:
            notes.append(f"{name}: repeated, and counted once: {lines_named(self.twice)}")
        if self.split:
            places = [n for lines in self.split.values() for n in lines]
            hint = (
                "" if "rater" in self.roles or self.wide else "; if these are several raters, name them in a column rater"
            )
            notes.append(
                f"{name}: given again with another value, and left out both times: {len(self.split)} "
                f"({lines_named(places)}){hint}"
            )
        for key, criterion, rater in self.split:
            del self.items[key].ratings[criterion][rater]
        return RatingTable(file=self.table.file, items=self.items, criteria=tuple(self.criteria), notes=tuple(notes))

    def _facts(self, line: TableLine) -> Rated:
        def value(role: str) -> Json:
            return line.values.get(self.roles[role]) if role in self.roles else None

        area = _number(value("area"))
        return Rated(edit_type=text_of(value("edit_type")), area=area, source=text_of(value("source")))

    def _criterion(self, line: TableLine) -> str | None:
        if "criterion" not in self.roles:
            name = self.only or ONLY
            self.criteria.setdefault(name)
            return name
        text = text_of(line.values.get(self.roles["criterion"]))
        found = text if text is None or self.known is None else self.known(text)
        if found is None:
            self._leave(line, "names no criterion" if text is None else f"rates {text!r}, which is no criterion here")
        else:
            self.criteria.setdefault(found)
        return found

    def _rater(self, line: TableLine) -> str:
        return (text_of(line.values.get(self.roles["rater"])) if "rater" in self.roles else None) or NO_RATER

    def _rate(self, line: TableLine, key: Key, rated: Rated, criterion: str, rater: str, value: Json) -> None:
        try:
            rating = as_rating(value)
        except ValueError as error:
            self._leave(line, f"holds no rating: {error}")
            return
        if rating is None:
            return
        given = rated.ratings.setdefault(criterion, {})
        if rater not in given:
            given[rater] = rating
        elif given[rater] == rating:
            self.twice.append(line.number)
        else:
            self.split.setdefault((key, criterion, rater), []).append(line.number)

    def _leave(self, line: TableLine, what: str) -> None:
        self.left_out.setdefault(what, []).append(line.number)


def read_labels(file: Path) -> Table:
    """`read_table`, for a file that must have columns. Raises SampleError where no line of it can be read."""
    table = read_table(file)
    if not table.columns:
        line = table.lines[0]
        raise SampleError(
            f"{line.fault or 'holds no values'}; expected CSV (.csv, .tsv), JSON Lines or Parquet, by the file's ending",
            file=file,
            line=line.number,
        )
    return table


def find_roles(
    table: Table, columns: Mapping[str, str], option: str, known: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Role → column, and what the user named that is no role → column. What the user says comes first, then usual names.

    known: role → usual names, the likeliest first.   Raises ConfigError for a column that is not there.
    """
    for role, column in columns.items():
        if column not in table.columns:
            raise ConfigError(
                f"{option} {role}={column}: {table.file} has no column {column!r}; it has {', '.join(table.columns)}"
            )
    named = {role: column for role, column in columns.items() if role not in known}
    roles = {role: column for role, column in columns.items() if role in known}
    taken = {*columns.values()}
    folded = {name.strip().casefold().replace(" ", "_").replace("-", "_"): name for name in reversed(table.columns)}
    for role, names in known.items():
        found = next((folded[n] for n in names if n in folded and folded[n] not in taken), None)
        if role not in roles and found is not None:
            roles[role] = found
            taken.add(found)
    return roles, named


def _named_wide(named: Mapping[str, str], known: Known | None, option: str) -> dict[str, tuple[str, str]]:
    """Column → (criterion, rater) of those that the user named."""
    found = {}
    for role, column in named.items():
        name, _, rater = role.partition("@")
        criterion = name if known is None else known(name)
        if criterion is None:
            raise ConfigError(f"{option} {role}={column}: {name!r} is no role ({', '.join(ROLES)}) and no criterion here")
        found[column] = criterion, rater or NO_RATER
    return found


def _wide(table: Table, taken: set[str], known: Known | None) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Column → (criterion, rater) of every column whose name holds a criterion, or, where none is known, of numbers alone.

    And the columns that would be of numbers but for a few values (the fewer half), with the first of these, in words.
    """
    found, strays = {}, []
    for column in table.columns:
        if column in taken:
            continue
        if known is None:
            values = [(line.number, line.values.get(column)) for line in table.lines if line.fault is None]
            values = [(number, value) for number, value in values if not _blank(value)]
            others = [(number, value) for number, value in values if _number(value) is None]
            if column and not others:
                found[column] = (column, NO_RATER)
            elif column and 2 * len(others) <= len(values):
                number, value = others[0]
                told = f" (and {len(others) - 1} more such)" if len(others) > 1 else ""
                strays.append(f"column {column!r} holds no finite number on line {number}: {shown(value)}{told}")
            continue
        place = _criterion_and_rater(column, known)
        if place is not None:
            found[column] = place
    return found, strays


def _criterion_and_rater(column: str, known: Known) -> tuple[str, str] | None:
    """`human_if_anna`, `if_anna`, `anna_if`, `if`: ("instruction_following", "anna" or "human")."""
    human = human_column(column)
    if human is not None and (criterion := known(human[0])) is not None:
        return criterion, human[1]
    rest = column.removeprefix("human_")
    if (criterion := known(rest)) is not None:
        return criterion, NO_RATER
    for cut in re.finditer(r"_+", rest):
        before, after = rest[: cut.start()], rest[cut.end() :]
        if after and (criterion := known(before)) is not None:
            return criterion, after
        if before and (criterion := known(after)) is not None:
            return criterion, before
    return None


def as_rating(value: Json) -> float | str | None:
    """A finite number, or text; None where the cell is empty. Raises ValueError."""
    if _blank(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a label or a number, found {shown(value)}")
    number = _number(value)
    if number is not None:
        return number
    text = str(value).strip()
    if isinstance(value, float) or text.casefold() in ("inf", "-inf", "+inf", "infinity", "-infinity"):
        raise ValueError(f"expected a label or a finite number, found {shown(value)}")
    return text


def _blank(value: Json) -> bool:
    """Nothing, or what tables write for nothing."""
    return value is None or (isinstance(value, str) and value.strip().casefold() in ("", "nan", "null", "na", "n/a"))


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def text_of(value: Json) -> str | None:
    """A name; a whole number is one too, however it is written (12 and 12.0)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or isinstance(value, bool) else str(value).strip() or None


def lines_named(numbers: Sequence[int]) -> str:
    """ "line 4", or "3 lines (4, 9, 12)"."""
    first = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"line {first}" if len(numbers) == 1 else f"{len(numbers)} lines ({first})"
