"""Public benchmarks as they are downloaded, each a mapping file beside this one. docs/data.md names where they are from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from editloupe.data.loaders.mapped import Mapped

_HERE: Final = Path(__file__).parent / "layouts"

EMUEDIT: Final = Mapped(_HERE / "emuedit.toml")
GEDIT: Final = Mapped(_HERE / "gedit.toml")
IMGEDIT: Final = Mapped(_HERE / "imgedit.toml")
KRIS: Final = Mapped(_HERE / "kris.toml")
MAGICBRUSH: Final = Mapped(_HERE / "magicbrush.toml")
RISE: Final = Mapped(_HERE / "rise.toml")
