"""GIE-Bench as it is downloaded: `gie_bench.json` beside its images, with the outputs of the editors to be judged.

What `giebench.toml` cannot say: each row's mask of 0 and 1 becomes a PNG of the sample, white where change was allowed;
an image that lies in another category is found by its URL; outputs may be listed in a file. A row's id is its place from 0.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from editloupe.data.folders import Folder, ImageFile, RowError
from editloupe.data.images import MIN_SIDE, ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.layout import RowShape
from editloupe.data.loaders.mapped import Mapped, Rows, is_there, placed
from editloupe.data.rows import DataRow, Loaded, Row, rejected
from editloupe.data.tables import TableLine, read_table, shown
from editloupe.errors import SampleError
from editloupe.protocols.giebench.questions import KEY, QuestionError, read_question
from editloupe.values import ImageRef, Json, Sample

FILE: Final = "gie_bench.json"

URL_LISTS: Final = "images2000urls"
"""Folder of the lists CATEGORY.json that come with the data: which image of which category a URL is."""
MASK_PX: Final = 224
"""Side of the data set's own masks."""

_IMAGE, _INSTRUCTION, _EDITED, _MASK, _URL = "image", "edit_instruction", "edited_image_path", "object_mask", "url"
_BLANKS: Final = " \t\r\n"
_LISTS: Final = re.compile(rf'("{_MASK}"\s*:\s*)(\[\s*\[[01,\s\[\]]*\]\s*\])')


