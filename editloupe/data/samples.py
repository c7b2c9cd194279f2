"""Samples from files: one pair, or a whole folder in a layout that is recognized or named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from editloupe import plugins
from editloupe.data.embedded import image_columns, row_files
from editloupe.data.folders import open_folder
from editloupe.data.hub import local_data, origin_of
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import BoxFile, DataSet, Loader
from editloupe.data.loaders.layout import USUAL, chosen
from editloupe.data.loaders.mapped import Mapped
from editloupe.data.objects import AnyImage, image_of
from editloupe.data.rows import Loaded, RejectedRow, turn_notes
from editloupe.data.tables import ENDINGS, columns_of
from editloupe.errors import ConfigError, DataError, SampleError, did_you_mean
from editloupe.files import read_toml
from editloupe.values import ImageRef, Json, Sample, Turn, canonical_json, opened, with_images

__all__ = ["Loaded", "RejectedRow", "Sample", "box_file", "formats", "load", "load_sample", "load_samples", "sample_of_row"]

GENERAL: Final = "imagefolder"
"""The format of a table that no other loader knows."""
OWN: Final = (GENERAL, "pairs", "datasets")
"""Formats of any names and columns: what a benchmark's own loader knows is that benchmark's."""

_USUAL_LAYOUTS: Final = """Most people have one of these two:
  a table (.jsonl, .csv or .parquet) with the columns source, edited and instruction, beside the images that it names
  source/cat.png and edited/cat.png, with instructions.csv that has the columns name and instruction
