"""Traces: one append-only JSONL file per task. This package writes, reads and verifies them; replay is in `runs`."""

from pathlib import Path

GALLERY = Path(__file__).parent / "gallery"
"""A small run folder that comes with the package: short traces by the baseline and by scripts.

`docs/site/make_gallery.py` makes it.
"""
