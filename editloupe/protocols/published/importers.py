"""The importers of GEdit-Bench, ImgEdit-Bench and KRIS-Bench: each a mapping file beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from editloupe.protocols.importer import ResultFiles

_HERE: Final = Path(__file__).parent / "results"

GEDIT: Final = ResultFiles(_HERE / "gedit.toml")
IMGEDIT: Final = ResultFiles(_HERE / "imgedit.toml")
KRIS: Final = ResultFiles(_HERE / "kris.toml")
