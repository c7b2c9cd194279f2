"""The official script's result files, as `results.toml` maps them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from editloupe.protocols.importer import ResultFiles

UNICBENCH: Final = ResultFiles(Path(__file__).with_name("results.toml"), name="unicbench")
