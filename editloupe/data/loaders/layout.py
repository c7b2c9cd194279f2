"""The mapping of a layout: a TOML file that says which files, columns and folders of a data set hold what.

docs/data.md shows its sections. A name in it is a column, a path into one (`turns.0.input`), or a text with such names in
braces (`images/{image}.png`). Of several names the first that the rows have counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from editloupe.data.folders import RowError
from editloupe.data.outputs import FileNames, Texts
from editloupe.data.rows import OWN_COLUMNS
from editloupe.data.tables import shown
from editloupe.errors import ConfigError, did_you_mean
from editloupe.files import read_toml
from editloupe.values import Json

ROLES: Final[Mapping[str, str]] = {
    "source": "source_file_name",
    "edited": "edited_file_name",
    "reference": "reference_file_name",
    "mask": "mask_file_name",
    "target": "target_name",
    **{name: name for name in sorted(OWN_COLUMNS)},
}
"""What a mapping calls a part of a row → the column by which it is read; these columns may be named as they are."""
IMAGES: Final = ("source", "edited", "reference", "mask")
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("source", "source_image", "input_image", "original", "before"),
    "edited": ("edited", "edited_image", "output_image", "after"),
    "instruction": ("instruction", "edit_instruction", "prompt", "edit_prompt"),
    "id": ("id", "key"),
    "editor": ("editor", "model"),
    "edit_type": ("edit_type",),
    "reference": ("reference", "reference_image"),
    "mask": ("mask",),
}
"""What a row of one's own is made of → columns that are taken for it where no mapping names another."""
KEY: Final = "key"
FOLDER: Final = "folder"
"""Names beside the columns: the key of a row in a JSON object, or its place; and the folder that its file lies in."""

_NAME: Final = re.compile(r"\{([^{}]+)\}")


class RowShape(BaseModel):
    """One way in which the rows come."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    """Of public data; "" for data of one's own, which is called as its folder."""
    files: Texts = ()
    """Names of the files of rows, below the folder; the first that is there counts, and all files that `*` stands for."""
    inside: bool = False
    """Whether rows are files of Parquet or Arrow that hold their images."""
    needs: Texts = ()
    """Columns that each row must have; rows that hold their images are known by them."""
    columns: dict[str, Texts] = Field(default_factory=dict)
    """Role → names. `instructions` of several columns has a turn for each that is there."""
    folders: dict[str, Texts] = Field(default_factory=dict)
    """Role of an image → folders beside the file in which it is looked for, the first of them where it is nowhere."""
    parts: dict[str, str] = Field(default_factory=dict)
    """Name → a regular expression whose named groups are further names."""
    languages: dict[str, str] = Field(default_factory=dict)
    """Language → the column with the instruction in it. A row becomes a sample for each, with the name `language`."""
    hints: Texts = ()
    """Names to make an id from where no role says it; the first that no other row has counts."""
    leave: Texts = ()
    """Columns that do not travel along."""
    outputs: FileNames = FileNames()
    options: dict[str, str] = Field(default_factory=dict)
    """For the code of a layout that a mapping alone cannot say."""


class Layout(RowShape):
    """A mapping file."""

    layout: str = ""
    """In a file of one's own: the layout that it is laid over."""
    looks: str = ""
    """What is looked for, in words."""
    shapes: tuple[dict[str, Any], ...] = ()
    """What differs where the rows come in several ways: each is laid over the rest, and the first that fits is taken."""

    @classmethod
    def read(cls, file: Path, over: Path | None = None, columns: Mapping[str, str] | None = None) -> Self:
        """Return the mapping of a file. over: a file of the user's that is laid over it.   columns: the same for columns.

        Raises ConfigError, which names the section, for a file that says something else.
        """
        base = read_toml(file, "the built-in mapping file")
        given = {} if over is None else read_toml(over, f"mapping file {over}")
        where = "--columns" if over is None else str(over)
        if columns and (unknown := [name for name in columns if name not in ROLES]):
            name, other = unknown[0], columns[unknown[0]]
            near = f"the role comes first: {other}={name}; " if other in ROLES else did_you_mean(name, tuple(ROLES))
            raise ConfigError(
                f"--columns: {name!r} is nothing that a column holds; {near}expected {', '.join((*USUAL, 'target'))} "
                "or a column of docs/data.md"
            )
        mine = _merged(given, {"columns": dict(columns)} if columns else {})
        try:
            read = cls.model_validate(_merged(base, given))
            own = [_merged(shape, mine) for shape in read.shapes]
            whole = read.model_dump() | {"shapes": own}
            return cls.model_validate(_merged(whole, mine))
        except ValidationError as error:
            raise ConfigError(f"{where}: {_explained(error)}") from error

    def each(self) -> tuple[RowShape, ...]:
        """Return the ways in which the rows come."""
        base = self.model_dump(include=set(RowShape.model_fields))
        return tuple(RowShape.model_validate(_merged(base, shape)) for shape in self.shapes or ({},))


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections laid over others: a list or a text takes the place of what was there."""
    found = dict(base)
    for name, value in over.items():
        before = found.get(name)
        found[name] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return found


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    section, *place = (str(part) for part in first["loc"])
    where = f"[{section}]" + (f" {place[0]}" if place else "")
    if first["type"] == "extra_forbidden":
        known: Collection[str] = FileNames.model_fields if place else Layout.model_fields
        return f"unknown {'key' if place else 'section or key'} {where}; expected one of {', '.join(known)}"
    said = first["msg"].removeprefix("Value error, ")
    return f"{where}: {said[:1].lower()}{said[1:]}, found {shown(first['input'])}"


def names_in(text: str) -> list[str]:
    """Return the names that a name of a mapping stands for: those in its braces, or itself."""
    return _NAME.findall(text) if "{" in text else [text]


def chosen(wanted: Iterable[str], known: Collection[str]) -> str | None:
    """Return the first of several names of which the rows have all columns, a path's first part among them."""
    return next((one for one in wanted if all(n in known or n.partition(".")[0] in known for n in names_in(one))), None)


def value_of(row: Mapping[str, Json], name: str) -> Json:
    """Return what a name of a mapping stands for in a row; None where the row has nothing there."""
    if "{" in name:
        given = {inner: value_of(row, inner) for inner in names_in(name)}
        if any(value is None or value == "" for value in given.values()):
            return None
        if odd := [n for n, value in given.items() if isinstance(value, bool) or not isinstance(value, str | int)]:
            raise RowError("row", f"column {odd[0]!r}: expected text or a whole number, found {shown(given[odd[0]])}")
        return _NAME.sub(lambda match: str(given[match[1]]), name)
    if name in row:
        return row[name]
    found: Json = row
    for part in name.split("."):
        found = _inside(found, part)
    return found


def _inside(value: Json, part: str) -> Json:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list | tuple) and re.fullmatch("-?[0-9]{1,4}", part):
        return value[int(part)] if -len(value) <= int(part) < len(value) else None
    if isinstance(value, list | tuple):
        return [_inside(one, part) for one in value]
    return None


def path_part(value: Json, name: str) -> str:
    """Return text or a whole number that can be part of a path. Raises RowError."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text.strip() or "/" in text or "\\" in text or "\0" in text or text in (".", ".."):
        raise RowError(
            "row", f"key {name!r}: expected text without '/', since outputs are named by it; found {shown(value)}"
        )
    return text
