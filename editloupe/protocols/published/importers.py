"""The importers of GEdit-Bench, ImgEdit-Bench and KRIS-Bench: each a mapping file in `results`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from editloupe.protocols.importer import ResultFiles

_NAMES: Final = ("gedit", "imgedit", "kris")
IMPORTERS: Final = {name: ResultFiles(Path(__file__).parent / "results" / f"{name}.toml") for name in _NAMES}
GEDIT, IMGEDIT, KRIS = IMPORTERS.values()