class GIEBenchData(Mapped):
    """The rows, with their masks and with outputs from lists."""

    def prepared(self, text: str) -> str:
        # A mask as text is read in a fraction of the time: the numbers of all rows are 54 million.
        return _LISTS.sub(lambda match: f'{match[1]}"{reduce(_without, _BLANKS, match[2])}"', text)

    def check_edits(self, shape: RowShape, data: DataSet) -> None:
        """Left to `read`: rows may name their outputs themselves."""

    def raw(self, line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        raw = super().raw(line, rows, language)
        # The slash that a path begins with means the folder of the images.
        return {**raw, _IMAGE: _name(raw[_IMAGE]) if isinstance(raw[_IMAGE], str) else raw[_IMAGE]}

    def values(self, raw: Mapping[str, Json], line: TableLine, place: int, rows: Rows, language: str) -> dict[str, Json]:
        return {**super().values(raw, line, place, rows, language), "id": str(line.number - 1)}

    def read(self, tables: Sequence[Rows], data: DataSet, notes: list[str]) -> list[Row]:
        (rows,) = tables
        categories = _categories(rows.images)
        listed = any(line.values.get(_EDITED) for line in rows.table.lines)
        if not listed:
            super().check_edits(rows.shape, data)
        found: list[Row] = []
        for row, line in zip(super().read(tables, data, notes), rows.table.lines, strict=True):
            if isinstance(row, DataRow) and not is_there(row.source.folder, row.source.name):
                row = _by_url(row, line, rows, categories, notes)
            if listed and data.outputs and not data.edited:
                row = _with_edit(row, line.values.get(_EDITED), rows.images)
            found.append(row)
        return found

    def attached(self, rows: Sequence[Row], shape: RowShape, data: DataSet, notes: list[str]) -> Sequence[Row]:
        found: list[Row] = []
        for editor, path in data.edited.items():
            if path.is_file():
                own = read_table(Folder(data.root, data.store).own(data.metadata.name if data.metadata else FILE))
                found += _from_list(rows, own.lines, editor, path, data.store, notes)
            else:
                found += super().attached(rows, shape, replace(data, edited={editor: path}), notes)
        return found if data.edited else rows

    def notes(self, tables: Sequence[Rows]) -> Iterable[str]:
        (rows,) = tables
        lines = [line for line in rows.table.lines if line.fault is None]
        images = {_name(line.values.get(_IMAGE)) for line in lines}
        pairs = Counter(json.dumps([_name(line.values.get(_IMAGE)), line.values.get("edit_type")]) for line in lines)
        same = Counter(_same(line.values) for line in lines)
        yield f"{len(lines)} rows about {len(images)} images"
        repeated, again = (sum(n > 1 for n in counted.values()) for counted in (pairs, same))
        if repeated or again:
            yield (
                f"{repeated} pairs of image and edit type occur more than once, {again} of image and instruction; each row "
                "is judged by itself"
            )
        yield from _key_notes(lines)

    def completed(self, loaded: Loaded, tables: Sequence[Rows], data: DataSet) -> Loaded:
        (rows,) = tables
        masks = {str(line.number - 1): _mask(line.values.get(_MASK), data.store) for line in rows.table.lines}
        samples = tuple(_finished(sample, masks[sample.id]) for sample in loaded.samples)
        return replace(loaded, samples=samples, notes=(*loaded.notes, *_mask_notes(masks)))


GIEBENCH: Final = GIEBenchData(Path(__file__).with_name("giebench.toml"))


def _name(path: Json) -> str:
    return path.lstrip("/\\") if isinstance(path, str) else ""


def _categories(root: Folder) -> dict[str, list[str]]:
    """Return URL → CATEGORY/NAME, of the lists that come with the data; {} without them."""
    found: dict[str, list[str]] = {}
    folder = root.own(URL_LISTS)
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        for line in read_table(file).lines:
            url, name = line.values.get("image_url"), line.values.get("image_name")
            if isinstance(url, str) and isinstance(name, str):
                found.setdefault(url, []).append(f"{file.stem}/{_name(name)}")
    return found


def _by_url(
    row: DataRow, line: TableLine, rows: Rows, categories: Mapping[str, Sequence[str]], notes: list[str]
) -> DataRow:
    """Return a row whose image is not where it says with the image that the lists have for its URL."""
    name = _name(line.values.get(_IMAGE))
    for other in categories.get(str(line.values.get(_URL)), ()):
        for ending in ("", Path(name).suffix):
            place = placed(other + ending, "source", rows)
            if isinstance(place, str) and is_there(rows.images, place):
                notes.append(f"row {row.id}: {name} is not there; {other}{ending} is the image of its URL")
                return replace(row, source=ImageFile(folder=rows.images, name=place))
    return row


def _with_edit(row: Row, path: Json, folder: Folder) -> Row:
    """Return a row with the edited image that it names; null and "" mean that there is none."""
    if isinstance(row, DataRow) and path is not None and path != "":
        if not isinstance(path, str):
            return rejected(row, RowError("row", f"key {_EDITED!r}: expected a path, found {shown(path)}"))
        given = Path(path)
        inside = given.is_absolute() and given.is_relative_to(folder.root.resolve())
        name = given.relative_to(folder.root.resolve()).as_posix() if inside else path
        return replace(row, edited=(ImageFile(folder=folder, name=name),))
    return row


def _from_list(
    rows: Sequence[Row], lines: Sequence[TableLine], editor: str, path: Path, store: ImageStore, notes: list[str]
) -> list[Row]:
    """Return the rows with the outputs that a list names.

    A row of the list belongs to the row of the same image and instruction; where several are the same, in their order.
    """

    def counted(given: Iterable[TableLine]) -> Iterator[tuple[tuple[str, int], Json]]:
        seen = Counter[str]()
        for same, output in ((_same(one.values), one.values.get(_EDITED)) for one in given):
            yield (same, seen[same]), output
            seen[same] += 1

    folder, found = Folder(path.parent, store), dict(counted(read_table(path).lines))
    places = [place for place, _ in counted(lines)]
    known = set(places)
    missing, strange = sum(not found.get(place) for place in places), sum(place not in known for place in found)
    if missing == len(places):
        raise SampleError(
            f"names no output of any row; expected rows with {_IMAGE!r}, {_INSTRUCTION!r} and {_EDITED!r}, as in {FILE}",
            file=path,
        )
    notes.append(f"editor {editor!r}: outputs listed in {path}; {missing} missing, {strange} belong to no row")
    return [replace(_with_edit(r, found.get(p), folder), editor=editor) for r, p in zip(rows, places, strict=True)]


def _same(values: Mapping[str, Json]) -> str:
    return json.dumps([_name(values.get(_IMAGE)), values.get(_INSTRUCTION)])


@dataclass(frozen=True, kw_only=True)
class _Mask:
    """What became of a row's mask."""

    image: ImageRef | None
    note: str = ""
    """What is odd; "" for nothing."""
    kind: str = ""
    """"empty" or "full" for a mask that leaves nothing to tell apart."""


def _mask(value: Json, store: ImageStore) -> _Mask:
    """Return a mask of numbers as an image, 255 where change was allowed: where a number is above 0."""
    if value is None:
        return _Mask(image=None, note="there is no mask")
    try:
        given = _array(value)
    except (ValueError, OverflowError):
        return _Mask(image=None, note="the mask's rows differ in length, and it is not used")
    if given.ndim != 2 or given.dtype.kind not in "buif" or not np.isfinite(given).all() or min(given.shape) < MIN_SIDE:
        what = f"expected at least {MIN_SIDE}×{MIN_SIDE} numbers"
        return _Mask(image=None, note=f"the mask is {shown(value)}; {what}, and it is not used")
    inside = given > 0
    odd = []
    if given.shape != (MASK_PX, MASK_PX):
        odd.append(f"the mask is {given.shape[1]}×{given.shape[0]}, and others are {MASK_PX}×{MASK_PX}")
    if not np.isin(given, (0, 1)).all():
        odd.append("the mask holds other numbers than 0 and 1; what is above 0 counts as edited")
    kind = "full" if inside.all() else "" if inside.any() else "empty"
    if kind:
        odd.append("the mask is full: nothing lies outside it" if kind == "full" else "the mask is empty")
    white = np.where(inside, np.uint8(255), np.uint8(0))
    return _Mask(image=store.add_array(np.repeat(white[:, :, None], 3, axis=2)), note="; ".join(odd), kind=kind)


def _array(value: Json) -> NDArray[Any]:
    """Return lists of numbers, which may be written as text, as an array. Raises ValueError for ragged lists."""
    if not isinstance(value, str) or not value.startswith("[["):
        return np.array(value)
    lines = value[2:-2].split("],[")
    numbers = np.frombuffer(_without("".join(lines), ",").encode(), np.uint8) - ord("0")
    if len({*map(len, lines)}) > 1 or len(numbers) != sum((len(line) + 1) // 2 for line in lines) or (numbers > 1).any():
        raise ValueError("lists differ in length")
    return numbers.reshape(len(lines), -1)


def _without(text: str, mark: str) -> str:
    return text.replace(mark, "")


def _mask_notes(masks: Mapping[str, _Mask]) -> Iterator[str]:
    for kind, then in (("empty", "the whole image is measured"), ("full", "nothing is left to be measured")):
        if rows := [id_ for id_, mask in masks.items() if mask.kind == kind]:
            yield f"{kind} masks, so that {then}: {_some(rows)}"
    if rows := [id_ for id_, mask in masks.items() if mask.image is None]:
        yield f"no mask that can be used: {_some(rows)}"


def _finished(sample: Sample, mask: _Mask) -> Sample:
    """Return a sample with its mask and with what is odd about mask and key."""
    notes = [mask.note] if mask.note else []
    try:
        question = read_question(sample.extra)
        if question.folded:
            notes.append(f"the key {sample.extra[KEY]!r} is read as the option {question.options[question.key]!r}")
    except QuestionError as error:
        notes.append(str(error))
    masks = {} if mask.image is None else {"edit": mask.image}
    return replace(sample, masks=masks, warnings=(*sample.warnings, *notes))


def _key_notes(lines: Sequence[TableLine]) -> Iterator[str]:
    """Yield how many keys are no option, by what becomes of their questions."""
    found: dict[str, list[str]] = {"folded": [], "key": [], "question": []}
    for line in lines:
        try:
            kind = "folded" if read_question(line.values).folded else ""
        except QuestionError as error:
            kind = "key" if error.of_key else "question"
        if kind:
            found[kind].append(str(line.number - 1))
    folded, unknown, broken = found.values()
    if folded or unknown:
        yield f"keys that match no option exactly: {len(folded) + len(unknown)}"
    if folded:
        yield f"of these accepted, since they match without case and punctuation: {_some(folded)}"
    if unknown:
        yield f"of these none of their options, which blocks their question: {_some(unknown)}"
    if broken:
        yield f"no question that can be asked: {_some(broken)}"


def _some(rows: Sequence[str]) -> str:
    """Return "3 (rows 1, 2, 3)", at most 20 of them."""
    more = f" and {len(rows) - 20} more" if len(rows) > 20 else ""
    return f"{len(rows)} ({'row' if len(rows) == 1 else 'rows'} {', '.join(rows[:20])}{more})"
