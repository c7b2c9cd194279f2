"""Public benchmarks as they are downloaded: lists in JSON beside their images, or rows of Parquet and Arrow that hold them.

Each is one `Benchmark`: which file or columns it is known by, what an entry means, and where the benchmark's own scripts
write an editor's outputs. Layouts and counts are those of the public repositories and data cards (docs/data.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from editloupe.data.folders import Folder, RowError
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.datasets import columns_of, read_lines
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import OWN_COLUMNS, DataRow, Loaded, RejectedRow, Row, assemble, named, read_row
from editloupe.data.tables import TableLine, shown
from editloupe.errors import ConfigError, DataError, SampleError
from editloupe.files import read_bytes
from editloupe.values import Json, distinct_keys, parse_json

Entry: TypeAlias = Mapping[str, Any]
_FOREIGN: Final = OWN_COLUMNS | {"model"}


@dataclass(frozen=True, kw_only=True)
class Read:
    """What an entry means."""

    values: Mapping[str, Json]
    """By the columns of docs/data.md; others travel along."""
    outputs: tuple[str, ...] = ()
    """Where the output of each turn lies in an editor's folder, without ending."""
    hints: tuple[str, ...] = ()
    """Names to make an id from where `values` has none."""


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Entries in JSON files beside their images."""

    files: tuple[str, ...]
    """Names that they are known by, relative to the folder; the first that there is counts. `*` stands for one folder."""
    read: Callable[[str, Any, str], Read]
    """(key or place of an entry, the entry, name of its file's folder) → what it means; files are named from that folder.
    Raises RowError."""
    images: tuple[str, ...] = ("",)
    """Folders beside the list that images are looked for in: the first that has the image of an entry."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Entries in rows that hold their images."""

    needed: tuple[str, ...]
    """Columns that the rows are known by."""
    named: Mapping[str, str]
    """source, edited, instruction, editor, reference → the column that holds it."""
    read: Callable[[Entry], Read]
    """What a row means: its columns but for those with images, under the names of `named`. Raises RowError."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The loader of one benchmark (`editloupe.data.loaders.base.Loader`)."""

    format: str
    title: str
    LAYOUT: str
    lists: Lists | None = None
    rows: tuple[Columns, ...] = ()
    """Shapes of its rows, those with most columns first."""
    patterns: tuple[str, ...] = ("{output}",)
    """Of the files in an editor's folder (`editloupe.data.outputs`)."""
    where: str
    """The same in words."""
    copies: str = ""
    """Ending of the stems of source images beside the outputs."""
    public: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Name of a public file or split → its entries by edit type, or by "" where they have none or it does not matter."""
    kinds: tuple[str, ...] = ()
    """The edit types of the public data, where their counts are not known."""

    @property
    def ENDINGS(self) -> tuple[str, ...]:  # noqa: N802 - as a loader that is a module names it
        return ((".json",) if self.lists else ()) + ((".parquet", ".arrow") if self.rows else ())

    def matches(self, data: DataSet) -> bool:
        """Return whether a list with one of the known names is there or was named, or rows with the known columns."""
        if self.lists is not None and data.metadata is not None:
            if data.metadata.name in (Path(name).name for name in self.lists.files if "*" not in name):
                return True
        elif self.lists is not None and any(self._listed(data)):
            return True
        return self._shape(data) is not None

    def load(self, data: DataSet) -> Loaded:
        """Load each entry once for each editor. An output that is not there leaves `Turn.edited` None.

        Raises SampleError and DataError for files of another shape, ConfigError where no outputs are given.
        """
        shape = self._shape(data)
        inside = shape is not None and "edited" in shape.named
        if inside and data.edited:
            raise ConfigError(f"{data.root}: {self.title} has its edits in its rows; leave --edited out")
        if not inside and data.outputs and not data.edited:
            raise ConfigError(
                f"{data.root}: {self.title} holds no edited images; give each editor's outputs with --edited NAME=FOLDER, "
                f"where they lie as {self.where}"
            )
        rows, place = self._from_rows(data, shape) if shape is not None else self._from_lists(data)
        notes = [self._census(rows)]
        unique = named(rows)
        if data.edited:
            matched = with_outputs(unique, data.edited, store=data.store, patterns=self.patterns, copies=self.copies)
            unique, notes = matched.rows, [*notes, *matched.notes]
        return assemble(unique, format=self.format, dataset=self.title, metadata=place, notes=notes)

    def _listed(self, data: DataSet) -> Iterator[Path]:
        """Yield the lists that are there under the first of the known names."""
        if self.lists is None:
            return
        for name in self.lists.files:
            if found := [file for file in sorted(data.root.glob(name)) if self._of_kinds(file, name)]:
                yield from found
                return

    def _of_kinds(self, file: Path, name: str) -> bool:
        """Return whether a list is the benchmark's: where folders name the edit types, one of those."""
        return file.is_file() and ("*" not in name or file.parent.name in self.kinds)

    def _shape(self, data: DataSet) -> Columns | None:
        """Return the shape of the rows; None where there are none with the known columns."""
        columns = columns_of(data) if self.rows else ()
        return next((shape for shape in self.rows if set(shape.needed) <= set(columns)), None)

    def _from_lists(self, data: DataSet) -> tuple[list[Row], Path]:
        files = [data.metadata] if data.metadata is not None else list(self._listed(data))
        if not files or self.lists is None:
            columns = columns_of(data)
            seen = f"; found rows with the columns {', '.join(columns)}" if columns else ""
            raise DataError(f"{data.root}: expected {self.title}: {self.LAYOUT}{seen}")
        root = Folder(data.root, data.store)
        rows: list[Row] = []
        faults: list[str] = []
        for file in files:
            folder = file.parent.resolve().name
            for number, (key, entry) in enumerate(_entries(root.own(file.relative_to(data.root).as_posix())), start=1):
                try:
                    rows.append(self._row(self.lists.read(key, entry, folder), root, number, file))
                except RowError as error:
                    faults.append(str(error))
                    what = f"{folder}/{key}" if len(files) > 1 else key
                    rows.append(RejectedRow(line=number, kind=error.kind, message=f"entry {what!r}: {error}", file=file))
        if rows and len(faults) == len(rows):
            raise SampleError(f"no entry is one of {self.title}: {faults[0]}; expected {self.LAYOUT}", file=files[0])
        return rows, files[0] if len(files) == 1 else data.root

    def _row(self, read: Read, root: Folder, number: int, file: Path) -> Row:
        assert self.lists is not None
        values = dict(read.values)
        name = values.get("source_file_name")
        beside = file.parent.relative_to(root.root).as_posix()
        folders = ["".join(f"{part}/" for part in (beside, below) if part not in ("", ".")) for below in self.lists.images]
        # The first folder also stands for an image that is nowhere, so that the message names where it was expected.
        below = next((b for b in folders if isinstance(name, str) and (root.root / f"{b}{name}").is_file()), folders[0])
        for role in ("source", "reference"):
            if isinstance(image := values.get(f"{role}_file_name"), str) and image:
                values[f"{role}_file_name"] = f"{below}{image}"
        return _finished(read_row(TableLine(number=number, values=values), folder=root, text_only=False), read)

    def _from_rows(self, data: DataSet, shape: Columns) -> tuple[list[Row], Path]:
        found = read_lines(data, columns=shape.named, with_edited="edited" in shape.named)
        rows: list[Row] = []
        for line, _ in found.lines:
            if line.fault is not None:
                rows.append(RejectedRow(line=line.number, message=line.fault))
                continue
            try:
                read = shape.read(line.values)
            except RowError as error:
                rows.append(RejectedRow(line=line.number, kind=error.kind, message=str(error)))
                continue
            row = read_row(replace(line, values=read.values), folder=found.images, text_only=False)
            rows.append(_finished(row, read))
        return rows, found.place

    def _census(self, rows: list[Row]) -> str:
        """Return how many entries there are beside how many the public data has."""
        kinds = Counter(row.edit_type or "" for row in rows)
        counted = f"{len(rows):,} entries of {self.title}"
        if self.kinds:
            missing = [kind for kind in self.kinds if kind not in kinds]
            lacking = f"; none of {', '.join(missing)}" if missing else ""
            counted += f" in {len(kinds) - ('' in kinds)} of the {len(self.kinds)} edit types of the public data{lacking}"
        if not self.public:
            return counted
        same = [name for name, its in self.public.items() if its == kinds or its == {"": len(rows)}]
        if same:
            return f"{counted}, as in the public {same[0]}"
        totals = " or ".join(f"{sum(its.values()):,} of the public {name}" for name, its in self.public.items())
        its = next((its for its in self.public.values() if set(kinds) <= set(its) and "" not in its), {})
        differing = [f"{kind} {kinds[kind]} of {count}" for kind, count in its.items() if kinds[kind] != count]
        return f"expected {totals}, found {len(rows):,}" + (f": {', '.join(differing)}" if differing else "")


def _finished(row: Row, read: Read) -> Row:
    """Return a row with where its outputs lie."""
    if isinstance(row, DataRow):
        return replace(row, outputs=read.outputs, hints=read.hints)
    # A rejected row's output still belongs to it.
    return replace(row, stems={**row.stems, **({"output": read.outputs[0]} if read.outputs else {})})


def _entries(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the entries of an object, by their key, or of a list or of JSON lines, by their place from 1.

    Raises SampleError for anything else.
    """

    def parsed(text: str) -> Any:
        return parse_json(text, object_pairs_hook=distinct_keys)

    try:
        text = read_bytes(file).decode("utf-8-sig")
        try:
            found = parsed(text)
        except ValueError:
            lines = [line for line in text.splitlines() if line.strip()]
            if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines):
                raise
            found = [parsed(line) for line in lines]
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    except ValueError as error:
        raise SampleError(f"is not JSON that can be read: {error}", file=file) from error
    if isinstance(found, dict):
        yield from found.items()
    elif isinstance(found, list):
        yield from ((str(place), entry) for place, entry in enumerate(found, start=1))
    else:
        raise SampleError(f"expected an object or a list of entries, found {shown(found)}", file=file)


def _object(entry: Any, *keys: str) -> Entry:
    """Return an entry that is an object with these keys. Raises RowError."""
    if not isinstance(entry, dict):
        raise RowError("row", f"expected an object with {', '.join(keys)}, found {shown(entry)}")
    if lacking := [key for key in keys if key not in entry]:
        raise RowError("row", f"has no key {lacking[0]!r}; found {', '.join(entry) or 'none'}")
    return entry


def _name(value: Any, key: str) -> str:
    """Return text or a whole number that can be part of a path. Raises RowError."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text.strip() or "/" in text or "\\" in text or text in (".", ".."):
        raise RowError(
            "row", f"key {key!r}: expected text without '/', since outputs are named by it; found {shown(value)}"
        )
    return text


def _rest(entry: Entry, *used: str) -> dict[str, Json]:
    """Return what else an entry has, under names that mean nothing to a row."""
    return {f"data.{key}" if key in _FOREIGN else key: value for key, value in entry.items() if key not in used}


def _gedit(entry: Entry) -> Read:
    key, language = _name(entry.get("id"), "key"), _name(entry.get("instruction_language"), "instruction_language")
    task = _name(entry.get("task_type"), "task_type")
    values = {**entry, "id": f"{key}.{language}", "edit_type": task, "key": key}
    return Read(values=values, outputs=(f"{task}/{language}/{key}",))


GEDIT: Final = Benchmark(
    format="gedit",
    title="GEdit-Bench",
    LAYOUT="Arrow or Parquet rows with task_type, key, instruction, instruction_language and input_image "
    "(outputs given with --edited)",
    rows=(
        Columns(
            needed=("task_type", "key", "instruction", "instruction_language", "input_image"),
            named={"source": "input_image", "instruction": "instruction", "id": "key"},
            read=_gedit,
        ),
    ),
    patterns=("fullset/{output}", "{output}"),
    where="fullset/TASK_TYPE/en|cn/KEY.png",
    copies="_SRCIMG",
    kinds=(
        "background_change", "color_alter", "material_alter", "motion_change", "ps_human", "style_change", "subject-add",
        "subject-remove", "subject-replace", "text_change", "tone_transfer",
    ),
)  # fmt: skip


def _imgedit(key: str, entry: Any, _folder: str) -> Read:
    turns = [name for name in ("turn1", "turn2", "turn3") if isinstance(entry, dict) and entry.get(name)]
    found = _object(entry, "id", *(() if turns else ("prompt",)))
    asked: dict[str, Json] = (
        {"instructions": [found[name] for name in turns]} if turns else {"instruction": found["prompt"]}
    )
    rest = _rest(found, "id", "prompt", "edit_type", *turns)
    id_ = _name(key, "key")
    return Read(values={**rest, **asked, "id": id_, "source_file_name": found["id"], "edit_type": found.get("edit_type")})


IMGEDIT: Final = Benchmark(
    format="imgedit",
    title="ImgEdit-Bench",
    LAYOUT="basic_edit.json, singleturn.json, UGE_edit.json or a list of KEY → {id, turn1, turn2, …} beside its images "
    "(outputs given with --edited)",
    lists=Lists(
        files=("basic_edit.json", "singleturn.json", "UGE_edit.json"),
        read=_imgedit,
        images=("", "original_images", "singleturn", "hard"),
    ),
    patterns=("{id}",),
    where="KEY.png (turns: KEY_turn_1.png, KEY_turn_2.png)",
    public={
        "basic_edit.json": {
            "action": 36, "add": 95, "adjust": 94, "background": 94, "compose": 23, "extract": 117, "remove": 86,
            "replace": 92, "style": 100,
        },
        "UGE_edit.json": {"": 47},
    },
)  # fmt: skip


def _kris(key: str, entry: Any, category: str) -> Read:
    found = _object(entry, "ori_img", "ins_en")
    id_ = _name(key, "id")
    images = found["ori_img"]
    if isinstance(images, list) and len(images) != 1:
        what = f"has {len(images)} input images, and a sample has one"
        raise RowError("row", f"{what}: a judge would not see what the instruction is about")
    source = images[0] if isinstance(images, list) else images
    if not isinstance(source, str):
        raise RowError("row", f"key 'ori_img': expected the name of a file, found {shown(source)}")
    values: dict[str, Json] = {
        **_rest(found, "ori_img", "gt_img", "ins_en"),
        "id": f"{category}-{id_}",
        "source_file_name": source,
        "reference_file_name": found.get("gt_img"),
        "instruction": found["ins_en"],
        "edit_type": category,
    }
    return Read(values=values, outputs=(f"{category}/{id_}",))


KRIS: Final = Benchmark(
    format="kris",
    title="KRIS-Bench",
    LAYOUT="KRIS_Bench/CATEGORY/annotation.json with the images of the category beside it (outputs given with --edited)",
    lists=Lists(files=("*/annotation.json", "KRIS_Bench/*/annotation.json"), read=_kris),
    where="CATEGORY/ID.jpg",
    kinds=(
        "abstract_reasoning", "anomaly_correction", "biology", "chemistry", "color_change", "count_change", "geography",
        "humanities", "mathematics", "medicine", "multi-element_composition", "multi-instruction_execution",
        "part_completion", "physics", "position_movement", "practical_knowledge", "rule-based_reasoning",
        "size_adjustment", "temporal_prediction", "viewpoint_change",
    ),
)  # fmt: skip


def _rise(_key: str, entry: Any, _folder: str) -> Read:
    found = _object(entry, "index", "category", "instruction", "image")
    category, id_ = _name(found["category"], "category"), _name(found["index"], "index")
    values: dict[str, Json] = {
        **_rest(found, "index", "category", "instruction", "image", "reference_img"),
        "id": id_,
        "source_file_name": found["image"],
        "reference_file_name": found.get("reference_img"),
        "instruction": found["instruction"],
        "edit_type": category,
    }
    return Read(values=values, outputs=(f"{category}/{id_}",))


_OF_RISE: Final = ("datav2_total_w_subtask.json", "data_total.json")

RISE: Final = Benchmark(
    format="rise",
    title="RISEBench",
    LAYOUT="datav2_total_w_subtask.json or data_total.json, a list of {index, category, instruction, image}, with data/ "
    "(outputs given with --edited)",
    lists=Lists(
        files=(*_OF_RISE, *(f"data/{name}" for name in _OF_RISE)),
        read=_rise,
        images=("", "data"),
    ),
    patterns=("images/{output}", "{output}"),
    where="images/CATEGORY/INDEX.png",
    public={
        "list of 360": {
            "causal_reasoning": 90, "logical_reasoning": 85, "spatial_reasoning": 100, "temporal_reasoning": 85,
        },
    },
)  # fmt: skip

_OF_TURN: Final = re.compile(r"(.+)-output([1-9][0-9]?)\.[A-Za-z]+")


def _magicbrush(key: str, entry: Any, _folder: str) -> Read:
    """A list is a session: each turn edits what the turn before gave. An object is a turn on its own source."""
    turns = [_object(turn, "input", "output", "instruction") for turn in (entry if isinstance(entry, list) else [entry])]
    if not turns:
        raise RowError("row", "the session has no turns")
    parts = _OF_TURN.fullmatch(str(turns[-1]["output"]))
    if parts is None or not isinstance(turns[0]["input"], str):
        found = shown(turns[-1]["output"])
        raise RowError("row", f"key 'output': expected a name such as 139306-output1.png, found {found}")
    image, number = _name(parts[1], "output"), int(parts[2])
    if isinstance(entry, list):
        id_, outputs = _name(key, "session"), _multi_turn(image, len(turns))
    else:
        id_, outputs = f"{image}-{number}", (_single_turn(image, number),)
    values: dict[str, Json] = {
        **({} if isinstance(entry, list) else _rest(turns[0], "input", "output", "instruction")),
        "id": id_,
        "source_file_name": f"images/{image}/{turns[0]['input']}",
        "reference_file_name": f"images/{image}/{turns[-1]['output']}",
        **({"instructions": [turn["instruction"] for turn in turns]} if len(turns) > 1
           else {"instruction": turns[0]["instruction"]}),
    }  # fmt: skip
    return Read(values=values, outputs=outputs)


def _magicbrush_row(entry: Entry) -> Read:
    image, number = _name(entry.get("img_id"), "img_id"), entry.get("turn_index")
    if not isinstance(number, int) or number < 1:
        raise RowError("row", f"column 'turn_index': expected a number from 1, found {shown(number)}")
    return Read(values={**entry, "id": f"{image}-{number}"}, outputs=(_single_turn(image, number),))


def _single_turn(image: str, number: int) -> str:
    return f"{image}/{image}_1" if number == 1 else f"{image}/{image}_inde_{number}"


def _multi_turn(image: str, turns: int) -> tuple[str, ...]:
    return (f"{image}/{image}_1", *(f"{image}/{image}_iter_{number}" for number in range(2, turns + 1)))


MAGICBRUSH: Final = Benchmark(
    format="magicbrush",
    title="MagicBrush",
    LAYOUT="edit_sessions.json or edit_turns.json with images/ID/ID-input.png, or Parquet rows with img_id, turn_index, "
    "source_img, instruction and target_img (outputs given with --edited)",
    lists=Lists(files=("edit_sessions.json", "edit_turns.json"), read=_magicbrush),
    rows=(
        Columns(
            needed=("img_id", "turn_index", "source_img", "instruction", "target_img"),
            named={"source": "source_img", "reference": "target_img", "instruction": "instruction"},
            read=_magicbrush_row,
        ),
    ),
    where="ID/ID_1.png, then ID/ID_iter_2.png for sessions and ID/ID_inde_2.png for single turns",
    public={
        "sessions of the test split": {"": 535},
        "turns of the test split": {"": 1053},
        "turns of the dev split": {"": 528},
        "turns of the train split": {"": 8807},
    },
)


def _emuedit(entry: Entry) -> Read:
    values = {**_rest(entry, "task", "instruction", "source_file_name", "edited_file_name", "editor", "id")}
    kept = {
        name: entry[name] for name in ("instruction", "source_file_name", "edited_file_name", "editor") if name in entry
    }
    hints = tuple(str(entry[name]) for name in ("idx", "hash") if entry.get(name) is not None)
    return Read(values={**values, **kept, "edit_type": entry.get("task")}, hints=hints)


_EMUEDIT: Final = ("instruction", "image", "task", "idx", "hash")

EMUEDIT: Final = Benchmark(
    format="emuedit",
    title="Emu Edit test set",
    LAYOUT="Parquet rows with instruction, image, task, idx and hash; outputs are edited_image, or given with --edited",
    rows=(
        Columns(
            needed=(*_EMUEDIT, "edited_image"),
            named={"source": "image", "edited": "edited_image", "instruction": "instruction"},
            read=_emuedit,
        ),
        Columns(needed=_EMUEDIT, named={"source": "image", "instruction": "instruction"}, read=_emuedit),
    ),
    patterns=("{id}",),
    where="IDX.png",
    public={"split of 2,022": {"": 2022}, "split of 3,589": {"": 3589}},
)
