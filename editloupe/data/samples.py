"""Samples from files: one pair, or a whole folder in a layout that is recognised or named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from editloupe import plugins
from editloupe.data.folders import open_folder
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import BoxFile, DataSet, Loader
from editloupe.data.rows import Loaded, RejectedRow, size_note
from editloupe.data.tables import ENDINGS
from editloupe.errors import ConfigError, DataError, SampleError
from editloupe.values import ImageRef, Sample, Turn

__all__ = ["Loaded", "RejectedRow", "box_file", "formats", "load", "load_sample"]

GENERAL: Final = "imagefolder"
"""The format of a metadata file that no other loader knows."""


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
    outputs: bool = True,
) -> Loaded:
    """Load all edits of a folder (or of a metadata file in it): every file identified and hashed once, no pixels decoded.

    edited: folder of outputs by the editor's name ("" for an unnamed one), beside the data set's own.
    fields: mapping file (TOML) for a loader that reads one.   outputs: False where edited images may be absent as a whole.
    A row that cannot be judged is in `rejected`; an output that does not exist leaves `Turn.edited` None.
    Raises DataError, SampleError or ConfigError where the whole of `path` cannot be used.
    """
    if format not in formats():
        raise ConfigError(f"unknown format {format!r}; expected one of {', '.join(formats())}")
    root, metadata = path, None
    if path.is_file():
        allowed = endings(format)
        if path.suffix.lower() not in allowed:
            raise DataError(f"{path}: expected a folder or a metadata file ({', '.join(allowed)}), found another file")
        root, metadata = path.parent, path
    open_folder(root, store, what="a folder of edits")
    data = DataSet(root=root, store=store, metadata=metadata, edited=edited or {}, fields=fields, outputs=outputs)
    if fields is not None:
        # A mapping file says which folders hold what, so it also says which format is meant.
        mapped = [name for name in formats()[1:] if hasattr(_loader(name), "box_file")]
        if format == "auto" and len(mapped) == 1:
            format = mapped[0]
        if format not in mapped:
            known = " or ".join(mapped)
            raise ConfigError(f"a mapping file ({fields}) goes with the format {known}, not with {format}; leave one out")
    return _loader(_recognised(data) if format == "auto" else format).load(data)


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
    source: str | Path,
    edited: str | Path,
    instruction: str,
    *,
    id: str | None = None,
    editor: str = "",
    edit_type: str | None = None,
    reference: str | Path | None = None,
) -> Sample:
    """Make a sample of two image files and an instruction. The images are decoded.

    id: None takes the stem of the edited file's name.
    Raises ImageError where a file is missing or cannot be decoded, SampleError where the instruction is empty.
    """
    if not instruction.strip():
        raise SampleError("the instruction is empty; expected what the editor was asked to do", file=edited)
    store = ImageStore(cache_bytes=0)
    warnings: list[str] = []

    def opened(role: str, path: str | Path) -> ImageRef:
        ref = store.add_file(Path(path))
        warnings.extend(f"{role}: {note}" for note in store.notes(ref))
        return ref

    before, after = opened("source", source), opened("edited", edited)
    right = None if reference is None else opened("reference", reference)
    if (before.width, before.height) != (after.width, after.height):
        warnings.append(size_note(before, after))
    return Sample(
        id=id or Path(edited).stem,
        editor=editor,
        source=before,
        turns=(Turn(instruction=instruction.strip(), edited=after),),
        reference=right,
        edit_type=edit_type,
        warnings=tuple(warnings),
    )


def _loader(name: str) -> Loader:
    found: Any = plugins.load("loaders", name)
    return cast(Loader, found() if isinstance(found, type) else found)


def _recognised(data: DataSet) -> str:
    root, loaders = data.root, {name: _loader(name) for name in formats()[1:]}
    fitting = [name for name, loader in loaders.items() if loader.matches(data)]
    if data.metadata is not None:
        general = [GENERAL] if data.metadata.suffix.lower() in ENDINGS else []
        fitting = [name for name in fitting if name != GENERAL] or general
    if fitting == [GENERAL, "pairs"]:
        return GENERAL  # its files usually lie in source/ and edited/; the metadata says more
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(f"{root} could be {' or '.join(fitting)}; say which with --format")
    entries = sorted(p.name + ("/" if p.is_dir() else "") for p in root.iterdir() if not p.name.startswith("."))
    looked = "; ".join(f"{name}: {loader.LAYOUT}" for name, loader in loaders.items())
    if not entries:
        raise DataError(f"{root}: the folder is empty; looked for {looked}")
    seen = ", ".join(entries[:12]) + (f", … ({len(entries)} in all)" if len(entries) > 12 else "")
    below = [
        p for p in sorted(root.iterdir()) if p.is_dir() and any(x.matches(replace(data, root=p)) for x in loaders.values())
    ]
    advice = f"; {below[0]} has one of them: give that folder" if below else ""
    raise DataError(f"{root}: no known layout; looked for {looked}; saw {seen}{advice}")
