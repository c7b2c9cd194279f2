"""GIE-Bench as it is downloaded: `gie_bench.json` beside its images, with the outputs of the editors to be judged.

Each row's mask of 0 and 1 becomes a PNG of the sample, white where change was allowed. A file that is cut off is refused:
nothing is repaired.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from editloupe.data.folders import Folder, ImageFile, RowError
from editloupe.data.images import MIN_SIDE, ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import OWN_COLUMNS, DataRow, Loaded, Row, assemble, read_row, rejected
from editloupe.data.tables import TableLine, shown
from editloupe.errors import ConfigError, SampleError
from editloupe.files import read_bytes
from editloupe.protocols.giebench.questions import KEY, QUESTION, QuestionError, read_question
from editloupe.values import ImageRef, Json, Sample, check_nesting, distinct_keys

LAYOUT: Final = "gie_bench.json with the images that its rows name (outputs given with --edited)"
ENDINGS: Final = (".json",)
FILE: Final = "gie_bench.json"

IMAGE_FOLDERS: Final = ("", "images", "images2000")
"""Where images are looked for, below the folder of the file: the first that has the image of a row."""
URL_LISTS: Final = "images2000urls"
"""Folder of the lists CATEGORY.json that come with the data: which image of which category a URL is."""
MASK_PX: Final = 224
"""Side of the data set's own masks."""

_IMAGE, _INSTRUCTION, _EDITED, _MASK, _URL = "image", "edit_instruction", "edited_image_path", "object_mask", "url"
_PATTERNS: Final = ("{id}", "{index}", "{path}", "{edit_type}/{path}")
_FOREIGN: Final = OWN_COLUMNS | {"model"}
_SPACE: Final = re.compile(r"\s*")
_LISTS: Final = re.compile(rf'("{_MASK}"\s*:\s*)(\[\s*\[[01,\s\[\]]*\]\s*\])')
_NO_LISTS: Final = ("00", "01", "10", "11", ",,", "[,", ",]")
_PACKED: Final = "0 and 1, each line up to its bracket: "


@dataclass(frozen=True, kw_only=True)
class _Mask:
    """What became of a row's mask."""

    image: ImageRef | None
    note: str = ""
    """What is odd; "" for nothing."""
    kind: str = ""
    """"empty" or "full" for a mask that leaves nothing to tell apart."""


def matches(data: DataSet) -> bool:
    """Return whether the file is there, or was named."""
    return (data.root / FILE).is_file() if data.metadata is None else data.metadata.name == FILE


def load(data: DataSet) -> Loaded:
    """Load each row once for each editor. A row's id is its place in the file, from 0.

    Raises ConfigError: no outputs given. SampleError: a file that is broken, cut off or something else. DataError: as
    `with_outputs`.
    """
    root = Folder(data.root, data.store)
    file = root.own(data.metadata.name if data.metadata else FILE)
    lines: list[TableLine] = []
    masks: dict[str, _Mask] = {}
    for number, values in enumerate(_objects(file)):
        masks[str(number)] = _mask(values.pop(_MASK, None), data.store)
        lines.append(TableLine(number=number, values=values))
    if lacking := [name for name in (_IMAGE, _INSTRUCTION, QUESTION) if all(name not in line.values for line in lines)]:
        seen = ", ".join(dict.fromkeys(name for line in lines for name in line.values)) or "none"
        raise SampleError(f"no row has the key {lacking[0]!r}; expected rows of GIE-Bench; saw the keys {seen}", file=file)
    listed = any(line.values.get(_EDITED) for line in lines)
    if data.outputs and not data.edited and not listed:
        raise ConfigError(
            f"{data.root}: GIE-Bench holds no edited images; give each editor's outputs with --edited NAME=FOLDER, or with "
            f"--edited NAME=FILE.json, whose rows have {_EDITED!r}"
        )
    notes = [*_counts(lines), *_mask_notes(masks), *_key_notes(lines)]
    images, categories = _image_folder(data, lines), _categories(root)
    rows = [_row(line, images, categories, notes) for line in lines]
    if data.edited:
        rows = [row for name, path in data.edited.items() for row in _outputs(rows, lines, name, path, data.store, notes)]
    elif listed and data.outputs:
        rows = [_with_edit(row, line.values.get(_EDITED), root) for row, line in zip(rows, lines, strict=True)]
    loaded = assemble(rows, format="giebench", dataset="GIE-Bench", notes=notes)
    return replace(
        loaded,
        samples=tuple(_finished(sample, masks[sample.id]) for sample in loaded.samples),
        rejected=tuple(
            replace(row, message=f"{file.name}, row {row.line} (from 0): {row.message}", file=row.file or file)
            for row in loaded.rejected
        ),
    )


