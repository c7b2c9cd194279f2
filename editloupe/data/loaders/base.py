"""What a loader is given, and what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded, OnProgress


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
    """A mapping file."""
    outputs: bool = True
    """False where edited images are not needed, and may be absent as a whole."""
    progress: OnProgress | None = None


class Loader(Protocol):
    """One layout: a module of this package has these names.

    LAYOUT: what is looked for, as it stands in messages.
    """

    @property
    def LAYOUT(self) -> str: ...  # noqa: N802 - a module's constant

    def matches(self, data: DataSet) -> bool:
        """Return whether the folder has this layout."""
        ...

    def load(self, data: DataSet) -> Loaded:
        """Load the folder's samples. Raises DataError, SampleError or ConfigError where the whole cannot be used."""
        ...