Say other column names with --columns source=COLUMN,edited=COLUMN,instruction=COLUMN, or --set columns=…."""


def formats() -> tuple[str, ...]:
    """Return what `format` may be: "auto", or the name of an installed loader."""
    return ("auto", GENERAL, *(name for name in plugins.names("loaders") if name != GENERAL))


def load(
    path: Path,
    *,
    store: ImageStore,
    format: str = "auto",
    edited: Mapping[str, Path] | None = None,
    fields: Path | None = None,
    columns: Mapping[str, str] | None = None,
    outputs: bool = True,
) -> Loaded:
    """Load all edits of a folder (or of a metadata file in it): every file identified and hashed once, no pixels decoded.

    edited: folder of outputs by the editor's name ("" for an unnamed one), beside the data set's own.
    fields: mapping file (TOML) that is laid over the layout's own.
    columns: source, edited, instruction, … → the column that holds it, where names do not say it.
    outputs: False where edited images may be absent as a whole.
    A row that cannot be judged is in `rejected`; an output that does not exist leaves `Turn.edited` None.
    Raises DataError, SampleError or ConfigError where the whole of `path` cannot be used.
    """
    if format not in formats():
        hint = did_you_mean(format, formats())
        raise ConfigError(f"unknown layout {format!r}; {hint}expected one of {', '.join(formats())}")
    root, metadata = path, None
    if path.is_file():
        allowed = endings(format)
        if path.suffix.lower() not in allowed:
            raise DataError(f"{path}: expected a folder or a metadata file ({', '.join(allowed)}), found another file")
        root, metadata = path.parent, path
    open_folder(root, store, what="a folder of edits")
    data = DataSet(
        root=root,
        store=store,
        metadata=metadata,
        edited=edited or {},
        fields=fields,
        columns=columns or {},
        outputs=outputs,
    )
    if fields is not None:
        format = _of_fields(format, fields)
    name = _recognized(data) if format == "auto" else format
    if columns and not isinstance(_loader(name), Mapped):
        raise ConfigError(f"{root}: the layout {name} has no columns to name; leave --columns out, or say another --layout")
    loaded = _loader(name).load(data)
    if (origin := origin_of(root)) is None:
        return loaded
    note = f"{origin['dataset']} of the Hugging Face hub, split {origin['split']}, revision {origin['revision']}"
    return replace(loaded, notes=(note, *loaded.notes))


def load_samples(
    path: str | Path,
    *,
    format: str = "auto",
    edited: Mapping[str, str | Path] | None = None,
    fields: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
) -> Loaded:
    """Load a folder of edits, a metadata file, a run folder or hf://OWNER/NAME:SPLIT, as `editloupe judge PATH` does.

    Iterate over it, or give it to `Judge.judge_all`. A row that cannot be judged is in `rejected`.
    format: a layout; "auto" recognizes it.   edited: editor's name → folder of outputs.   fields: mapping file (TOML).
    columns: source, edited, instruction, … → the column that holds it, where names do not say it.
    Raises DataError, SampleError or ConfigError where the whole of `path` cannot be used.
    """
    store = ImageStore(cache_bytes=0)
    loaded = load(
        local_data(Path(path)),
        store=store,
        format=format,
        edited={name: Path(folder) for name, folder in (edited or {}).items()},
        fields=None if fields is None else Path(fields),
        columns=columns,
    )

    def whole(ref: ImageRef) -> ImageRef:
        # Those in the cells of a table are read again from there, so that memory need not hold them.
        return ref if ref.path is not None else replace(ref, data=partial(store.data, ref))

    return replace(loaded, samples=tuple(with_images(sample, whole) for sample in loaded.samples))


def _of_fields(format: str, fields: Path) -> str:
    """Return the format that a mapping file is laid over. Raises ConfigError where it says another one than the user."""
    named = str(read_toml(fields, f"mapping file {fields}").get("layout", ""))
    if named and format not in ("auto", named):
        raise ConfigError(f"{fields} is laid over the layout {named}, and --layout says {format}; take one of them out")
    format = named or (GENERAL if format == "auto" else format)
    if format not in (mapped := [name for name in formats()[1:] if isinstance(_loader(name), Mapped)]):
        raise ConfigError(f"{fields}: a mapping file is laid over one of {', '.join(mapped)}, not over {format!r}")
    return format


def endings(format: str) -> tuple[str, ...]:
    """Return the endings of files that may be named in place of their folder, for a format or for "auto"."""
    names = formats()[1:] if format == "auto" else (format,)
    return tuple(dict.fromkeys((*ENDINGS, *(end for name in names for end in getattr(_loader(name), "ENDINGS", ())))))


def box_file(format: str, fields: Path | None = None) -> BoxFile | None:
    """Return the file from which a format reads boxes beside its data; None for a format that has none.

    fields: the mapping file. Raises ConfigError for one that is malformed.
    """
    loader: Any = _loader(format)
    return cast(BoxFile, loader.box_file(fields)) if hasattr(loader, "box_file") else None


def load_sample(
    source: AnyImage | list[AnyImage],
    edited: AnyImage,
    instruction: str,
    *,
    id: str | None = None,
    editor: str = "",
    edit_type: str | None = None,
    reference: AnyImage | None = None,
    mask: AnyImage | None = None,
    extra: Mapping[str, Json] | None = None,
) -> Sample:
    """Make a sample of two images and an instruction. The images are decoded.

    source, edited: a path, the bytes of an image file, a PIL image, an H×W×3 uint8 array; source may be a list of several
    input images.   mask: white where change was allowed.   extra: further columns.
    id: None takes the stem of the edited file's name, else the digests of the images.
    Raises ImageError where an image is missing or cannot be decoded, SampleError where the instruction is empty.
    """
    if not isinstance(instruction, str) or not instruction.strip():
        found = "empty" if isinstance(instruction, str) else repr(instruction)
        raise SampleError(
            f"the instruction is {found}; expected what the editor was asked to do",
            file=edited if isinstance(edited, str | Path) else None,
        )
    store = ImageStore(cache_bytes=0)
    warnings: list[str] = []

    def opened(role: str, image: AnyImage) -> ImageRef:
        ref = image_of(image, store, name=role)
        warnings.extend(f"{role}: {note}" for note in store.notes(ref))
        return ref

    inputs = source if isinstance(source, list) and source else [source]
    before, *further = [opened("source" if n == 1 else f"source {n}", one) for n, one in enumerate(inputs, start=1)]
    after = opened("edited", edited)
    right = None if reference is None else opened("reference", reference)
    allowed = None if mask is None else opened("mask", mask)
    turns = (Turn(instruction=instruction.strip(), edited=after),)
    named = after.path.stem if after.path is not None else f"{before.sha256[:8]}-{after.sha256[:8]}"
    return Sample(
        id=id or named,
        editor=editor,
        source=before,
        further=tuple(further),
        turns=turns,
        reference=right,
        masks={} if allowed is None else {"edit": allowed},
        edit_type=edit_type,
        extra=extra or {},
        warnings=(*warnings, *turn_notes(before, turns)),
    )


def sample_of_row(row: Mapping[str, Any], map: Mapping[str, str] | None = None) -> Sample:
    """Make a sample of a row with its images, such as one of a `datasets` data set.

    map: source, edited, instruction, id, editor, edit_type, reference or mask → the row's column. What it leaves out is
    looked for under usual names. Other columns that are text, numbers or lists become the sample's extra columns.
    Raises SampleError for a column that is not there, and as `load_sample`.
    """
    given = dict(map or {})
    if unknown := [name for name in given if name not in USUAL]:
        raise SampleError(f"the map names {unknown[0]!r}; expected {', '.join(USUAL)}")
    found = {name: chosen((given[name],) if name in given else usual, row) for name, usual in USUAL.items()}
    needed = (*given, "source", "edited", "instruction")
    if missing := next((name for name in needed if found[name] is None), None):
        what = f"no column is known for {missing}; name it, as in {{{missing!r}: COLUMN}}"
        if missing in given:
            what = f"the row has no column {given[missing]!r}, which the map names for {missing}"
        raise SampleError(f"{what}; it has {', '.join(row)}")
    values = {name: row[column] for name, column in found.items() if column is not None}
    texts = {name: str(value) for name in ("id", "editor", "edit_type") if (value := values.pop(name, None)) is not None}
    rest = {name: value for name, value in row.items() if name not in found.values() and _storable(value)}
    return load_sample(**values, **texts, extra=rest)


opened(from_images=load_sample, from_row=sample_of_row)


def _storable(value: Any) -> bool:
    """Return whether a value is JSON: text, finite numbers, truth values, and lists and objects of them."""
    try:
        canonical_json(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _loader(name: str) -> Loader:
    found: Any = plugins.load("loaders", name)
    return cast(Loader, found() if isinstance(found, type) else found)


def _recognized(data: DataSet) -> str:
    root, loaders = data.root, {name: _loader(name) for name in formats()[1:]}
    fitting = [name for name, loader in loaders.items() if loader.matches(data)]
    fitting = [name for name in fitting if name not in OWN] or fitting
    if not fitting and (data.columns or (data.metadata is not None and data.metadata.suffix.lower() in ENDINGS)):
        rows = row_files(data)  # the one that is taken says what columns there are
        return "datasets" if rows and columns_of(rows[0]) and image_columns(rows[0])[0] else GENERAL
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(f"{root} could be {' or '.join(fitting)}; say which with --layout")
    entries = [path for path in sorted(root.iterdir()) if not path.name.startswith(".")]
    seen = ", ".join(p.name + "/" * p.is_dir() for p in entries[:12]) + ", …" * (len(entries) > 12)
    tables = [p for p in entries if p.suffix.lower() in ENDINGS and p.is_file()]
    columns = ", ".join(columns_of(tables[0])[:20]) if tables else ""
    advice = f". {tables[0].name} has the columns {columns}: say with --columns which of them holds what" if columns else ""
    raise DataError(
        f"{root}: no known layout; saw {seen or 'an empty folder'}{advice}.\n{_USUAL_LAYOUTS}\n"
        f"Also read, as the benchmarks publish them: {', '.join(name for name in loaders if name not in OWN)}."
    )
