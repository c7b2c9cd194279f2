"""What a loader is given, and what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """What is to be loaded."""

    root: Path
    store: ImageStore
    metadata: Path | None = None
    """The file that was named instead of its folder."""
    edited: Mapping[str, Path] = field(default_factory=dict)
    """Folder of outputs by the editor's name."""
    fields: Path | None = None
    """A mapping file that is laid over the layout's own."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """source, edited, instruction, id, … → the column that holds it, over what the mapping says."""
    outputs: bool = True
    """False where edited images are not needed, and may be absent as a whole."""


@dataclass(frozen=True, kw_only=True)
class BoxFile:
    """A file beside the data from which a loader reads boxes: a JSON line for each row."""

    name: str
    """The file's name in the root folder."""
    id_key: str
    """The key of the row's id."""
    boxes_key: str
    """The key of its boxes."""


class Loader(Protocol):
    """One layout: a module or an object behind the entry point group `editloupe.loaders`, under the name of the format.

    Most are a `editloupe.data.loaders.mapped.Mapped`, which takes `fields` and `columns`. A loader with boxes in a file of
    their own also has `box_file(fields: Path | None) -> BoxFile`. One whose file may be named in place of its folder, and
    has another ending than .jsonl, .csv, .tsv or .parquet, has `ENDINGS`, such as (".json",).
    """

    def matches(self, data: DataSet) -> bool:
        """Return whether the folder, or the file that was named instead of it, has this layout."""

    def load(self, data: DataSet) -> Loaded:
        """Load the folder's samples. Raises DataError, SampleError or ConfigError where the whole cannot be used."""
