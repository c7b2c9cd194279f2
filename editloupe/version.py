"""The version of this package, which traces and pages name."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.3.0.dev0"