def _objects(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON list, one at a time: the masks of all rows together are large.

    Raises SampleError for anything else, also behind the last whole row: what is cut off is not repaired.
    """
    try:
        text = _LISTS.sub(_packed, read_bytes(file).decode("utf-8-sig"))
        check_nesting(text)
    except UnicodeDecodeError as error:
        raise SampleError(f"is not UTF-8 (byte {error.start + 1}); save the file as UTF-8", file=file) from error
    except (OSError, ValueError) as error:
        raise SampleError(f"cannot be read: {error}", file=file) from error
    decoder = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_constant=_refuse)
    at, count = _past(text, 0), 0
    if not text.startswith("[", at):
        raise SampleError(f"expected a JSON list of rows, found {shown(text[at : at + 40])}", file=file)
    at = _past(text, at + 1)
    while count or not text.startswith("]", at):
        try:
            row, at = decoder.raw_decode(text, at)
            at = _past(text, at)
            if not text.startswith((",", "]"), at):
                raise ValueError("expected a comma or the end of the list behind it")
        except (ValueError, RecursionError) as error:
            what = "is broken JSON" if text.rstrip().endswith("]") else "is cut off"
            then = "nothing is repaired or left out; download or write the file again"
            why = getattr(error, "msg", error)  # without the place in the text, which is no longer the file's
            raise SampleError(f"{what} in row {count} (from 0): {why}; {then}", file=file) from error
        if not isinstance(row, dict):
            raise SampleError(f"row {count} (from 0): expected an object, found {shown(row)}", file=file)
        yield row
        count += 1
        if text.startswith("]", at):
            break
        at = _past(text, at + 1)
    if text[at + 1 :].strip():
        raise SampleError(f"holds more behind its list: {shown(text[at + 1 :].strip()[:40])}", file=file)
    if not count:
        raise SampleError("holds no rows; expected one row for each edit", file=file)


def _past(text: str, at: int) -> int:
    """Return where the white space ends that begins at a character."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _refuse(constant: str) -> float:
    raise ValueError(f"it holds {constant}, which is no JSON number")


def _mask(value: object, store: ImageStore) -> _Mask:
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


def _array(value: object) -> NDArray[Any]:
    """Return lists of numbers, or what `_packed` made of them, as an array. Raises ValueError for ragged lists."""
    if isinstance(value, str) and value.startswith(_PACKED):
        lines = value.removeprefix(_PACKED).encode().split(b"]")
        if len({len(line) for line in lines}) > 1:
            raise ValueError("lists differ in length")
        return np.frombuffer(b"".join(lines), np.uint8).reshape(len(lines), -1) - ord("0")
    return np.array(value)


def _packed(match: re.Match[str]) -> str:
    """Return a mask's lists of 0 and 1 as one text, which is read in a tenth of the time: all rows hold 54 million."""
    lists = reduce(_without, " \t\r\n", match[2])
    numbers = lists.count("0") + lists.count("1")
    between = lists.count("],[")
    brackets = (lists.count("["), lists.count("]"))
    if numbers != lists.count(",") + 1 or brackets != (between + 2, between + 2) or any(p in lists for p in _NO_LISTS):
        return match[0]  # larger numbers, an empty list, or broken JSON, which the reader of JSON then names
    return f'{match[1]}"{_PACKED}{reduce(_without, "[,", lists).rstrip("]")}"'


def _without(text: str, mark: str) -> str:
    return text.replace(mark, "")


def _image_folder(data: DataSet, lines: Sequence[TableLine]) -> Folder:
    """Return the first of the places for images that holds one of a row; the data set's own folder if none does."""
    for name in IMAGE_FOLDERS:
        if (data.root / name).is_dir():
            folder = Folder(data.root / name, data.store)
            if any(_there(folder, _name(line.values.get(_IMAGE))) for line in lines):
                return folder
    return Folder(data.root, data.store)


def _there(folder: Folder, name: str) -> bool:
    try:
        return bool(name) and folder.file(name).is_file()
    except RowError:
        return False


def _name(path: Json) -> str:
    """Return a path of a row without the slash that it begins with, which means the folder of the images."""
    return path.lstrip("/\\") if isinstance(path, str) else ""


def _categories(root: Folder) -> dict[str, list[str]]:
    """Return URL → CATEGORY/NAME, of the lists that come with the data; {} without them."""
    found: dict[str, list[str]] = {}
    folder = root.own(URL_LISTS)
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        for row in _objects(file):
            url, name = row.get("image_url"), row.get("image_name")
            if isinstance(url, str) and isinstance(name, str):
                found.setdefault(url, []).append(f"{file.stem}/{_name(name)}")
    return found


def _row(line: TableLine, images: Folder, categories: Mapping[str, Sequence[str]], notes: list[str]) -> Row:
    """Read a row. An image that is not where the row says is the one that the lists have for the row's URL."""
    values, own = line.values, (_IMAGE, _INSTRUCTION, _EDITED)
    name, url = _name(values.get(_IMAGE)), values.get(_URL)
    if name and not _there(images, name):
        others = [
            other + ending
            for other in categories.get(url if isinstance(url, str) else "", ())
            for ending in ("", Path(name).suffix)
        ]
        if other := next((other for other in others if _there(images, other)), None):
            notes.append(f"row {line.number}: {name} is not there; {other} is the image of its URL")
            name = other
    columns: dict[str, Json] = {
        **{(f"data.{key}" if key in _FOREIGN - {"edit_type"} else key): v for key, v in values.items() if key not in own},
        "id": str(line.number),
        "source_file_name": name if isinstance(values.get(_IMAGE), str) else values.get(_IMAGE),
        "instruction": values.get(_INSTRUCTION),
    }
    row = read_row(replace(line, values=columns), folder=images, text_only=False)
    if isinstance(row, DataRow):
        return row
    message = row.message.replace("column 'source_file_name'", f"key {_IMAGE!r}")
    return replace(row, message=message.replace("column 'instruction'", f"key {_INSTRUCTION!r}"))


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


def _outputs(
    rows: Sequence[Row], lines: Sequence[TableLine], editor: str, path: Path, store: ImageStore, notes: list[str]
) -> list[Row]:
    """Return the rows with the outputs of one editor: a folder of images, or a list of rows that name them.

    A row of the list belongs to the row of the same image and instruction; where several are the same, in their order.
    """
    if not path.is_file():
        matched = with_outputs(rows, {editor: path}, store=store, patterns=_PATTERNS)
        notes += matched.notes
        return list(matched.rows)
    folder, found = Folder(path.parent, store), dict[tuple[str, int], Json]()
    seen: Counter[str] = Counter()
    for given in _objects(path):
        found[_same(given), seen[_same(given)]] = given.get(_EDITED)
        seen[_same(given)] += 1
    places, before = [], Counter[str]()
    for same in (_same(line.values) for line in lines):
        places.append((same, before[same]))
        before[same] += 1
    known = set(places)
    out = [
        replace(_with_edit(row, found.get(place), folder), editor=editor) for row, place in zip(rows, places, strict=True)
    ]
    missing, strange = sum(not found.get(place) for place in places), sum(place not in known for place in found)
    if missing == len(places):
        raise SampleError(
            f"names no output of any row; expected rows with {_IMAGE!r}, {_INSTRUCTION!r} and {_EDITED!r}, as in {FILE}",
            file=path,
        )
    notes.append(f"editor {editor!r}: outputs listed in {path}; {missing} missing, {strange} belong to no row")
    return out


def _same(values: Mapping[str, Json]) -> str:
    return json.dumps([_name(values.get(_IMAGE)), values.get(_INSTRUCTION)])


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


def _counts(lines: Sequence[TableLine]) -> Iterator[str]:
    images = {_name(line.values.get(_IMAGE)) for line in lines}
    pairs = Counter(json.dumps([_name(line.values.get(_IMAGE)), line.values.get("edit_type")]) for line in lines)
    same = Counter(_same(line.values) for line in lines)
    yield f"{len(lines)} rows about {len(images)} images"
    repeated, again = (sum(n > 1 for n in counted.values()) for counted in (pairs, same))
    if repeated or again:
        yield (
            f"{repeated} pairs of image and edit type occur more than once, {again} of image and instruction; each row is "
            "judged by itself"
        )


def _mask_notes(masks: Mapping[str, _Mask]) -> Iterator[str]:
    for kind, then in (("empty", "the whole image is measured"), ("full", "nothing is left to be measured")):
        if rows := [id_ for id_, mask in masks.items() if mask.kind == kind]:
            yield f"{kind} masks, so that {then}: {_some(rows)}"
    if rows := [id_ for id_, mask in masks.items() if mask.image is None]:
        yield f"no mask that can be used: {_some(rows)}"


def _key_notes(lines: Sequence[TableLine]) -> Iterator[str]:
    """Yield how many keys are no option, by what becomes of their questions."""
    found: dict[str, list[str]] = {"folded": [], "key": [], "question": []}
    for line in lines:
        try:
            kind = "folded" if read_question(line.values).folded else ""
        except QuestionError as error:
            kind = "key" if error.of_key else "question"
        if kind:
            found[kind].append(str(line.number))
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
